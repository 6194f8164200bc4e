"""Which protocol a process speaks: the first message that it sends to another one says it (docs/understand/releases.md)."""

from paceline.core.errors import OtherProtocol

PROTOCOL = 5
"""Raised by a release whose processes can't train together with those of the one before; what can be left out or ignored on
both sides does not raise it."""


def check_protocol(theirs: int, who: str, mine: str) -> None:
    """OtherProtocol where `who` speaks another one than this process, which is called `mine`."""
    if theirs == PROTOCOL:
        return
    said = f"protocol {theirs}" if theirs else "a protocol without a number, older than 1"
    newer = who if theirs > PROTOCOL else mine
    raise OtherProtocol(
        f"{who} speaks {said}, {mine} protocol {PROTOCOL}: they are of different releases of Paceline, which "
        "can't train together. Install the same release for all processes of the run, preferably that of "
        f"{newer}, which is newer."
    )
