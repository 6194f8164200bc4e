"""`make licences`: the licence of every library that a lock file names. Ends with 1 where one is not on the list of accepted
licences (tools/release/licences.yaml), with 69 where nothing could be read. Licences are those that the installed packages
name; a version for another Python or system has that of the installed one."""

import argparse
import csv
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import yaml

from tools.release.locks import IMAGES, Pin, pins, plain
from tools.release.provenance import ROOT
from tools.release.uv_tool import run_tool

TOOL = "pip-licenses==5.5.5"
UNREAD = 69
"""The exit code where the installed packages could not be asked."""
_LONGEST = 120
"""Characters of a name; what is longer is the text of a licence."""


class Row(NamedTuple):
    """One library."""

    pin: Pin
    licence: str
    locks: Sequence[Path]
    wrong: str = ""
    """Why it is refused; empty: it is not."""


class Accepted:
    """The list in licences.yaml."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._accepted = set(told["accepted"])
        self._written: Mapping[str, str] = told["written"]
        self._tools_only: Mapping[str, str] = told["tools_only"]
        self._read: Mapping[str, str] = told.get("read", {})

    def licence(self, name: str, said: Mapping[str, str]) -> str:
        """What a package says by its expression, its field or its classifiers, in that order; empty: nothing."""
        if name in self._read:
            return self._read[name]
        for key in ("License-Expression", "License-Metadata", "License-Classifier"):
            found = said.get(key, "UNKNOWN")
            if found not in ("UNKNOWN", "Dual License") and "\n" not in found and len(found) <= _LONGEST:
                return self._written.get(found, found)
        return ""

    def refusal(self, row: Row) -> str:
        """Why this library may not be locked; empty where it may."""
        if not row.licence:
            return (
                "it names no licence, or is not installed here (make setup spark docs); where it is, read the licence and "
                "write it under `read` in tools/release/licences.yaml"
            )
        if any(all(self._is_accepted(part) for part in choice.split(" AND ")) for choice in _choices(row.licence)):
            return ""
        if self._tools_only.get(row.pin.name) == row.licence:
            shipped = [path.name for path in row.locks if path in IMAGES]
            return f"it is accepted as a tool only, but is in {', '.join(shipped)}" if shipped else ""
        return f"{row.licence} is not among the accepted licences in tools/release/licences.yaml"

    def _is_accepted(self, part: str) -> bool:
        bare = part.strip()
        return self._written.get(bare, bare) in self._accepted


def _choices(licence: str) -> list[str]:
    """The licences of which one suffices. Classifiers with ';' all hold."""
    return licence.replace("; ", " AND ").split(" OR ")


def rows(installed: Sequence[Mapping[str, str]], accepted: Accepted) -> list[Row]:
    """One for each library and version that is locked."""
    said = {plain(each["Name"]): each for each in installed}
    found = [Row(pin, accepted.licence(pin.name, said.get(pin.name, {})), locks) for pin, locks in pins().items()]
    return [row._replace(wrong=accepted.refusal(row)) for row in found]


def write_table(found: Sequence[Row], out: TextIO) -> None:
    """As CSV."""
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["library", "version", "licence", "locked in"])
    for row in found:
        where = " ".join(str(path.relative_to(ROOT)) for path in row.locks)
        lines.writerow([row.pin.name, row.pin.version, row.licence or "unknown", where])


def installed() -> list[dict[str, str]]:
    """What the packages in this environment say. SystemExit (`UNREAD`): the tool can't be had."""
    words = ["pip-licenses", "--python", sys.executable, "--from=all", "--with-system", "--format=json"]
    done = run_tool(TOOL, words)
    if done.returncode:
        print(f"No licences could be read: {done.stderr.strip()}", file=sys.stderr)
        raise SystemExit(UNREAD)
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def read_accepted() -> Accepted:
    return Accepted(yaml.safe_load(Path(__file__).with_name("licences.yaml").read_text()))


def write_licences(file: Path) -> None:
    """The table as a file. SystemExit where a licence is refused, or could not be read."""
    found = rows(installed(), read_accepted())
    with file.open("w") as out:
        write_table(found, out)
    if told := refused(found):
        raise SystemExit(told)


def refused(found: Sequence[Row]) -> str:
    """A line for each library that may not be locked."""
    return "\n".join(f"{row.pin.name} {row.pin.version}: {row.wrong}." for row in found if row.wrong)


def main() -> None:
    argparse.ArgumentParser(prog="make licences", description=__doc__).parse_args()
    found = rows(installed(), read_accepted())
    write_table(found, sys.stdout)
    sys.exit(refused(found) or 0)


if __name__ == "__main__":
    main()
