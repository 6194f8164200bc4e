"""The tables and figures of [Sharding]."""
