"""Models that tasks build; torch is imported here, so tasks import these inside their functions."""
