"""The tables and figures of [Survey]."""
