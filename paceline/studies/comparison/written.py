"""The files of a comparison: its numbers as JSON, its curves as PNG, and all of it as one page."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from paceline.base.extras import is_installed, lacks
from paceline.base.terminal import show
from paceline.core.errors import ConfigError, DiskError
from paceline.data.whole_file import replacing
from paceline.studies.comparison.comparison import Comparison
from paceline.studies.comparison.page import page_of

if TYPE_CHECKING:
    from paceline.base.plot_style import Drawn

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
        from paceline.studies.comparison.pictures import pictures

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
