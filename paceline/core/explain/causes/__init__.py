"""One cause of a slow or worse run is one file; its stem is its name."""
