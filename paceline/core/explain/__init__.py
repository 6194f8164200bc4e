"""What makes a run slow or worse: the evidence, and who lags."""
