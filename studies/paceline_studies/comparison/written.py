"""The files of a comparison: its numbers as JSON, its curves as PNG, and all of it as one page."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from paceline.base.extras import is_installed, lacks
from paceline.base.html import Section, Table, beside, page, picture, table, text
from paceline.base.terminal import show
from paceline.core.errors import ConfigError, DiskError
from paceline.data.whole_file import replacing
from paceline_studies.comparison.comparison import Comparison
from paceline_studies.comparison.tables import tables

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


NUMBERS, PAGE = "compare.json", "compare.html"


def refuse_other_folder(folder: Path) -> None:
    """ConfigError where the folder holds something else than a comparison."""
    if folder.exists() and not (folder.is_dir() and ((folder / NUMBERS).exists() or not any(folder.iterdir()))):
        raise ConfigError(f"{folder} exists, but is not the folder of a comparison; give --out another one.")


def write(found: Comparison, folder: Path, console: Console) -> list[str]:
    """The names of what is written; without matplotlib it says what is missing. DiskError where it can't be written."""
    images: Mapping[str, Drawn] = {}
    if is_installed("matplotlib"):
        from paceline.base.plot_style import drawn
        from paceline_studies.comparison.pictures import pictures

        images = {name: drawn(figure) for name, figure in pictures(found).items()}
    else:
        show(console, f"No curves. {lacks('matplotlib', 'A picture')}")
    files = {
        PAGE: page_of(found, images).encode(),
        **{f"{name}.png": image.png for name, image in images.items()},
        NUMBERS: (json.dumps(found.plain(), indent=1) + "\n").encode(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DiskError(f"Can't make the folder {folder}: {error.strerror}. Give another one with --out.") from error
    for name, content in files.items():
        with replacing(folder / name, "the comparison") as temporary:
            temporary.write_bytes(content)
    return list(files)
