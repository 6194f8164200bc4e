"""What gRPC writes into header fields: status numbers, messages, timeouts."""

from urllib.parse import quote, unquote

STATUS = {
    name: number
    for number, name in enumerate(
        (
            "OK",
            "CANCELLED",
            "UNKNOWN",
            "INVALID_ARGUMENT",
            "DEADLINE_EXCEEDED",
            "NOT_FOUND",
            "ALREADY_EXISTS",
            "PERMISSION_DENIED",
            "RESOURCE_EXHAUSTED",
            "FAILED_PRECONDITION",
            "ABORTED",
            "OUT_OF_RANGE",
            "UNIMPLEMENTED",
            "INTERNAL",
            "UNAVAILABLE",
            "DATA_LOSS",
            "UNAUTHENTICATED",
        )
    )
}
NAMES = {number: name for name, number in STATUS.items()}
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_MOST = 4096
"""Bytes of a status message; peers take 8 KiB of header fields."""


def percent_encoded(text: str) -> str:
    """A status message as a header field carries it; of a very long one the beginning."""
    text = text[:_MOST]
    while len(encoded := quote(text, safe=_PLAIN, errors="replace")) > _MOST:
        text = text[: len(text) * _MOST // len(encoded)]
    return encoded


def percent_decoded(text: str) -> str:
    """And back."""
    return unquote(text)


def seconds_of(field: str) -> float:
    """A call's time, as `grpc-timeout` has it, in seconds. ValueError where it is none."""
    units = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
    if not field[:-1].isdecimal() or len(field) > 9 or field[-1] not in units:
        raise ValueError(field)
    return int(field[:-1]) * units[field[-1]]
