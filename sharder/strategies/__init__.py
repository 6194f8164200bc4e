"""One way to deal examples to shards is one file; its stem is its name."""
