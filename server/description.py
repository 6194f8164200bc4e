"""Stores a script's settings in the server's folder, where the launcher that starts the servers reads them, too."""

import json
from pathlib import Path
from typing import Any

from paceline.data.whole_file import replacing

_FILE = "described.json"


def described(folder: Path) -> dict[str, Any] | None:
    """The script's settings; None until a worker has described them."""
    try:
        found: dict[str, Any] = json.loads((folder / _FILE).read_text())
    except FileNotFoundError:
        return None
    return found


def keep(folder: Path, found: dict[str, Any]) -> None:
    """Saves the settings for later starts of this server. Raises DiskError."""
    with replacing(folder / _FILE, "what the script asks for") as temporary:
        temporary.write_text(json.dumps(found))
