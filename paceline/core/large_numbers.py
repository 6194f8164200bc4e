"""Words on columns of numbers that no network learns from."""

from collections.abc import Sequence

LARGE = 10_000
"""A model of torch learns badly from numbers beyond this one, or diverges."""
_SHOWN = 5
"""Columns, or texts, that are named."""


def large_numbers(columns: Sequence[str], cure: str) -> str:
    """Returns a line for people on these columns."""
    return f"large numbers: {some(columns)}; a network learns from about -1 to 1: {cure}"


def scaled(columns: str) -> str:
    """Returns what to try against them; `columns`: empty where nobody knows of any."""
    return f"inputs of about -1 to 1{f': scale or leave out {columns}' if columns else ', if some are large'}"


def some(parts: Sequence[str], most: int = _SHOWN) -> str:
    """Returns the first ones with commas, and how many more there are."""
    return ", ".join(parts[:most]) + (f" and {len(parts) - most:,} more" if len(parts) > most else "")
