"""Checks of the prose in README and docs: rules, and how much of each page still breaks them."""
