"""The commands and code in README and docs: each is checked, and run where nothing is marked to be in the way."""
