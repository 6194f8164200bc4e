"""The sharder's process: it deals data to shards, streams them, and reports on them."""
