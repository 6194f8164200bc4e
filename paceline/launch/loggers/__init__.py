"""One logger is one file; its stem is its name for `--log`."""
