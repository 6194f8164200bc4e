"""Training of live objects: a model, data sets and functions that `paceline.train(model, train=...)` was given."""
