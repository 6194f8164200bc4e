"""What was tried: lines of JSON in build/chaos/results.jsonl, each with the commit that it was tried on."""

import json
import time
from pathlib import Path
from typing import Any

from tests.chaos.commits import tried_on

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "build" / "chaos" / "results.jsonl"


def write_down(what: str, facts: dict[str, Any]) -> None:
    """Adds a line. `what`: round, bits, soak, held, network, schedules or fuzz."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with FILE.open("a") as lines:
        lines.write(json.dumps({"what": what, **tried_on(ROOT), "at": int(time.time()), **facts}) + "\n")


def read(what: str) -> list[dict[str, Any]]:
    """All lines of this kind, in order."""
    if not FILE.exists():
        return []
    found = [json.loads(line) for line in FILE.read_text().splitlines()]
    return [facts for facts in found if facts["what"] == what]
