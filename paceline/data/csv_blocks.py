"""Reads a CSV block by block, in whichever form it was written: what separates its cells, how its bytes mean letters and how
its fractions are written is guessed from its content."""

import codecs
import csv
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from paceline.core.errors import DataError
from paceline.data.files import ending, opened, parsed, reading, whole_lines
from paceline.data.out_of_core import PIECE_BYTES

EXPECTED = "Expected a table: a CSV with a line of column names, or Parquet; the file may be damaged."
DELIMITERS = ",;\t|"
MISSING = ("?",)
"""What stands for an empty cell besides what Arrow knows: an empty one, NA, N/A, NaN, null and the like."""
SAMPLE = 1 << 18
"""So much of a file is looked at to guess its form (bytes)."""
LINES = 100
_LINE_END = re.compile(r"\r\n|\r|\n")  # str.splitlines() also cuts at byte 0x85, a part of many letters in UTF-8
_COMMA = re.compile(r"\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*")
_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")
_SEVERAL = re.compile(r"[\d.eE+-]+([;\t|][\d.,eE+-]*)+|[\d.eE+-]+(,[\d.eE+-]*){2,}")
"""Numbers with separators between them; one comma may be that of a fraction."""
_QUOTED = re.compile(rb'"(?<![^\r\n,;\t|]")[^"]*(?:""[^"]*)*(?:"|\Z)')
"""A cell in quotes; quotes within other cells mean themselves."""
_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
Text = tuple[bytes, str | None]
"""Bytes in UTF-8, and the encoding that a file is known to have; None: ASCII so far."""


class Piece(NamedTuple):
    """Some rows of a table."""

    file: Path
    table: Any
    """A pyarrow.Table."""
    where: Callable[[int], str]
    """Where one of its rows stands, for people: 'line 72'."""
    decimal: str = "."
    form: str = ""
    """How the file is written, as far as it has been read, for people."""


class Form(NamedTuple):
    """How a CSV is written."""

    delimiter: str = ","
    decimal: str = "."
    is_utf16: bool = False
    unnamed: int = 0
    """Columns of a file whose first line holds numbers and no names; 0 where it has names."""

    def told(self, encoding: str | None) -> str:
        """For people."""
        fractions = ", fractions with commas" if self.decimal == "," else ""
        letters = "UTF-16" if self.is_utf16 else _ENCODINGS[encoding]
        names = ", no line of names" if self.unnamed else ""
        return f"cells separated by {_SEPARATORS[self.delimiter]}{fractions}{names}, {letters}"


PLAIN = Form()
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_ENCODINGS = {None: "UTF-8", "utf-8": "UTF-8", "cp1252": "Windows-1252"}


def csv_pieces(file: Path, text: Collection[str], needs_names: bool = True) -> Iterator[Piece]:
    """The rows, block by block, each with its own types: a column may hold whole numbers first and others later. `text`:
    the columns that are left as they are. Unless it `needs_names`, columns of a file whose first line holds numbers are
    called 1, 2 and so on. DataError: a damaged file, or one in no known encoding."""
    form = form_of(file, needs_names)
    names: list[str] | None = [str(number) for number in range(1, form.unnamed + 1)] or None
    encoding: str | None = None
    before = 0

    def parse(block: bytes) -> tuple[bytes, Any, str | None]:
        content, found = in_utf8(block, encoding)
        return block, _table(content, names, form, text), found

    for block, table, found in parsed(file, parse, EXPECTED, _recoded if form.is_utf16 else opened, _whole_rows):
        header, names, encoding = names is None, table.column_names, found
        yield Piece(file, table, _lines(block, before, header), form.decimal, form.told(encoding))
        before += block.count(b"\n")
    if names is None:
        raise DataError(f"{file} is empty. {EXPECTED}")


def form_of(file: Path, needs_names: bool = True) -> Form:
    """What the file's first lines tell. Cells are separated by whichever of , ; tab and | cuts all of these lines into
    equally many, of which none holds several numbers, and the most; fractions have a comma where cells are separated otherwise
    and no number has a point."""
    with reading(file, EXPECTED), opened(file) as stream:
        head = stream.read(SAMPLE)
    is_utf16 = head.startswith(_BOMS)
    text = (
        head[: len(head) // 2 * 2].decode("utf-16", "replace")
        if is_utf16
        else head.removeprefix(codecs.BOM_UTF8).decode("latin-1")
    )
    lines = [line for line in _LINE_END.split(text) if line.strip()]
    if len(head) == SAMPLE and len(lines) > 1:
        lines.pop()  # it is cut
    lines = lines[:LINES]
    order = sorted(DELIMITERS, key=lambda one: one != "\t") if ending(file) == ".tsv" else DELIMITERS
    delimiter = max(order, key=lambda one: _width(lines, one))
    head_cells, *rows = _rows(lines, delimiter) or [[]]
    cells = [cell for row in (rows if rows and needs_names else [head_cells, *rows]) for cell in row]
    has_comma = delimiter != "," and any(map(_COMMA.fullmatch, cells)) and not any(map(_POINT.fullmatch, cells))
    form = Form(delimiter, "," if has_comma else ".", is_utf16)
    is_example = not needs_names and _is_example(head_cells, form.decimal)
    return form._replace(unnamed=len(head_cells)) if is_example else form


def _is_example(cells: Sequence[str], decimal: str) -> bool:
    """Whether a first line holds numbers, of which some may be missing, and not the names that pandas gives to columns
    without any: 0, 1, 2 and so on, of three or more."""
    plain = [cell.strip() for cell in cells]
    counted = [str(number) for number in range(len(plain))]
    is_counted = len(plain) > 2 and (plain == counted or ["", *counted[:-1]] == plain)
    return any(plain) and not is_counted and all(not cell or is_number(cell, decimal) for cell in plain)


def check_utf8(file: Path) -> None:
    """DataError names the first line that is not UTF-8."""
    with reading(file, EXPECTED), opened(file) as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{file}, line {number:,}: byte 0x{line[error.start]:02x} is not UTF-8. Save the file as UTF-8."
                ) from error


def is_number(cell: str, decimal: str = ".") -> bool:
    """Whether all of it is one."""
    try:
        float(cell.replace(decimal, "."))
    except ValueError:
        return False
    return True


def in_utf8(block: bytes, known: str | None) -> Text:
    """The bytes in UTF-8: as they are if they are UTF-8, otherwise taken for Windows-1252, which holds all of
    Latin-1's letters. ValueError: bytes that are neither, or that change from one to the other."""
    if block.isascii():
        return block, known
    if known != "cp1252":
        try:
            block.decode()
        except UnicodeDecodeError as error:
            if known is not None:
                seen = f"0x{block[error.start]:02x}"
                raise ValueError(
                    f"byte {seen} is no UTF-8, though lines before hold some; save all of it as UTF-8"
                ) from error
        else:
            return block, "utf-8"
    try:
        return block.decode("cp1252").encode(), "cp1252"
    except UnicodeDecodeError as error:
        seen = f"0x{block[error.start]:02x}"
        raise ValueError(f"byte {seen} is neither UTF-8 nor Windows-1252; save the file as UTF-8") from error


def cells_of(content: bytes, names: Sequence[str] = (), form: Form = PLAIN, text: Collection[str] = ()) -> Any:
    """Lines of a CSV in UTF-8 as a pyarrow.Table with these columns, or those that its first line names. `text`: the columns
    that are left as they are."""
    import pyarrow as pa
    from pyarrow import csv

    convert = csv.ConvertOptions(
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[*csv.ConvertOptions().null_values, *MISSING],
        column_types=dict.fromkeys(text, pa.string()),
        decimal_point=form.decimal,
    )
    read = csv.ReadOptions(column_names=names, block_size=len(content) + 1)
    return csv.read_csv(arrows_own(content), read, csv.ParseOptions(delimiter=form.delimiter), convert)


def arrows_own(content: bytes) -> Any:
    """A file of these bytes that holds nothing of Python's. Arrow's threads let go of a file some time after the reader has
    returned; one of Python's needs the interpreter for that, and where it is ending by then, the process aborts."""
    import pyarrow as pa

    memory = pa.BufferOutputStream()
    memory.write(content)
    return pa.BufferReader(memory.getvalue())


def _table(content: bytes, names: Sequence[str] | None, form: Form, text: Collection[str]) -> Any:
    import pyarrow as pa

    if names is None:
        body = content.lstrip(b"\r\n")
        header, _, content = body.partition(b"\n")
        names = [name.strip() for name in cells_of(header + b"\n", form=form).column_names]
    if not content.strip(b"\r\n"):
        return pa.Table.from_arrays([pa.nulls(0)] * len(names), list(names))
    return cells_of(content, names, form, text)


def _whole_rows(block: bytes) -> int:
    """How many bytes of it are whole rows: behind the last line end that is in no cell in quotes. Where a large block has none,
    behind its last line end: its quotes don't match."""
    if b'"' not in block:
        return whole_lines(block)
    start = end = 0
    for cell in _QUOTED.finditer(block):
        end = max(end, block.rfind(b"\n", start, cell.start()) + 1)
        start = cell.end()
    end = max(end, block.rfind(b"\n", start) + 1)
    return end or (0 if len(block) < 2 * PIECE_BYTES else whole_lines(block))


def _lines(block: bytes, before: int, header: bool) -> Callable[[int], str]:
    def where(row: int) -> str:
        numbers = (number for number, line in enumerate(block.split(b"\n"), before + 1) if line.strip(b"\r"))
        return f"line {next(islice(numbers, row + header, None)):,}"

    return where


def _width(lines: Sequence[str], delimiter: str) -> tuple[bool, bool, int]:
    """Whether all lines have several cells and equally many, whether no cell holds several numbers, and how many cells the
    first line has."""
    rows = _rows(lines, delimiter)
    widths = [len(row) for row in rows]
    several = any(_SEVERAL.fullmatch(cell) for row in rows for cell in row)
    return (len(set(widths)) == 1 and widths[0] > 1), not several, (widths[0] if widths else 0)


def _rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=delimiter))
    except csv.Error:  # what reads all of it tells
        return []


@contextmanager
def _recoded(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file in UTF-16 as UTF-8."""
    with opened(path) as stream:
        yield cast(BinaryIO, codecs.EncodedFile(stream, "utf-8", "utf-16"))
