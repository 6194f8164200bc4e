"""Durations and speeds as people write them."""

import re
from typing import Any

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_NUMBER = r"[0-9]*\.?[0-9]+"


def seconds(value: Any) -> Any:
    """'500ms', '5s', '10m' or '1h' as seconds; plain numbers are seconds already."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(rf"\s*({_NUMBER})\s*(ms|s|m|h)?\s*", value)
    if not match:
        raise ValueError(f"got {value!r}; a duration looks like 500ms, 5s, 10m or 1h.")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def seconds_with_unit(text: str) -> float:
    """'500ms', '5s', '10m' or '1h' as seconds; ValueError where the unit is missing, too."""
    if not text or text[-1] not in "smh":
        raise ValueError(f"got {text!r} as a time; write it with its unit, like 500ms, 5s, 10m or 1h.")
    return float(seconds(text))


def bits_per_second(text: str) -> float:
    """'500kbit', '10Mbit' or '1Gbit' as bits per second; ValueError for anything else, and for 0."""
    match = re.fullmatch(rf"({_NUMBER})(kbit|mbit|gbit)(?:/s)?", text, re.IGNORECASE)
    if not match or not float(match[1]):
        raise ValueError(f"got {text!r} as a bandwidth; write one above 0, like 500kbit, 10Mbit or 1Gbit.")
    return float(match[1]) * _BITS[match[2].lower()]


def percent(text: str) -> float:
    """'1%' as 0.01; ValueError outside 0 % to below 100 %."""
    match = re.fullmatch(rf"({_NUMBER})%", text)
    if not match or float(match[1]) >= 100:
        raise ValueError(f"got {text!r} as a share of lost packets; write one below 100%, like 1%.")
    return float(match[1]) / 100


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
