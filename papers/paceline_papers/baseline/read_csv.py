"""Reads the CSV of a real table: texts, numbers and dates, each with its cells that are empty."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.errors import DataError
from paceline.data.csv_blocks import Piece, csv_pieces
from paceline.data.files import at, opened, reading
from paceline_papers.baseline.table import Table


def read_csv(table: Table, label: str, path: str) -> dict[str, Any]:
    """Arrow arrays by column, without rows that have no label. DataError names file and line: a column that is missing, a
    line that is not UTF-8, a number or a date that is none; the file alone where no row has a label."""
    import pyarrow as pa
    import pyarrow.compute as pc

    file = at(path)
    _check_utf8(file)
    wanted = list(dict.fromkeys([label, *table.texts, *table.numbers, *table.dates]))
    pieces: dict[str, list[Any]] = {name: [] for name in wanted}
    for piece in csv_pieces(file):
        _check_columns(piece, wanted, label)
        has_label = pc.is_valid(piece.table[label])
        for name in wanted:
            column = piece.table[name].combine_chunks()
            if name != label and name in table.numbers:
                column = _numbers(piece, name, column)
            elif name != label and name in table.dates:
                column = _dates(piece, name, column, table.date_form)
            pieces[name].append(column.filter(has_label))
    if not sum(map(len, pieces[label])):
        raise DataError(f"{file}: no row has a {label}, the label. Fill the column, or give another --label.")
    return {name: pa.chunked_array(found).combine_chunks() for name, found in pieces.items()}


def _check_utf8(file: Path) -> None:
    with reading(file), opened(file) as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{file}, line {number:,}: byte 0x{line[error.start]:02x} is not UTF-8. Save the file as UTF-8."
                ) from error


def _check_columns(piece: Piece, wanted: Sequence[str], label: str) -> None:
    known = piece.table.column_names
    if label not in known:
        raise DataError(
            f"{piece.file}, line 1: there is no column {label!r}, the label. It has {', '.join(known)}. Give --label."
        )
    if missing := [name for name in wanted if name not in known]:
        raise DataError(f"{piece.file}, line 1: there is no column {missing[0]!r}. It has {', '.join(known)}.")


def _numbers(piece: Piece, name: str, texts: Any) -> Any:
    """The column as float64."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.cast(texts, pa.float64())
    except pa.ArrowInvalid as error:
        row = next(row for row, text in enumerate(texts.to_pylist()) if text is not None and not _is_number(text))
        raise _wrong(piece, name, row, texts, "a number") from error


def _is_number(text: str) -> bool:
    import pyarrow as pa

    try:
        pa.scalar(text).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _dates(piece: Piece, name: str, texts: Any, form: str) -> Any:
    """The column as dates with their seconds."""
    import pyarrow.compute as pc

    found = pc.strptime(texts, format=form, unit="s", error_is_null=True)
    wrong = np.flatnonzero(pc.and_(pc.is_valid(texts), pc.is_null(found)).to_numpy(zero_copy_only=False))
    if len(wrong):
        raise _wrong(piece, name, int(wrong[0]), texts, f"a date like {form}")
    return found


def _wrong(piece: Piece, name: str, row: int, texts: Any, expected: str) -> DataError:
    return DataError(
        f"{piece.file}, {piece.where(row)}: {name} is {texts[row].as_py()!r}; expected {expected}, or an empty cell."
    )
