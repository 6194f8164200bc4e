"""Longer trials whose tables are in results.md: `make experiments`. Apart from the tests; they print their seeds."""
