"""Workers of linear models: sparse rows, sparse pushes, threads without a lock."""
