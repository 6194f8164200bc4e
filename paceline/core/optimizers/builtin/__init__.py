"""One optimizer is one file; its stem is its name in the config."""
