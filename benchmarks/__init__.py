"""Measurements against the targets of performance.md: ratios of one interleaved run, never a bare time."""
