"""Writes the report on one or several sets of shards: pictures as PNG and all of it as one HTML file."""

from pathlib import Path

from paceline.base.extras import needing
from paceline.core.errors import DataError, DiskError
from paceline.data.files import BUNDLED
from paceline.data.manifest import MANIFEST
from paceline.sharder.report.findings import PARTS, result
from paceline.sharder.report.page import page
from paceline.sharder.report.shard_set import read_sets

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
