"""The built-in tasks: one file each, its stem is the name in the config."""
