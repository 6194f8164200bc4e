"""The stages of a baseline, one a file."""
