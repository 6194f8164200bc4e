"""A run's model: applied, exported, pulled while it trains."""
