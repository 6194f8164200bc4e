"""What is tried before a run: a mini-batch of its task."""
