"""Emulated slow workers as the config writes them: `slow: {2: 10x}`, or the name of a cluster of the papers."""

import re
from collections.abc import Mapping
from typing import Any

CLUSTERS: dict[str, Mapping[str, str]] = {
    "ho": {},
    "he0": {"last": "2x"},
    "he1": {"last": "10x"},
    "he2": {"last": "100x"},
    "random": {"all": "10x@5%"},
}
"""[SHAT 4.3]: HO is homogeneous, in HE0 to HE2 one worker is slow; 'random' is ours. 'last' is the highest place."""


def expand(value: Any, workers: int) -> Any:
    """The entries of a cluster given by name, in any case; other values unchanged."""
    if isinstance(value, Mapping):
        return {str(who): how for who, how in value.items()}  # YAML reads the 2 of {2: 10x} as a number
    if not isinstance(value, str):
        return value
    if value.lower() not in CLUSTERS:
        raise ValueError(
            f"got {value!r}; expected one of {', '.join(CLUSTERS)}, or who is how slow, like {{'2': '10x'}}."
        )
    return {str(workers - 1) if who == "last" else who: how for who, how in CLUSTERS[value.lower()].items()}


def slowness(who: str, how: str) -> tuple[float, float]:
    """(factor, probability of a step being slow) of one `slow` entry; ValueError if it can't be parsed."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)x(?:@([0-9]*\.?[0-9]+)%)?", how)
    if not (who == "all" or who.isdecimal()) or not match or float(match[1]) < 1 or float(match[2] or 0) > 100:
        raise ValueError(
            f"can't read {who!r}: {how!r}; write a worker's number or 'all', and 10x or 10x@5% (factor 1 or more)."
        )
    return float(match[1]), float(match[2] or 100) / 100
