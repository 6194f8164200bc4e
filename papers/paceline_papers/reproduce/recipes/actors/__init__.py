"""The tables and figures of [Actors]."""
