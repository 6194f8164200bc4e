"""Answers by a run's model, over HTTP and gRPC, also while it trains."""
