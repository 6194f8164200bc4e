"""The report on shards: how alike they are, as one page."""
