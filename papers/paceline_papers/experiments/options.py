"""What several commands' options are read by."""

from collections.abc import Iterable

from paceline.core.errors import UsageError


def among(given: str, known: Iterable[str], option: str) -> list[str]:
    """The names that stand between commas. UsageError: one is not known."""
    names = given.split(",")
    for name in names:
        if name not in known:
            raise UsageError(f"{option}: got {name!r}; expected some of {', '.join(known)}, with commas.")
    return names
