"""What is tried before a run: a mini-batch, a script's first step."""
