"""Where the repository's own files lie, for tests that read them."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
"""Data that is not in the repository; not there on every machine."""
