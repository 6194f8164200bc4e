"""Reads a CSV block by block, in whichever form it was written: what separates its cells, how its bytes mean letters and how
its fractions are written is guessed from its content. Arrow cuts the cells; all of them are texts."""

import codecs
import csv
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from paceline.core.errors import DataError
from paceline.data.files import MAX_LINE, UNPACK, ending, opened, parsed, reading
from paceline.data.out_of_core import PIECE_BYTES, disk_errors

EXPECTED = "Expected a table: a CSV with a line of column names, or Parquet; the file may be damaged."
MISSING = ("?",)
"""What stands for an empty cell besides what Arrow knows: an empty one, NA, N/A, NaN, null and the like."""
SAMPLE = 1 << 18
"""This many letters of a file are looked at to guess its form."""
LINES = 100
_COMMA = re.compile(r"\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*")
_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")
_SEVERAL = re.compile(r"[\d.eE+-]+([;\t|][\d.,eE+-]*)+|[\d.eE+-]+(,[\d.eE+-]*){2,}")
"""Numbers with separators between them; one comma may be that of a fraction."""
_HINT = re.compile(r'"?sep=(.)"?(?:\r\n|\r|\n|\Z)')
"""The line with which spreadsheets say what separates the cells."""
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_LETTERS = {None: "UTF-8", "utf-8": "UTF-8", "cp1252": "Windows-1252"}


class Piece(NamedTuple):
    """Some rows of a table."""

    file: Path
    table: Any
    """A pyarrow.Table."""
    where: Callable[[int], str]
    """Where one of its rows stands, for people: 'line 72'."""
    decimal: str = "."
    form: str = ""
    """How a CSV is written, for people."""


class Form(NamedTuple):
    """How a CSV is written."""

    delimiter: str
    decimal: str
    has_names: bool
    """Whether its first line holds names, and no numbers."""
    skipped: int = 0
    """Lines before that one."""

    def in_words(self, letters: str) -> str:
        """For people."""
        fractions = ", fractions with commas" if self.decimal == "," else ""
        names = "" if self.has_names else ", no line of names"
        return f"cells separated by {_SEPARATORS[self.delimiter]}{fractions}{names}, {letters}"


def csv_pieces(file: Path, needs_names: bool = True) -> Iterator[Piece]:
    """The rows, block by block. Unless it `needs_names`, columns of a file whose first line holds numbers are called 1, 2 and
    so on. DataError: a damaged file, or one in no known encoding."""
    csv.field_size_limit(MAX_LINE)
    with reading(file, EXPECTED), _in_utf8(file) as (path, letters):
        form = form_of(path, ending(file) == ".tsv", needs_names)
        first = next((cells for _, cells in _rows(path, form)), None)
        if first is None:
            raise DataError(f"{file} is empty. {EXPECTED}")
        names = [name.strip() if form.has_names else str(number) for number, name in enumerate(first, 1)]
        before = 0
        for table in _tables(path, form, len(first)):
            skipped = int(form.has_names and before == 0)
            own = table.slice(skipped).rename_columns(names)
            yield Piece(file, own, _lines(path, form, before + skipped), form.decimal, form.in_words(letters))
            before += table.num_rows


def _tables(path: Path, form: Form, width: int) -> Iterator[Any]:
    """All lines that are not empty, the first one too, as Arrow tables of texts. ValueError: one has another count of cells."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    places = list(map(str, range(width)))  # names may occur twice
    read = arrow.ReadOptions(column_names=places, block_size=PIECE_BYTES, skip_rows=form.skipped)
    parse = arrow.ParseOptions(delimiter=form.delimiter, newlines_in_values=True)
    convert = arrow.ConvertOptions(
        column_types=dict.fromkeys(places, pa.string()),
        check_utf8=False,  # `_in_utf8` has seen to it
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[*arrow.ConvertOptions().null_values, *MISSING],
    )
    try:
        # A file of Arrow's own: its threads let go of one of Python's when the interpreter may be ending, which aborts then.
        for batch in arrow.open_csv(pa.OSFile(str(path)), read, parse, convert):
            yield pa.Table.from_batches([batch])
    except pa.ArrowInvalid as error:
        for line, cells in _rows(path, form):
            if len(cells) != width:
                shown = repr(form.delimiter.join(cells))
                raise ValueError(f"line {line:,} ({shown:.80}): Expected {width} columns, got {len(cells)}") from error
            if sum(map(len, cells)) > PIECE_BYTES:
                raise ValueError(f"line {line:,} has more than {PIECE_BYTES:,} letters") from error
        raise


@contextmanager
def _in_utf8(file: Path) -> Iterator[tuple[Path, str]]:
    """A local file with the table's text in UTF-8, and its encoding for people: the table's own file where that is one,
    otherwise a copy without a name, which the system frees however the process ends."""
    with opened(file) as stream:
        is_utf16 = stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        is_plain = type(file) is type(Path()) and file.suffix not in UNPACK and not is_utf16
        is_ascii = is_plain and all(map(bytes.isascii, iter(lambda: stream.read(PIECE_BYTES), b"")))
    if is_plain and (encoding := None if is_ascii else _copy(file)) != "cp1252":
        yield file, _LETTERS[encoding]
        return

    with tempfile.TemporaryFile() as copy:
        encoding = _copy(file, _recoded if is_utf16 else opened, copy)
        with disk_errors():
            copy.flush()
        yield Path(f"/dev/fd/{copy.fileno()}"), "UTF-16" if is_utf16 else _LETTERS[encoding]


def _copy(file: Path, open_: Callable[[Path], Any] = opened, copy: Any = None) -> str | None:
    """Writes the text in UTF-8 to `copy`, if there is one, and returns the file's encoding; None: ASCII."""
    encoding: str | None = None

    def parse(block: bytes) -> tuple[bytes, str | None]:
        return in_utf8(block, encoding)

    for content, known in parsed(file, parse, EXPECTED, open_):
        encoding = known
        if copy is not None:
            with disk_errors():
                copy.write(content)
    return encoding


@contextmanager
def _recoded(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file in UTF-16 as UTF-8."""
    with opened(path) as stream:
        yield cast(BinaryIO, codecs.EncodedFile(stream, "utf-8", "utf-16"))


def in_utf8(block: bytes, known: str | None) -> tuple[bytes, str | None]:
    """The bytes in UTF-8, and the encoding that the file is known to have by now; None: ASCII so far. Bytes that are no UTF-8
    are taken for Windows-1252, which holds all of Latin-1's letters. ValueError: bytes that are neither, or that change from
    one to the other."""
    if block.isascii():
        return block, known
    faults = []
    for encoding in ("utf-8", "cp1252") if known is None else (known,):
        try:
            text = block.decode(encoding)
            return (block if encoding == "utf-8" else text.encode()), encoding
        except UnicodeDecodeError as error:
            faults.append(error)
    no = "no UTF-8, though lines before hold some" if known == "utf-8" else "neither UTF-8 nor Windows-1252"
    raise ValueError(f"byte 0x{block[faults[-1].start]:02x} is {no}; save the whole file as UTF-8") from faults[-1]


def form_of(path: Path, is_tsv: bool = False, needs_names: bool = True) -> Form:
    """What the first lines of a file in UTF-8 tell. Cells are separated by whichever of , ; tab and | cuts all of these lines
    into equally many, of which none holds several numbers, and the most, unless a first line names it, like `sep=;`. Fractions
    have a comma where cells are separated otherwise and no number has a point."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        sample = stream.read(SAMPLE)
    if len(sample) == SAMPLE:
        sample = sample.rpartition("\n")[0] or sample  # the last line is cut
    hint = _HINT.match(sample)
    is_said = hint is not None and hint[1] in _SEPARATORS
    lines = [line for line in re.split(r"\r\n|\r|\n", sample) if line.strip()][is_said:LINES]
    order = sorted(_SEPARATORS, key=lambda one: is_tsv and one != "\t")
    ways = {one: list(csv.reader(lines, delimiter=one)) for one in order}
    delimiter = hint[1] if hint is not None and is_said else max(ways, key=lambda one: _quality(ways[one]))
    head, *rows = ways[delimiter] or [[]]
    cells = [cell for row in (rows if rows and needs_names else [head, *rows]) for cell in row]
    has_comma = delimiter != "," and any(map(_COMMA.fullmatch, cells)) and not any(map(_POINT.fullmatch, cells))
    decimal = "," if has_comma else "."
    return Form(delimiter, decimal, needs_names or not _is_example(head, decimal), int(is_said))


def _quality(rows: Sequence[Sequence[str]]) -> tuple[bool, bool, int]:
    """Whether all rows have several cells and equally many, whether no cell holds several numbers, and how many cells the first
    row has."""
    widths = list(map(len, rows)) or [0]
    several = any(_SEVERAL.fullmatch(cell) for row in rows for cell in row)
    return len(set(widths)) == 1 and widths[0] > 1, not several, widths[0]


def _is_example(cells: Sequence[str], decimal: str) -> bool:
    """Whether a first line holds numbers, of which some may be missing, and not the names that pandas gives to columns
    without any: 0, 1, 2 and so on, of three or more."""
    plain = [cell.strip() for cell in cells]
    counted = [str(number) for number in range(len(plain))]
    is_counted = len(plain) > 2 and (plain == counted or ["", *counted[:-1]] == plain)
    return any(plain) and not is_counted and all(not cell or as_number(cell, decimal) is not None for cell in plain)


def as_number(cell: str, decimal: str = ".") -> float | None:
    """What the cell says where it is a number, or true or false."""
    if cell.lower() in ("true", "false"):
        return float(cell.lower() == "true")
    if "_" in cell or (decimal != "." and "." in cell):  # a point is between thousands there
        return None
    try:
        return float(cell.replace(decimal, "."))
    except ValueError:
        return None


def _rows(path: Path, form: Form) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that is not empty, with its number. Slow: for names, and for errors."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader, before = csv.reader(stream, delimiter=form.delimiter), 0
        for _ in range(form.skipped):
            next(reader)
            before = reader.line_num
        for cells in reader:
            if cells:
                yield before + 1, cells
            before = reader.line_num


def _lines(path: Path, form: Form, first: int) -> Callable[[int], str]:
    return lambda row: f"line {next(islice(_rows(path, form), first + row, None))[0]:,}"
