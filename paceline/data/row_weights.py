"""How much each example counts: weights in a separate text file, next to the examples."""

from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.errors import DataError
from paceline.core.values import Vector
from paceline.data.files import parsed
from paceline.data.out_of_core import Growing

WEIGHT = ".weight"
"""What the name of a file with weights has more than its examples', as in XGBoost and LightGBM."""
EXPECTED = "Expected one number a line, 0 or more, for each example in the order of the file."


def weights_beside(path: Path, examples: int) -> Vector | None:
    """Those in the file next to this one whose name has .weight at its end, for this many examples; None where there is no such
    file. DataError names the line that is no weight."""
    file = path.with_name(path.name + WEIGHT)
    if not file.is_file():
        return None
    found = Growing(np.float32)
    for block in parsed(file, _parse, EXPECTED):
        found.append(block)
    return checked_weights(found.array(), examples, str(file))


def said_of(path: Path, weights: Vector | None) -> tuple[str, ...]:
    """A line for people where there are such next to this file."""
    if weights is None:
        return ()
    return (f"{path.name}{WEIGHT}: its {len(weights):,} rows have weights from {weights.min():g} to {weights.max():g}",)


def checked_weights(weights: Any, examples: int, where: str = "") -> Vector:
    """The weights of this many examples, float32. DataError where they are not. `where`: the file that they are from."""
    given = f"{where}: " if where else ""
    if not isinstance(weights, np.ndarray) or weights.ndim != 1 or weights.dtype.kind not in "biuf":
        seen = f"{weights.dtype} {weights.shape}" if isinstance(weights, np.ndarray) else type(weights).__name__
        raise DataError(f"{given}The weights are {seen}; expected a numpy array with one number for each example.")
    if len(weights) != examples:
        raise DataError(
            f"{given}There are {len(weights):,} weights for {examples:,} examples; every example needs one."
        )
    found: Vector = np.ascontiguousarray(weights, np.float32)
    bad = ~(np.isfinite(found) & (found >= 0))
    if bad.any():
        row = int(bad.argmax())
        raise DataError(f"{given}The weight of example {row:,} is {weights[row]:g}; expected 0 or more, and finite.")
    if len(found) and not found.any():
        raise DataError(
            f"{given}All weights are 0, so no example counts. Give the examples that should count a weight above 0."
        )
    return found


def check_some_count(weights: Vector | None, whose: str, instead: str) -> None:
    """DataError where there are such rows, and none of them counts. `whose`: whose rows, for people; `instead`: what to do but
    to give other weights."""
    if weights is not None and len(weights) and not weights.any():
        raise DataError(
            f"All {len(weights):,} {whose} have weight 0, so none counts. Give some of them a weight above 0, or "
            f"{instead}."
        )


def _parse(block: bytes) -> Vector:
    """The numbers of whole lines; empty ones are passed over. ValueError where one is no weight."""
    with np.errstate(over="ignore"):
        found: Vector = np.array([float(line) for line in block.split(b"\n") if line.strip()], np.float32)
    if not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError("the weight is negative, NaN, infinite or too large for float32")
    return found
