"""A comparison as one HTML page."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from paceline.base.html.page import Section, Table, beside, page, picture, table, text
from paceline.studies.comparison.comparison import Comparison
from paceline.studies.comparison.tables import tables

if TYPE_CHECKING:
    from paceline.base.plot_style import Drawn

BAND = "The line is the mean over the seeds, the band a standard deviation to each side."


def page_of(found: Comparison, images: Mapping[str, "Drawn"]) -> str:
    """The whole file. `images`: the curves, by the name of their picture."""
    names = [side.name for side in found.sides]
    top = [text(_head(found), "faint"), text(found.conclusion, "result")]
    sections = [
        Section(each.title, [table(Table(each.heads, each.rows)), *([text(each.note, "faint")] if each.note else [])])
        for each in reversed(tables(found))
    ]
    if images:
        curves = beside(*(picture(image.svg, f"Scores {name.replace('-', ' ')}") for name, image in images.items()))
        sections.insert(0, Section("Curves", [curves, *([text(BAND, "faint")] if _has_bands(found) else [])]))
    return page(f"{', '.join(names)} compared", top, sections)


def _head(found: Comparison) -> str:
    runs = sum(len(side.runs) for side in found.sides)
    config = found.sides[0].runs[0].config
    return f"{runs} runs of {config.task}, {found.seconds_are} seconds; chosen by {found.figures[0].title}"


def _has_bands(found: Comparison) -> bool:
    return any(len(side.seeds) > 1 for side in found.sides)
