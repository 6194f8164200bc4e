"""The evaluator's work: the scores of a run, the model as a file."""
