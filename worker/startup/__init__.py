"""How a worker begins and ends, and where its shards are."""
