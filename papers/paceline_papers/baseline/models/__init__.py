"""The models of the baselines, one a file."""
