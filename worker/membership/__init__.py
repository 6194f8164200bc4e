"""A worker's seat: its calls to the chief, its heartbeat."""
