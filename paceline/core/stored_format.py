"""Which form a file or folder has: each says it by a number, and a form of a newer release is not guessed at."""

from paceline.core.errors import TooNew


def check_format(what: str, found: object, newest: int, instead: str) -> None:
    """TooNew where `what` says a form beyond the `newest` that this release reads. `instead`: what to do without that newer
    release, as an order without a full stop."""
    if isinstance(found, int) and found <= newest:
        return
    raise TooNew(
        f"{what} has format {found!r}; this release of Paceline reads formats up to {newest}, so a newer one wrote it. Go on "
        f"with that release, or {instead}."
    )
