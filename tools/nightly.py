"""`python -m tools.nightly [PART...]`: runs what `make test` has no time for, and writes each result to tests/nightly.md."""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "tests/nightly.md"
LOGS = ROOT / "build" / "nightly"
PYTEST = f"{sys.executable} -m pytest -n 4 --dist loadfile -rfEs"
CHAOS = f"{sys.executable} -m tests.chaos"
STEPS = "==", "The page is"
"""How lines begin that say nothing of a result."""
HEAD = """# The nightly run

`make nightly` runs all of these, one after the other, and goes on after one that fails. `make nightly PARTS="e2e docs"`
runs some. Each replaces its row; its output is in `build/nightly/PART.log`.

| part | what it is, and why it is not in `make test` | last run | commit | minutes | result |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Part:
    """A shell command and what it is for; it takes minutes unless it says otherwise."""

    command: str
    purpose: str


PARTS = {
    "tests": Part(f"{PYTEST} -m nightly", "tests with the mark `nightly`; each says why it has it"),
    "properties": Part(
        f"{PYTEST} -m 'hypothesis and not nightly' --hypothesis-profile night",
        "properties with 40 times the examples, other ones each night",
    ),
    "fuzz": Part(f"{CHAOS} fuzz --cases 100000", "damaged files, 250 times as many for each reader"),
    "schedules": Part("make schedules", "500 runs in virtual time for each of nine kinds, in which servers die"),
    "mutants": Part("make mutants", "planted defects, which the tests named with them must find"),
    "kills": Part(f"{CHAOS} rounds --rounds 1", "runs of real processes of each kind, killed at random instants"),
    "points": Part(f"{CHAOS} points", "runs whose servers die at each point of their work on a push"),
    "bits": Part(f"{CHAOS} bits", "runs in lock-step with kills, which must end with the bits of one without"),
    "soak": Part(f"{CHAOS} soak --seconds 600", "a long run with a fault every 5 to 15 s, whose memory must not grow"),
    "networks": Part(
        f"{CHAOS} networks",
        "35 runs on networks that lose, delay, forget or cut off what is sent; they need root and nft",
    ),
    "e2e": Part(".ci/e2e all", "all runs on a cluster; `.ci/run` has one"),
    "docs-blocks": Part("make docs-blocks", "the commands and code of README and docs, run for real"),
    "docs": Part("make docs", "the guide as a site; a link that leads nowhere fails"),
    "licences": Part("make licences", "the licence of all that is locked"),
    "demo": Part("make demo", "the first command of README"),
    "reproduce": Part(
        f"{sys.executable} -m paceline.cli reproduce all --small --out build/nightly/reproduce",
        "every table and figure of the papers; two hours",
    ),
}


def last_runs() -> dict[str, tuple[str, ...]]:
    """Returns what the page says of each part's last run: date, commit, minutes, result."""
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    rows = [line[2:-2].split(" | ") for line in lines if line.startswith("| `")]
    return {cells[0].strip("`"): tuple(cells[2:]) for cells in rows}


def write(runs: dict[str, tuple[str, ...]]) -> None:
    """Writes the page: every part in order, those that have never run, too."""
    cells = {name: (f"`{name}`", part.purpose, *runs.get(name, ("never", "", "", ""))) for name, part in PARTS.items()}
    PAGE.write_text(HEAD + "".join(f"| {' | '.join(row)} |\n" for row in cells.values()), encoding="utf-8")


def commit() -> str:
    """Returns the commit that is tried, with "+" where files differ from it; the page itself may."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", ":!tests/nightly.md")
    return git("rev-parse", "--short=8", "HEAD") + "+" * bool(changed)


def run(name: str) -> bool:
    """Runs a part, prints what it prints, and writes its row; returns whether it passed."""
    print(f"== {name}: {PARTS[name].command}", flush=True)
    tried, today, start = commit(), f"{datetime.now(UTC):%Y-%m-%d}", time.monotonic()
    LOGS.mkdir(parents=True, exist_ok=True)
    last = ""
    with (
        (LOGS / f"{name}.log").open("w", encoding="utf-8") as log,
        subprocess.Popen(
            ["bash", "-c", PARTS[name].command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            log.write(line)
            if (said := line.strip()) and not said.startswith(STEPS):
                last = said

    code, minutes = process.returncode, (time.monotonic() - start) / 60
    result = f"{'passed' if code == 0 else f'FAILED, exit code {code}'}: {last.replace('|', '/')[:100]}"
    write(last_runs() | {name: (today, f"`{tried}`", f"{minutes:.1f}", result)})
    print(f"== {name}: {result} ({minutes:.1f} minutes)", flush=True)
    return code == 0


def main() -> None:
    """Exits with 1 where a part failed, after all of them have run."""
    parser = argparse.ArgumentParser(prog="python -m tools.nightly", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of: {', '.join(PARTS)}; default: all")
    names = parser.parse_args().parts or list(PARTS)
    if unknown := set(names) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    failed = [name for name in names if not run(name)]
    if failed:
        sys.exit(f"FAILED: {', '.join(failed)}. See {PAGE} and {LOGS}")


if __name__ == "__main__":
    main()
