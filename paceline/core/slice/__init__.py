"""One server's part of the model: which pushes count, how they get into the weights, what a snapshot holds."""
