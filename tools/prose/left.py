"""How much of each page, and of each room of the code, still breaks each rule (left.yaml): numbers that only fall."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from tools.prose.rules import ADVICE, Finding

FILE = Path(__file__).with_name("left.yaml")
HEAD = """# How often each page, and each room of the code (its words only), still breaks each rule of style.yaml.
# `python -m tools.prose --less` keeps the numbers after a page got better, moved or was split; don't raise one yourself.
"""
_DEPTH = 2
"""Folders of a room's name."""
Counts = dict[str, dict[str, int]]
"""Page or room, rule, how often."""


def row(page: str) -> str:
    """Where a page is counted: by itself; a Python file with the others of its room, so that files may be split and moved."""
    folders = page.split("/")[:-1][:_DEPTH]
    return "/".join([*folders, ""]) if page.endswith(".py") else page


def counts(found: Iterable[Finding]) -> Counts:
    """How often each page, and each room of the code, breaks each rule."""
    counted = Counter((row(finding.page), finding.rule) for finding in found if finding.rule != ADVICE)
    rows: Counts = {}
    for (page, rule), count in sorted(counted.items()):
        rows.setdefault(page, {})[rule] = count
    return rows


def read(file: Path = FILE) -> Counts:
    """What was left when the file was written."""
    return yaml.safe_load(file.read_text(encoding="utf-8")) or {}


def write(rows: Counts, file: Path = FILE) -> None:
    """Keeps these numbers: a page a line, so that changes to different pages meet seldom."""
    lines = (
        f"{page}: {{{', '.join(f'{rule}: {count}' for rule, count in row.items())}}}" for page, row in rows.items()
    )
    file.write_text(HEAD + "".join(f"{line}\n" for line in lines), encoding="utf-8")


def differences(now: Counts, left: Counts) -> list[tuple[str, str, int, int]]:
    """Page, rule, the number now and the number left, where they are not the same."""
    keys = {(page, rule) for rows in (now, left) for page, row in rows.items() for rule in row}
    numbers = ((page, rule, _of(now, page, rule), _of(left, page, rule)) for page, rule in sorted(keys))
    return [found for found in numbers if found[2] != found[3]]


def grown(now: Counts, left: Counts) -> list[str]:
    """Why these numbers may not be kept: a page got worse, or all pages together did (pages may be moved and split)."""
    worse = [
        f"{page}: {rule} went from {before} to {after}"
        for page, rule, after, before in differences(now, left)
        if page in left and after > before
    ]
    totals = (Counter[str](), Counter[str]())
    for total, rows in zip(totals, (now, left), strict=True):
        for row in rows.values():
            total.update(row)
    return worse + [
        f"all pages together: {rule} went from {totals[1][rule]} to {totals[0][rule]}"
        for rule in totals[0]
        if totals[0][rule] > totals[1][rule]
    ]


def _of(rows: Mapping[str, Mapping[str, int]], page: str, rule: str) -> int:
    return rows.get(page, {}).get(rule, 0)
