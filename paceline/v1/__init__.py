"""The messages and stubs that `make protos` writes from protos/."""
