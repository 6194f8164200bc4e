"""Checks the format number that each stored file or folder carries; formats of newer releases are refused."""

from paceline.core.errors import DataError, TooNew


def check_format(what: str, found: object, newest: int, instead: str) -> None:
    """Raises TooNew if the number that `what` carries exceeds the `newest` that this release reads, DataError if it is not
    a whole number. `instead`: what to do without that newer release, as an imperative without a full stop."""
    if type(found) is not int:  # True is an int too
        raise DataError(
            f"{what} has format {found!r}, which is not a number, so it is damaged. Restore it, or {instead}."
        )
    if found > newest:
        raise TooNew(
            f"{what} has format {found}; this release of Paceline reads formats up to {newest}, so a newer "
            f"release wrote it. Use that release, or {instead}."
        )
