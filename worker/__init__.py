"""A worker's process, and the evaluator's: what both are started with, and the loop of a user's script."""
