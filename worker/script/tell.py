"""What Paceline says among what a script prints."""

import sys


def tell(what: str) -> None:
    """A sentence, where the launcher shows it."""
    print(f"paceline: {what}", file=sys.stderr, flush=True)
