"""Which settings go together, as one table of those that don't."""
