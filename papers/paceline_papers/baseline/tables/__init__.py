"""The tables of the baselines, one a file."""
