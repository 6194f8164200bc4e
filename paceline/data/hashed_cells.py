"""The cells of a table's columns become sparse rows: texts and dates hashed, numbers from 0 to 1."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.core.errors import DataError
from paceline.core.settings.table import TableConfig
from paceline.data.cells import DATE, Cells, Feature
from paceline.data.columns import Column, Columns
from paceline.data.csv_blocks import Piece
from paceline.data.dataset import Array, Rows
from paceline.data.hashing import DATE_PARTS, MISSING, hashed_rows, parts_of_dates, place, places
from paceline.data.out_of_core import Growing, csr_rows, ranges, release


class HashedFeature(Feature):
    """One column while its table is read: numbers, texts, of which each cell gives its place, or dates, as seconds since 1970.
    Whichever is met first; another one is an error then. Not thread-safe."""

    def __init__(self, name: str, how: TableConfig, known: Column | None = None) -> None:
        """`known`: the column of the training data."""
        self._how = how
        self._form = how.date_form if known is None else known.form
        self._is_date = name in how.dates if known is None else known.hashed == "date"
        self._of_text: dict[str, int] = {}
        self._ends = (math.inf, -math.inf)
        super().__init__(name, known, name in (how.categories or ()), np.float64)
        if known is not None:
            self._is_category = known.hashed == "text"

    def read(self, piece: Piece) -> Cells:
        import pyarrow as pa

        column = piece.table.column(self.name)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if self._is_date or (self._is_new_kind(kind) and not self.is_text):
            return self._of_dates(column.cast(kind).combine_chunks(), piece)
        return super().read(piece)

    def found(self, path: object) -> Column:
        if self._known is not None:
            return self._known
        if self._is_date:
            return Column(name=self.name, hashed="date", form=self._form)
        if self._is_category:
            return Column(name=self.name, hashed="text")
        return super().found(path).model_copy(update={"ends": self._ends})

    def _is_new_kind(self, kind: Any) -> bool:
        """Whether these are dates, and the column may hold some."""
        import pyarrow as pa

        is_date = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        return is_date and self._known is None and self._is_category is None

    def _of_dates(self, column: Any, piece: Piece) -> Cells:
        import pyarrow as pa
        import pyarrow.compute as pc

        self._is_date = True
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            texts = pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), None, pc.utf8_trim_whitespace(column))
            column = self._parsed(texts.cast(pa.string()), piece)
        elif not (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type) or pa.types.is_null(column.type)):
            row = int(np.argmax(column.is_valid().to_numpy(zero_copy_only=False)))
            raise self._no_date(piece, row, column[row].as_py())
        seconds = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
        self.empty += seconds.null_count
        return np.asarray(seconds.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))

    def _parsed(self, texts: Any, piece: Piece) -> Any:
        """The dates. DataError names the first that is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._form is not None:
            found = pc.strptime(texts, format=self._form, unit="s", error_is_null=True)
            wrong = np.flatnonzero(pc.and_(pc.is_valid(texts), pc.is_null(found)).to_numpy(zero_copy_only=False))
            if len(wrong):
                raise self._no_date(piece, int(wrong[0]), texts[int(wrong[0])].as_py())
            return found
        try:
            return texts.cast(pa.timestamp("s"))
        except pa.ArrowInvalid:
            row = next(row for row, text in enumerate(texts) if text.is_valid and not _is_date(text))
            raise self._no_date(piece, row, texts[row].as_py()) from None

    def _no_date(self, piece: Piece, row: int, seen: object) -> DataError:
        form = self._form or "2026-11-24 or 2026-11-24T08:30:00 (date_form says another form)"
        return DataError(
            f"Column {self.name!r} of {piece.file} holds {seen!r:.40} in {piece.where(row)}, which is not a date; expected one "
            f"like {form}, or an empty cell."
        )

    def _place(self, text: str) -> float:
        if not text:
            return math.nan
        if text not in self._of_text:
            self._of_text[text] = place(self.name, text, self._how.bits)
        return self._of_text[text]

    def _count_lacking(self, rows: npt.NDArray[Any], texts: Sequence[str]) -> None:
        counts = np.bincount(rows, minlength=len(texts) + 1).tolist()
        self.empty += sum(count for text, count in zip((*texts, ""), counts, strict=True) if not text)

    def _of_numbers(self, found: Array, piece: Piece) -> Cells:
        numbers = super()._of_numbers(found, piece)
        there = numbers[~np.isnan(numbers)]
        low, high = self._ends
        self._ends = float(there.min(initial=low)), float(there.max(initial=high))
        return numbers

    def _check_names(self, names: Sequence[str], row: int, piece: Piece) -> None:
        if self._how.categories is not None:
            advice = "name the column in categories=[...] if all of it are names, or leave it out with columns=[...]"
            raise self._error(piece, row, repr(names[0]), advice)
        if 2 * sum(map(bool, map(DATE.fullmatch, names))) > len(names):
            advice = (
                "if all of it are dates, name the column in dates=[...] and say how they are written with date_form"
            )
            raise self._error(piece, row, f"a date, {names[0]!r},", f"{advice}; if they are names, in categories=[...]")
        super()._check_names(names, row, piece)


def features_of(names: Sequence[str], how: TableConfig) -> list[Feature]:
    """The columns of these names, of a table to learn from."""
    return [HashedFeature(name, how) for name in names]


def known_features(columns: Columns) -> list[Feature]:
    """The columns of a table that is read as the training data were."""
    how = TableConfig(bits=columns.bits or 1)
    return [HashedFeature(column.name, how, column) for column in columns.features]


def spread_hashed(cells: Cells, columns: Columns) -> Any:
    """The sparse rows (N, columns.width), float32. `cells`: what the columns' `read` gave (N, columns)."""
    bits = columns.bits or 1
    values, indices, lengths = Growing(np.float32), Growing(np.int32), Growing(np.int64)
    for start, stop in ranges(len(cells), 16 * (len(DATE_PARTS) + 1) * cells.shape[1]):
        own = cells[start:stop].T
        each = [
            found for column, held in zip(columns.features, own, strict=True) for found in _places(column, held, bits)
        ]
        numbers = [
            _scaled(column, held) for column, held in zip(columns.features, own, strict=True) if not column.hashed
        ]
        rows = hashed_rows(
            each or [np.empty((stop - start, 0), np.int64)], bits, np.column_stack(numbers) if numbers else None
        )
        values.append(rows.data.astype(np.float32))
        indices.append(rows.indices.astype(np.int32))
        lengths.append(np.diff(rows.indptr))
        release(cells)
    return csr_rows(values.array(), indices.array(), lengths.array(), columns.width)


def _places(column: Column, cells: Cells, bits: int) -> Iterator[Rows]:
    there = ~np.isnan(cells)
    if column.hashed == "text":
        yield np.where(there, cells, place(column.name, MISSING, bits)).astype(np.int64)
    elif column.hashed == "date":
        import pyarrow as pa

        dates = pa.array(np.where(there, cells, 0).astype("datetime64[s]"), mask=~there)
        for name, texts in parts_of_dates(column.name, dates).items():
            yield places(name, texts, bits)


def _scaled(column: Column, cells: Cells) -> Cells:
    low, high = column.ends or (0.0, 1.0)
    filled = np.where(np.isnan(cells), column.fill or 0.0, cells)
    return np.clip((filled - low) / ((high - low) or 1.0), 0.0, 1.0)


def _is_date(text: Any) -> bool:
    import pyarrow as pa

    try:
        text.cast(pa.timestamp("s"))
    except pa.ArrowInvalid:
        return False
    return True
