"""The cells of a table's columns become features: numbers as they are, each category its own feature, and empty cells the
mean of their column."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.core.errors import DataError
from paceline.data.columns import Column
from paceline.data.csv_blocks import Piece
from paceline.data.dataset import Array
from paceline.data.out_of_core import Growing, ranges, release

MAX_CATEGORIES = 100
"""A column of more different texts holds names or sentences and no categories."""
DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?")
_WRITTEN = re.compile(r"[$€£]?\s*[+-]?\d[\d.,' ]*\s*[%$€£]?")
"""Numbers that people write otherwise: 1,234.5 or 12 % or $5."""
_WHOLE = "make numbers of it, or leave the column out with columns=[...]"
_TRUTH = {"true": 1.0, "false": 0.0}

Cells = npt.NDArray[np.floating[Any]]


class Feature:
    """One column while its table is read. It holds numbers, or texts that are categories, whichever is met first; the other
    one is an error then. Not thread-safe."""

    def __init__(
        self,
        name: str,
        known: Column | None = None,
        is_category: bool = False,
        dtype: type[np.floating[Any]] = np.float32,
    ) -> None:
        """`known`: the column of the training data; texts that it lacks are of no category then, and an empty cell of one
        without a mean is an error. `is_category`: numbers are names here, too. `dtype`: of the cells that are given."""
        self.name = name
        self.empty = 0
        """Cells that held nothing."""
        self.strange: Counter[str] = Counter()
        """Texts that are not in the training data, with their cells."""
        self._known = known
        self._forced = is_category
        self.dtype = dtype
        self._places: dict[str, int] = {}
        self._is_category: bool | None = True if is_category else None
        self._total = 0.0
        self._count = 0
        if known is not None:
            self._is_category = known.categories is not None
            self._places = {text: place for place, text in enumerate(known.categories or ())}

    @property
    def _has_no_mean(self) -> bool:
        return self._known is not None and self._known.categories is None and self._known.fill is None

    @property
    def is_text(self) -> bool:
        """Whether cells are names even where they look like numbers."""
        return self._forced or (self._known is not None and self._is_category is True)

    def read(self, piece: Piece) -> Cells:
        """The column's cells (N,): numbers, or the places of categories; NaN where one is empty. DataError says what is in
        which line."""
        import pyarrow as pa

        column = piece.table.column(self.name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        kind = column.type
        if pa.types.is_null(kind):
            return self._of_numbers(np.full(len(column), np.nan), piece)
        if pa.types.is_temporal(kind):
            first = next((row for row, cell in enumerate(column) if cell.is_valid), 0)
            raise self._error(piece, first, f"a date or time, {column[first]},", _WHOLE)
        is_number = any(
            test(kind) for test in (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        )
        if is_number and not self.is_text:
            return self._of_numbers(column.cast(pa.float64(), safe=False).to_numpy(), piece)
        if not (is_number or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise self._error(piece, 0, f"{column[0]!s:.40}, of Arrow's type {kind},", _WHOLE)
        return self._of_texts(column.cast(pa.string()), piece)

    def found(self, path: object) -> Column:
        """What the column is. DataError where all of it is empty."""
        if self._known is not None:
            return self._known
        if self._places:
            return Column(name=self.name, categories=tuple(sorted(self._places)))
        if not self._count:
            raise DataError(
                f"Column {self.name!r} of {path} has no value in any row; fill it, or leave it out with columns=[...]."
            )
        return Column(name=self.name, fill=float(np.float32(self._total / self._count)))

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """Where each category, in the order of its place, stands among the sorted ones."""
        return np.argsort(np.argsort(np.array(list(self._places), object)))

    def _of_texts(self, column: Any, piece: Piece) -> Cells:
        cells = column.combine_chunks().dictionary_encode()
        texts = [text.strip() for text in cells.dictionary.to_pylist()]
        rows = cells.indices.fill_null(len(texts)).to_numpy()
        numbers = [None if self.is_text else _number(text, piece.decimal) for text in texts]
        names = [text for text, number in zip(texts, numbers, strict=True) if text and number is None]
        if not names:
            return self._of_numbers(np.array([np.nan if one is None else one for one in [*numbers, None]])[rows], piece)
        row = int(np.argmax(rows == texts.index(names[0])))
        if self._is_category is False or len(names) < sum(map(bool, texts)):
            raise self._mixed(piece, row, repr(names[0]), "not a number")
        if self._known is None and not self._forced:
            self._check_names(names, row, piece)
        self._is_category = True
        codes: Cells = np.array([*(self._place(text) for text in texts), np.nan], self.dtype)
        self._count_lacking(rows, texts)
        if self._known is None and len(self._places) > MAX_CATEGORIES:
            raise self._error(
                piece,
                row,
                f"the text {names[0]!r:.40}",
                f"it has more than {MAX_CATEGORIES} different texts, too many for categories; encode it, or leave it out "
                "with columns=[...]",
            )
        found: Cells = codes[rows]
        return found

    def _place(self, text: str) -> float:
        """The category's number; NaN for no text, and for one that is not in the training data."""
        if not text or (self._known is not None and text not in self._places):
            return np.nan
        return self._places.setdefault(text, len(self._places))

    def _count_lacking(self, rows: npt.NDArray[Any], texts: Sequence[str]) -> None:
        """Takes down empty cells and strange texts; `rows`: the place of each cell's text, the last one for none."""
        for text, count in zip((*texts, ""), np.bincount(rows, minlength=len(texts) + 1).tolist(), strict=True):
            if not text:
                self.empty += count
            elif self._known is not None and text not in self._places and count:
                self.strange[text] += count

    def _of_numbers(self, found: Array, piece: Piece) -> Cells:
        if not np.isnan(found).all():
            if self._is_category:
                row = int(np.argmin(np.isnan(found)))
                raise self._mixed(piece, row, f"{found[row]:g}", "a number")
            self._is_category = False
        with np.errstate(over="ignore"):
            numbers = found.astype(self.dtype)
        if np.isinf(numbers).any():
            row = int(np.argmax(np.isinf(numbers)))
            raise DataError(
                f"Column {self.name!r} of {piece.file} holds {found[row]} in {piece.where(row)}, which is not a "
                f"finite {np.dtype(self.dtype).name}; correct or remove it."
            )
        there = ~np.isnan(numbers)
        if self._has_no_mean and not there.all():
            raise DataError(
                f"Column {self.name!r} of {piece.file} is empty in {piece.where(int(np.argmin(there)))}; the "
                "model was trained without column names, so it knows no mean to use instead: fill it or remove "
                "the example."
            )
        self.empty += int((~there).sum())
        self._total += float(found[there].sum())
        self._count += int(there.sum())
        return numbers

    def _check_names(self, names: Sequence[str], row: int, piece: Piece) -> None:
        """DataError where texts are dates, or numbers that are written for people."""
        for pattern, what, advice in (
            (DATE, "a date,", _WHOLE),
            (_WRITTEN, "a number as people write it,", "write it like 1234.5"),
        ):
            if all(map(pattern.fullmatch, names)):
                raise self._error(piece, row, f"{what} {names[0]!r},", advice)

    def _mixed(self, piece: Piece, row: int, seen: str, what: str) -> DataError:
        held = "numbers" if what == "not a number" else "texts"
        others = f"{'the ' if held == 'numbers' else ''}others are {held}"
        advice = ", leave the column out with columns=[...], or name it in categories=[...] if all of it are names"
        if self._known is not None:
            others, advice = f"the column held {held} in training", ""
        return DataError(
            f"Column {self.name!r} of {piece.file} holds {seen:.40} in {piece.where(row)}, which is {what}, but "
            f"{others}; correct it{advice}."
        )

    def _error(self, piece: Piece, row: int, seen: str, advice: str) -> DataError:
        return DataError(
            f"Column {self.name!r} of {piece.file} holds {seen} in {piece.where(row)}, which is not a number; {advice}."
        )


def spread(cells: Cells, features: Sequence[Feature], columns: Sequence[Column]) -> Array:
    """The features (N, all of them): numbers, with the means in empty cells, and 1 for a row's category, otherwise 0. `cells`:
    what the columns' `read` gave, (N, columns); returned as they are where they need no change."""
    if not any(column.categories for column in columns) and not any(
        np.isnan(cells[start:stop]).any() for start, stop in ranges(len(cells), cells.shape[1] * 4)
    ):
        return cells
    width = sum(len(column.names) for column in columns)
    found = Growing(cells.dtype, (width,))
    for start, stop in ranges(len(cells), 4 * (width + cells.shape[1])):
        rows, first = np.zeros((stop - start, width), cells.dtype), 0
        for feature, column, own in zip(features, columns, cells[start:stop].T, strict=True):
            there = np.flatnonzero(~np.isnan(own))
            if column.categories is None:
                rows[:, first] = column.fill or 0.0
                rows[there, first] = own[there]
            else:
                rows[there, first + feature.order[own[there].astype(np.int64)]] = 1
            first += len(column.names)
        release(cells)
        found.append(rows)
    return found.array()


def _number(text: str, decimal: str) -> float | None:
    """What the text says where it is a number, or true or false."""
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    if "_" in text or (decimal != "." and "." in text):
        return None
    try:
        return float(text.replace(decimal, "."))
    except ValueError:
        return None
