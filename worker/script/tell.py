"""What Paceline says among what a script prints."""

import sys

TRAINER = " If transformers.Trainer trains here, import Trainer from paceline.transformers instead."


def tell(what: str) -> None:
    """A sentence, where the launcher shows it."""
    print(f"paceline: {what}", file=sys.stderr, flush=True)
