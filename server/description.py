"""What a script asked for, in a server's folder: the launcher, which starts the servers, reads it there, too."""

import json
from pathlib import Path
from typing import Any

from paceline.data.whole_file import replacing

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
