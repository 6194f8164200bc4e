"""What a script asked for, in a server's folder: the launcher, which starts the servers, reads it there, too."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.core.settings.config import Config
from paceline.data.whole_file import replacing
from paceline.load_settings import load

_FILE = "described.json"


def described(folder: Path) -> dict[str, Any] | None:
    """What the script has asked for; None while nobody has said it."""
    try:
        found: dict[str, Any] = json.loads((folder / _FILE).read_text())
    except FileNotFoundError:
        return None
    return found


def keep(folder: Path, found: dict[str, Any]) -> None:
    """Writes it down, for this server's further starts. DiskError."""
    with replacing(folder / _FILE, "what the script asks for") as temporary:
        temporary.write_text(json.dumps(found))


def settings_with(found: Mapping[str, Any], path: Path | None, overrides: Mapping[str, Any] | None = None) -> Config:
    """The run's settings: what the script asks for lies below the file and the flags. ConfigError."""
    return load(path, overrides, found)
