"""What can be set, each with its unit and default."""
