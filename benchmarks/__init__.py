"""Measurements against the targets of benchmarks/results.md#targets: ratios of one interleaved run, never a bare time."""
