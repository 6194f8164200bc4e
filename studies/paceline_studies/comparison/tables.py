"""A comparison as tables: cells for people, which the terminal and the page show."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10
from textwrap import fill
from typing import Any

from rich import box
from rich.table import Table as Shown

from paceline_studies.comparison.comparison import Comparison, Difference
from paceline_studies.comparison.sides import Figure, Side

SHORT = 20
"""Letters of a cell that is not broken."""


@dataclass(frozen=True, slots=True)
class Table:
    """Its texts."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def tables(found: Comparison) -> list[Table]:
    """What differs, unless the names say it; what each gave; the differences to the first, where there are two or more."""
    several = len(found.sides) > 1
    settings = [_settings(found)] if several and not found.is_by_policy else []
    return [*settings, _figures(found), *([_differences(found)] if several else [])]


def for_terminal(table: Table) -> Shown:
    """The table as rich prints it: the first column from the left, the others from the right; short cells stay whole."""
    shown = Shown(
        title=table.title, caption=table.note or None, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for place, head in enumerate(table.heads):
        width = max((len(row[place]) for row in table.rows), default=0)
        stays = place > 0 and width <= SHORT
        name = fill(head, max(width, 1), break_long_words=False) if stays else head
        shown.add_column(name, justify="right" if place else "left", overflow="fold", no_wrap=stays)
    for row in table.rows:
        shown.add_row(*row)
    return shown


def _settings(found: Comparison) -> Table:
    rows = [[key, *(_setting(value) for value in values)] for key, values in found.settings.items()]
    return Table("What differs", ["setting", *(side.name for side in found.sides)], rows)


def _setting(value: Any) -> str:
    return "-" if value is None else str(value)


def _figures(found: Comparison) -> Table:
    counts = [len(side.seeds) for side in found.sides]
    alike = len(set(counts)) == 1
    heads = ["", *([] if alike else ["seeds"]), *(figure.title for figure in found.figures)]
    rows = [
        [side.name, *([] if alike else [str(count)]), *(_spread(found, side, figure) for figure in found.figures)]
        for side, count in zip(found.sides, counts, strict=True)
    ]
    of = f" of {counts[0]} seeds" if alike else " over the seeds"
    note = f"mean ± standard deviation{of}" if max(counts) > 1 else ""
    return Table("What each gave", heads, rows, note)


def _spread(found: Comparison, side: Side, figure: Figure) -> str:
    spread = found.spread(side, figure)
    if spread is None:
        return "-"
    if spread.deviation is None or not figure.is_spread_told:
        return figure.told(spread.mean)
    digits = _digits(spread.mean, spread.deviation)
    return f"{spread.mean:,.{digits}f}±{spread.deviation:,.{digits}f}"


def _digits(value: float, error: float) -> int:
    """Behind the point: three of the value in all, or one of the error, where that is more; not more than two of the error."""
    of_value, of_error = (floor(log10(abs(number))) if number else 0 for number in (value, error))
    return max(0, min(1 - of_error, max(2 - of_value, -of_error)) if error else 3 - of_value)


def _differences(found: Comparison) -> Table:
    all_of = [
        (side.name, figure, each)
        for side in found.sides[1:]
        for figure in found.figures
        if figure.sign and (each := found.difference(side, figure)) is not None
    ]
    heads = ["", "of", "so it is", "difference", "95 % interval"]
    rows = [[name, figure.title, each.verdict_text, *_difference(figure, each)] for name, figure, each in all_of]
    if not any(each.is_told for _, _, each in all_of):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    return Table(f"Against {found.sides[0].name}, seed by seed", heads, rows)


def _difference(figure: Figure, found: Difference) -> list[str]:
    interval = found.interval
    if not found.is_told:
        sign = "-" if interval.middle < 0 else "+"
        return [f"{sign}{figure.told(abs(interval.middle))}" if isfinite(interval.middle) else "-", "-"]
    digits = _digits(interval.middle, interval.high - interval.middle)
    middle, low, high = (f"{value:+,.{digits}f}" for value in (interval.middle, interval.low, interval.high))
    return [middle, f"{low} to {high}"]
