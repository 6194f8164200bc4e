"""Tasks in which something is wrong, for planted_causes.py."""
