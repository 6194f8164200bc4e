"""`make audit`: asks a source of advisories (OSV) for every library that a lock file names. Ends with 0 where none of them has
an advisory, with 1 where some have, and with 69 where not all could be asked, which says nothing about them."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tools.release.locks import LOCKS, Pin, pins
from tools.release.uv_tool import run_tool

TOOL = "pip-audit==2.10.1"
SOURCE = "https://api.osv.dev/v1/query"
FOUND, NOT_ASKED = 1, 69
"""Exit codes."""


class NotAskedError(Exception):
    """The source of advisories, or the tool that asks it, can't be reached; the text says why."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="make audit", description=__doc__)
    parser.add_argument("locks", nargs="*", type=Path, default=LOCKS, help="Lock files; default: all.")
    parser.add_argument("--source", default=SOURCE, help="Another URL that answers as OSV does (default: %(default)s).")
    parser.add_argument("--timeout", type=int, default=15, help="Seconds for each answer (default: %(default)s).")
    told = parser.parse_args()
    if lacking := [str(path) for path in told.locks if not path.is_file()]:
        parser.error(f"no such lock file: {', '.join(lacking)}")
    locked = pins(told.locks)
    try:
        advisories = [each for some in _unique(locked) for each in advisories_of(some, told.source, told.timeout)]
    except NotAskedError as error:
        print(
            f"Not audited: {told.source} could not be asked for {len(locked)} libraries ({error}). Nothing is known of their "
            "advisories. Give another source: make audit SOURCE=URL",
            file=sys.stderr,
        )
        sys.exit(NOT_ASKED)
    for pin, about in advisories:
        names = ", ".join((about["id"], *about.get("aliases", ())))
        fixed = f"fixed in {', '.join(about['fix_versions'])}" if about.get("fix_versions") else "no fix is known"
        where = ", ".join(path.name for path in locked[pin])
        print(f"{pin.name} {pin.version} ({where}): {names}; {fixed}")
    print(f"{len(locked)} libraries asked for at {told.source}; advisories: {len(advisories)}")
    sys.exit(FOUND if advisories else 0)


def advisories_of(some: Sequence[Pin], source: str, timeout: int) -> list[tuple[Pin, dict[str, Any]]]:
    """The advisories of these libraries, each of another name. NotAskedError where one of them was not answered for."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "locked.txt"
        file.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in some))
        how = ["--no-deps", "--disable-pip", "--format=json", "--progress-spinner=off", f"--timeout={timeout}"]
        done = run_tool(TOOL, ["pip-audit", *how, "--vulnerability-service=osv", "--osv-url", source, "-r", file])
    try:
        answers = {each["name"]: each for each in json.loads(done.stdout)["dependencies"]}
    except ValueError:  # it ends with 1 and a traceback where nobody answers, too
        why = done.stderr.strip().rpartition("\n")[2]
        raise NotAskedError(why or f"{TOOL} ended with {done.returncode}") from None
    lacking = [pin.name for pin in some if "vulns" not in answers.get(pin.name, {})]
    if lacking:
        raise NotAskedError(f"no answer for {', '.join(lacking[:5])}")
    return [(pin, about) for pin in some for about in answers[pin.name]["vulns"]]


def _unique(locked: Iterable[Pin]) -> list[list[Pin]]:
    """The same in lists that name each library once, since the tool takes no second version of one."""
    found: list[list[Pin]] = []
    for pin in locked:
        place = next((some for some in found if some[-1].name != pin.name), None)
        if place is None:
            found.append(place := [])
        place.append(pin)
    return found


if __name__ == "__main__":
    main()
