"""The cells of a table's columns become features: numbers as they are, each category its own feature, and empty cells the
mean of their column; or, as sparse rows, texts and dates hashed, and numbers from 0 to 1."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.core.errors import DataError
from paceline.core.large_numbers import LARGE
from paceline.core.settings.table import TableConfig
from paceline.data.columns import Column, Columns
from paceline.data.csv_blocks import Piece, as_number
from paceline.data.dataset import Array, Rows
from paceline.data.hashing import DATE_PARTS, MISSING, feature_index, hashed_rows, parts_of_dates, places
from paceline.data.out_of_core import Growing, GrowingRows, ranges, release

MAX_CATEGORIES = 100
"""A column of more different texts holds names or sentences and no categories."""
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?")
_TIME = re.compile(r"\d{1,2}:\d\d(:\d\d)?")
_WRITTEN = re.compile(r"[$€£]?\s*[+-]?\d[\d.,' ]*\s*[%$€£]?")
"""Numbers that people write otherwise: 1,234.5 or 12 % or $5."""
EXACT = 1 << 24
"""float32 has all whole numbers up to this one."""
_WHOLE = "make numbers of it, or leave the column out with columns=[...]"

Cells = npt.NDArray[np.floating[Any]]


class Feature:
    """One column while its table is read. It holds numbers, texts or dates, whichever is met first; another one is an error
    then. Not thread-safe."""

    def __init__(
        self,
        name: str,
        known: Column | None = None,
        is_text: bool = False,
        dtype: type[np.floating[Any]] = np.float32,
        how: TableConfig | None = None,
    ) -> None:
        """`known`: the column of the training data; texts that it lacks are of no category then, and an empty cell of one
        without a mean is an error. `is_text`: numbers are names here, too. `dtype`: of the cells that are given. `how`: texts
        and dates are hashed, by these settings."""
        self.name = name
        self.empty = 0
        """Cells that held nothing."""
        self.merged = 0
        """Numbers that are the same as another one in the type of the cells, but not in the file."""
        self.strange: Counter[str] = Counter()
        """Texts that are not in the training data, with their cells."""
        self.dtype = dtype if how is None else np.float64
        self._known = known
        self._how = how
        self._kind = "text" if is_text else "date" if how is not None and name in how.dates else None
        self._date_form = None if how is None else how.date_form
        self._codes: dict[str, int] = {}
        """Each text's number: in order of occurrence, or its hash."""
        if known is not None:
            self._kind, self._date_form = known.kind, known.form
            self._codes = {text: code for code, text in enumerate(known.categories or ())}
        self._takes_all = self._kind == "text"
        """Whether cells are names even where they look like numbers."""
        self._total, self._count = 0.0, 0
        self._ends = (math.inf, -math.inf)

    def read(self, piece: Piece) -> Cells:
        """The column's cells (N,): numbers, the codes of texts, or seconds since 1970; NaN where one is empty. DataError says
        what is in which line."""
        import pyarrow as pa

        column, of = plain(piece, self.name), pa.types
        if of.is_string(column.type):
            return self._of_texts(column, piece)
        is_date = of.is_date(column.type) or of.is_timestamp(column.type)
        if is_date and self._how is not None and self._kind in (None, "date"):
            return self._of_dates(column)
        if of.is_temporal(column.type) or (self._kind == "date" and not of.is_null(column.type)):
            row = int(np.argmax(column.is_valid().to_numpy(zero_copy_only=False)))
            raise self._no_date(piece, row, column) if self._kind == "date" else self._dated(piece, row, column[row])
        if self._takes_all:
            return self._of_texts(column.cast(pa.string()), piece)
        return self._of_numbers(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), piece, column)

    def column(self, path: object) -> Column:
        """What the column is. DataError where all of it is empty."""
        if self._known is not None:
            return self._known
        if self._kind == "date":
            return Column(name=self.name, hashed="date", form=self._date_form)
        if self._kind == "text" and self._how is not None:
            return Column(name=self.name, hashed="text")
        if self._codes:
            return Column(name=self.name, categories=tuple(sorted(self._codes)))
        if not self._count:
            raise DataError(
                f"Column {self.name!r} of {path} has no value in any row; fill it, or leave it out with columns=[...]."
            )
        mean = float(np.float32(self._total / self._count))
        return Column(name=self.name, fill=mean, ends=None if self._how is None else self._ends)

    @property
    def large(self) -> str:
        """From where to where its numbers go, in words, if these are far beyond what a model of torch can learn from; '' of
        others, and of numbers that come from 0 to 1."""
        low, high = self._ends
        return f"{low:g} to {high:g}" if self._how is None and max(high, -low) > LARGE else ""

    @property
    def order(self) -> Rows:
        """Where each category, in the order of its code, stands among the sorted ones."""
        return np.argsort(np.argsort(np.array(list(self._codes), object)))

    def _of_texts(self, column: Any, piece: Piece) -> Cells:
        import pyarrow.compute as pc

        if self._kind in (None, "number") and (numbers := as_numbers(column, piece.decimal)) is not None:
            return self._of_numbers(numbers, piece, column)
        column = pc.utf8_trim_whitespace(column)
        if self._how is not None and self._kind in (None, "date"):
            dates = _as_dates(column, self._date_form)
            if dates is not None:
                return self._of_dates(dates)
            if self._kind == "date":
                row = first_without(lambda cells: _as_dates(cells, self._date_form), column)
                raise self._no_date(piece, row, column)
        return self._of_names(*coded(column), piece)

    def _of_names(self, texts: Sequence[str], rows: Rows, piece: Piece) -> Cells:
        names = [text for text in texts if text and (self._takes_all or as_number(text, piece.decimal) is None)]
        first = names[0] if names else next(filter(None, texts), None)
        row = 0 if first is None else int(np.argmax(rows == texts.index(first)))
        if first is not None and not names:
            raise self._mixed(piece, row, first, "a number", "texts")
        if self._kind == "number" or len(names) < sum(map(bool, texts)):
            raise self._mixed(piece, row, repr(first), "not a number", "numbers")
        if names and self._known is None and not self._takes_all:
            self._check_names(names, row, piece)
            self._kind = "text"
        codes = np.array([*map(self._code, texts), np.nan], self.dtype)
        counts = np.bincount(rows, minlength=len(codes)).tolist()
        for text, code, count in zip((*texts, ""), codes, counts, strict=True):
            if not text:
                self.empty += count
            elif math.isnan(code):
                self.strange[text] += count
        if self._known is None and self._how is None and len(self._codes) > MAX_CATEGORIES:
            many = f"it has more than {MAX_CATEGORIES} different texts, too many for categories"
            advice = f"which is not a number; {many}; encode it, or leave it out with columns=[...]"
            raise bad_cell(piece, self.name, row, f"the text {first!r:.40}", advice)
        return codes[rows]

    def _code(self, text: str) -> float:
        """Of the text; NaN for no text, and for one that is not in the training data."""
        if not text:
            return math.nan
        if text not in self._codes:
            if self._how is None and self._known is not None:
                return math.nan
            self._codes[text] = (
                len(self._codes) if self._how is None else feature_index(self.name, text, self._how.bits)
            )
        return self._codes[text]

    def _of_numbers(self, found: Array, piece: Piece, column: Any) -> Cells:
        """`column`: the Arrow array that these are the numbers of."""
        there = ~np.isnan(found)
        values = found if there.all() else found[there]
        if len(values) and self._kind == "text":
            raise self._mixed(piece, int(np.argmax(there)), f"{values[0]:g}", "a number", "texts")
        if len(values):
            self._kind = "number"
            self._ends = min(self._ends[0], float(values.min())), max(self._ends[1], float(values.max()))
        numbers = finite(found, self.dtype, piece, self.name)
        if self._known is not None and self._known.fill is None and len(values) < len(found):
            raise DataError(
                f"Column {self.name!r} of {piece.file} is empty in {piece.where(int(np.argmin(there)))}; the "
                "model was trained without column names, so it knows no mean to use instead: fill it or remove "
                "the example."
            )
        if max(self._ends[1], -self._ends[0]) > EXACT:
            whole = _whole(column)
            different = len(np.unique(values)) if whole is None else len(whole.drop_null().unique())
            self.merged += different - len(np.unique(values.astype(self.dtype)))
        self.empty += len(found) - len(values)
        self._total += float(values.sum())
        self._count += len(values)
        return numbers

    def _of_dates(self, dates: Any) -> Cells:
        import pyarrow as pa

        self._kind = "date"
        seconds = dates.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
        self.empty += seconds.null_count
        return np.asarray(seconds.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))

    def _check_names(self, names: Sequence[str], row: int, piece: Piece) -> None:
        """DataError where texts are dates, or numbers that are written for people."""
        if self._how is not None and self._how.categories is not None:
            advice = "name the column in categories=[...] if all of it are names, or leave it out with columns=[...]"
            raise bad_cell(piece, self.name, row, repr(names[0]), f"which is not a number; {advice}")
        dates = sum(bool(_DATE.fullmatch(name) or (piece.form and _TIME.fullmatch(name))) for name in names)
        if dates == len(names) or (self._how is not None and 2 * dates > len(names)):
            raise self._dated(piece, row, names[0])
        if all(map(_WRITTEN.fullmatch, names)):
            seen = f"a number as people write it, {names[0]!r},"
            raise bad_cell(piece, self.name, row, seen, "which is not a number; write it like 1234.5")

    def _dated(self, piece: Piece, row: int, seen: object) -> DataError:
        advice = _WHOLE
        if self._how is not None:
            advice = (
                "if all of it are dates, name the column in dates=[...] and say how they are written with date_form"
            )
            advice += "; if they are names, in categories=[...]"
        return bad_cell(piece, self.name, row, f"a date or time, {str(seen)!r},", f"which is not a number; {advice}")

    def _no_date(self, piece: Piece, row: int, column: Any) -> DataError:
        form = self._date_form or "2026-11-24 or 2026-11-24T08:30:00 (date_form says another form)"
        why = f"which is not a date; expected one like {form}, or an empty cell"
        return bad_cell(piece, self.name, row, f"{str(column[row])!r:.40}", why)

    def _mixed(self, piece: Piece, row: int, seen: str, what: str, held: str) -> DataError:
        others = f"{'the ' if held == 'numbers' else ''}others are {held}; correct it, leave the column out with "
        others += "columns=[...], or name it in categories=[...] if all of it are names"
        if self._known is not None:
            others = f"the column held {held} in training; correct it"
        return bad_cell(piece, self.name, row, f"{seen:.40}", f"which is {what}, but {others}")


def bad_cell(piece: Piece, name: str, row: int, seen: str, why: str) -> DataError:
    """Says what the cell holds, where it stands, and what to do."""
    return DataError(f"Column {name!r} of {piece.file} holds {seen} in {piece.where(row)}, {why}.")


def finite(found: Array, dtype: type[np.floating[Any]], piece: Piece, name: str) -> Cells:
    """The numbers as this type. DataError names the first that is infinite there."""
    with np.errstate(over="ignore"):
        numbers: Cells = found.astype(dtype)
    if np.isinf(numbers).any():
        row = int(np.argmax(np.isinf(numbers)))
        why = f"which is not a finite {np.dtype(dtype).name}; correct or remove it"
        raise bad_cell(piece, name, row, str(found[row]), why)
    return numbers


def plain(piece: Piece, name: str) -> Any:
    """The column as one Arrow array of texts, numbers, truth, dates or times. DataError where it holds anything else."""
    import pyarrow as pa

    column = piece.table.column(name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    of = pa.types
    kind = pa.string() if of.is_large_string(kind) or of.is_string_view(kind) else kind
    tests = (of.is_string, of.is_boolean, of.is_integer, of.is_floating, of.is_decimal, of.is_temporal, of.is_null)
    if not any(test(kind) for test in tests):
        raise DataError(
            f"Column {name!r} of {piece.file} holds {column[0]!s:.40} in {piece.where(0)}, of Arrow's type {kind}; expected "
            "numbers or texts."
        )
    return column.cast(kind).combine_chunks()


def coded(texts: Any) -> tuple[list[str], Rows]:
    """The different texts of an Arrow array, and each cell's place among them; where it is empty, the one behind the last."""
    found = texts.dictionary_encode()
    return found.dictionary.to_pylist(), found.indices.fill_null(len(found.dictionary)).to_numpy()


def as_numbers(texts: Any, decimal: str) -> Cells | None:
    """The numbers that all cells of an Arrow array of texts say, NaN where one is empty; None where one says none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = texts
    if decimal != ".":
        plain = pc.replace_substring(pc.replace_substring(texts, ".", "_"), decimal, ".")
    for trim in (lambda cells: cells, pc.utf8_trim_whitespace):
        try:
            return np.asarray(trim(plain).cast(pa.float64()).to_numpy(zero_copy_only=False))
        except pa.ArrowInvalid:
            continue
    names, rows = coded(texts)
    numbers = [as_number(name, decimal) if name.strip() else math.nan for name in names]
    return None if None in numbers else np.array([*numbers, math.nan], np.float64)[rows]


def _whole(column: Any) -> Any:
    """An Arrow array as whole numbers of 64 bits, of which float64 has not all; None where it holds others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        return None
    if pa.types.is_string(column.type):
        column = pc.utf8_trim_whitespace(column)
        column = column.filter(pc.not_equal(column, ""))
    for kind in (pa.int64(), pa.uint64()):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            continue
    return None


def first_without(parse: Callable[[Any], Any], column: Any) -> int:
    """The first row of an Arrow array that `parse` makes nothing of."""
    return next(row for row in range(len(column)) if parse(column[row : row + 1]) is None)


def _as_dates(texts: Any, form: str | None) -> Any:
    """The dates that all cells of an Arrow array of texts say, in this form or in ISO 8601; None where one says none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.if_else(pc.equal(texts, ""), None, texts)
    for kind in (pa.timestamp(unit, zone) for unit in ("s", "ns") for zone in (None, "UTC")):
        try:
            return texts.cast(kind) if form is None else pc.strptime(texts, form, "s")
        except pa.ArrowInvalid:
            continue
    return None


def rows_of(cells: Cells, features: Sequence[Feature], columns: Columns) -> Any:
    """The features (N, columns.width): numbers, with the means in empty cells, and 1 for a row's category, otherwise 0; sparse
    where texts are hashed. `cells`: what the columns' `read` gave (N, columns); returned as they are where they need no
    change."""
    if columns.bits is not None:
        return _hashed(cells, columns, columns.bits)
    pieces = list(ranges(len(cells), 4 * (columns.width + cells.shape[1])))
    has_texts = any(column.categories for column in columns.features)
    if not has_texts and not any(np.isnan(cells[start:stop]).any() for start, stop in pieces):
        return cells
    found = Growing(cells.dtype, (columns.width,))
    for start, stop in pieces:
        each = zip(features, columns.features, cells[start:stop].T, strict=True)
        found.append(np.column_stack([_spread(feature, column, own) for feature, column, own in each]))
        release(cells)
    return found.array()


def _spread(feature: Feature, column: Column, cells: Cells) -> Cells:
    is_empty = np.isnan(cells)
    if column.categories is None:
        return np.where(is_empty, cells.dtype.type(column.fill or 0), cells)
    rows, there = np.zeros((len(cells), len(column.categories)), cells.dtype), np.flatnonzero(~is_empty)
    rows[there, feature.order[cells[there].astype(np.int64)]] = 1
    return rows


def _hashed(cells: Cells, columns: Columns, bits: int) -> Any:
    from scipy.sparse import csr_array

    found = GrowingRows(csr_array((0, columns.width), dtype=np.float32))
    for start, stop in ranges(len(cells), 16 * (len(DATE_PARTS) + 1) * cells.shape[1]):
        each: list[Array] = [np.empty((stop - start, 0), np.int64)]
        numbers: list[Array] = [np.empty((stop - start, 0))]
        for column, own in zip(columns.features, cells[start:stop].T, strict=True):
            if column.hashed is None:
                numbers.append(_scaled(column, own)[:, None])
            else:
                each += _places(column, own, bits)
        found.append(hashed_rows(each, bits, np.hstack(numbers)).astype(np.float32))
        release(cells)
    return found.array()


def _places(column: Column, cells: Cells, bits: int) -> Iterator[Rows]:
    is_empty = np.isnan(cells)
    if column.hashed == "text":
        yield np.where(is_empty, feature_index(column.name, MISSING, bits), cells).astype(np.int64)
        return
    import pyarrow as pa

    dates = pa.array(np.where(is_empty, 0, cells).astype("datetime64[s]"), mask=is_empty)
    for name, texts in parts_of_dates(column.name, dates).items():
        yield places(name, texts, bits)


def _scaled(column: Column, cells: Cells) -> Cells:
    low, high = column.ends or (0.0, 1.0)
    filled = np.where(np.isnan(cells), column.fill or 0.0, cells)
    return np.clip((filled - low) / ((high - low) or 1.0), 0.0, 1.0)
