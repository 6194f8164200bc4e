"""A run's folder, and what lies in it."""
