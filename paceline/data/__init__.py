"""Examples and shards: readers of files and tables, folders of shards, which examples a worker takes."""
