"""Runs without servers: what peers send, which peers they need, how they mix."""
