"""Scripts that bring model, data and loop: the run as they see it, their data sets and mini-batches."""
