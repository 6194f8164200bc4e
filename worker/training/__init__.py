"""The training loop: the model as a flat vector, devices, precision, what a worker reports."""
