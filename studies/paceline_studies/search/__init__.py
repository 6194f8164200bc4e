"""Hyper-parameter search: many runs side by side, each as `paceline run` makes it, and what they give together."""
