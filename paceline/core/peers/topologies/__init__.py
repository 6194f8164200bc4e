"""One topology is one file; its stem is its name in the config."""
