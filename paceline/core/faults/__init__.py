"""One fault that `--fault` inflicts is one file; its stem is its name."""
