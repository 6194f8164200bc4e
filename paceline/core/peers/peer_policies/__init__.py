"""One way to train without servers is one file; its stem is its name in the config."""
