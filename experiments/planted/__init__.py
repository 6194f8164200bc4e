"""Tasks in which something is wrong, for experiments/planted_causes.py."""
