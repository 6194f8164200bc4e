"""Writes the report on one or several sets of shards: pictures as PNG and all of it as one HTML file."""

from collections.abc import Mapping
from pathlib import Path

from paceline.base.extras import needing
from paceline.base.html import Html, Section, picture, table, text
from paceline.base.html import page as whole_page
from paceline.core.errors import DataError, DiskError
from paceline.data.files import BUNDLED
from paceline.data.manifest import MANIFEST
from paceline.sharder.report.findings import PARTS, Part, result, summary
from paceline.sharder.report.shard_set import Sets, read_sets


def page(sets: Sets, drawings: Mapping[str, str]) -> str:
    """The whole file. `drawings`: SVG by the names of the parts' pictures."""
    source, recipe = sets[0].manifest.source, sets[0].manifest.recipe
    examples = max(shards.manifest.train_examples for shards in sets)
    classes = f"{len(sets[0].classes)} classes{sets[0].of_task}"
    head = f"{examples:,} training examples of {classes}, task {recipe.task}, data {source}"
    top = [text(head, "faint"), text(result(sets), "result"), table(summary(sets))]
    title = f"Shards of {source}: {', '.join(shards.name for shards in sets)}"
    return whole_page(title, top, [_section(part, drawings, sets) for part in PARTS], "How the shards compare")


def _section(part: Part, drawings: Mapping[str, str], sets: Sets) -> Section:
    drawing = drawings.get(part.picture)
    if drawing is None:
        return Section(part.title, [text(part.absent, "faint")])
    parts: list[Html] = [text(part.text), picture(drawing, part.title), *map(table, part.tables(sets))]
    return Section(part.title, parts)


PAGE = "report.html"


def write_report(folders: list[Path], out: Path, by: str | None = None, path: str = BUNDLED) -> str:
    """Writes to `out` and returns what the report says in a sentence, and where it is. `by`: a task whose classes are shown
    instead of the shards' own, `path`: its data set. DataError where the folders can't be compared, ConfigError where
    matplotlib is not installed, DiskError where `out` can't be written."""
    sets = read_sets(folders, by, path)
    if (out / MANIFEST).exists():
        raise DataError(f"{out} is a folder of shards; give the report another folder.")
    with needing("The report"):
        from paceline.sharder.report.pictures import draw

        pictures = draw(sets)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in pictures.items():
            (out / name).write_bytes(content.png)
        for part in PARTS:
            if part.picture not in pictures:
                (out / part.picture).unlink(missing_ok=True)  # an earlier report's, on other shards
        drawings = {name: content.svg for name, content in pictures.items()}
        (out / PAGE).write_text(page(sets, drawings), encoding="utf-8")
    except OSError as error:
        raise DiskError(
            f"Can't write the report to {out}: {error.strerror}. Give another folder with --out."
        ) from error
    return f"{result(sets)}\nThe report is {out / PAGE}."
