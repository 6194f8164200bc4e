"""What of Paceline a user, or a reader of its code, meets: how much of it there is, against tools/surface.yaml.

`python -m tools.surface` fails where there are more commands, options, settings or pages than that file says, and prints wings
whose lines have grown. `--write` keeps the numbers of now."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer.main
import yaml
from pydantic import BaseModel
from typer.core import TyperGroup

from paceline.cli.__main__ import app
from paceline.core.registry import section_of
from paceline.core.settings.config import Config
from tools.reference.command_line import commands_of

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).with_suffix(".yaml")
SLACK = 1.05
"""Growth of a wing's lines from which on it is printed (ratio)."""
HEAD = """# Written by `python -m tools.surface --write`. More commands, options, settings or pages fail `make check`; the
# commit that writes more of them here says what they replace. Lines of wings are only printed.
"""


def surface() -> dict[str, Any]:
    """Returns how many there are of each, and the lines of each wing."""
    commands = list(_commands(typer.main.get_command(app)))
    return {
        "commands": len(commands),
        "options": sum(len(each.params) for each in commands),
        "settings": _settings(Config),
        "pages": len(_files("docs/*.md")),
        "lines": dict(sorted(_lines().items())),
    }


def grown(now: Mapping[str, Any], kept: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Returns in words what is more than was kept, and the wings that have grown by more than the slack."""
    counts = [
        f"{key}: {now[key]}, but {kept.get(key, 0)} before"
        for key in now
        if key != "lines" and now[key] > kept.get(key, 0)
    ]
    lines, before = now["lines"], kept.get("lines", {})
    wings = [
        f"{wing}: {lines[wing]:,} lines, but {before.get(wing, 0):,} before"
        for wing in lines
        if lines[wing] > SLACK * before.get(wing, 0)
    ]
    return counts, wings


def _commands(command: Any) -> Iterator[Any]:
    """Those of the guide, with those of their groups; not the groups themselves."""
    if not isinstance(command, TyperGroup):
        yield command
        return
    for inner in commands_of(command).values():
        yield from _commands(inner)


def _settings(model: type[BaseModel]) -> int:
    """Those of the run and of its sections, without the options of policies and the like."""
    sections = [section_of(field) for field in model.model_fields.values()]
    return sum(1 if section is None else _settings(section) or 1 for section in sections)


def _lines() -> dict[str, int]:
    """Of Python, without what `make protos` writes: by folder of paceline/, and of the roles and k8s/."""
    found: dict[str, int] = {}
    for file in _files(
        "paceline/*.py", "server/*.py", "worker/*.py", "sharder/*.py", "k8s/paceline_k8s/*.py", "studies/*_studies/*.py"
    ):
        top, _, below = file.partition("/")
        wing = f"{top}/{below.split('/')[0]}" if top == "paceline" and "/" in below else top
        if wing != "paceline/v1":
            found[wing] = found.get(wing, 0) + len((ROOT / file).read_text(encoding="utf-8").splitlines())
    return found


def _files(*patterns: str) -> list[str]:
    """The repository's files that match; * also matches folders."""
    return subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def main() -> int:
    """Returns 1 where there is more than was kept."""
    now = surface()
    if "--write" in sys.argv:
        KEPT.write_text(HEAD + yaml.safe_dump(now, sort_keys=False), encoding="utf-8")
        return 0

    counts, wings = grown(now, yaml.safe_load(KEPT.read_text(encoding="utf-8")))
    for line in wings:
        print(f"grown: {line}")
    for line in counts:
        print(f"{line}. Take one away, or run python -m tools.surface --write and say in the commit what it replaces.")
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
