"""Processes by fork from one that has imported what they need."""
