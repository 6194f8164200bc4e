"""What Paceline says among what a script prints."""

import sys

TRAINER = (
    " transformers.Trainer runs its own loop, which no worker can run: write the loop, as in "
    "examples/scripts/accelerate_loop.py."
)


def tell(what: str) -> None:
    """A sentence, where the launcher shows it."""
    print(f"paceline: {what}", file=sys.stderr, flush=True)
