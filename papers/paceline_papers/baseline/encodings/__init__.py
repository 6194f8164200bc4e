"""How a baseline's columns become features, one way a file."""
