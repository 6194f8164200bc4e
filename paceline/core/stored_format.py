"""Which form a file or folder has: each says it by a number, and a form of a newer release is not guessed at."""

from paceline.core.errors import DataError, TooNew


def check_format(what: str, found: object, newest: int, instead: str) -> None:
    """TooNew where `what` says a form beyond the `newest` that this release reads, DataError where what it says is no whole
    number. `instead`: what to do without that newer release, as an imperative without a full stop."""
    if type(found) is not int:  # True is an int too
        raise DataError(f"{what} has format {found!r}, which is no number: it is damaged. Restore it, or {instead}.")
    if found > newest:
        raise TooNew(
            f"{what} has format {found}; this release of Paceline reads formats up to {newest}, so a newer one wrote it. Go "
            f"on with that release, or {instead}."
        )
