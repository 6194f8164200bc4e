"""`make mutants`: plants each defect of mutants.yaml in a copy of the repository and runs the tests that must catch it.
`python -m tests.mutants [NAME ...]`; exit code 1 where one survives."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.planting import ROOT, Mutant, mutants

PARTS = (
    "paceline",
    "server",
    "worker",
    "sharder",
    "tests",
    "tools",
    "papers",
    "studies",
    "examples",
    "protos",
    "conftest.py",
    "pyproject.toml",
)
"""What a copy needs."""
RESULTS = ROOT / "build" / "chaos" / "mutants.json"
AT_A_TIME = 2


def main(names: list[str]) -> int:
    """Tries all mutants, or those named; prints a line for each."""
    chosen = [mutant for mutant in mutants() if not names or mutant.name in names]
    unknown = set(names) - {mutant.name for mutant in chosen}
    if unknown or not chosen:
        print(f"There is no mutant {', '.join(sorted(unknown))}.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(AT_A_TIME) as threads:
        every = sorted({test for mutant in chosen for test in mutant.caught_by})
        sound = threads.submit(passed_in_copy, Path(folder) / "sound", every)
        tries = [
            threads.submit(passed_in_copy, Path(folder) / str(number), mutant.caught_by, mutant)
            for number, mutant in enumerate(chosen)
        ]
        found = {}
        for mutant, tried in zip(chosen, tries, strict=True):
            useless = [f"{test} (fails without it, too)" for test in mutant.caught_by if test not in sound.result()]
            survived = found[mutant.name] = [*useless, *tried.result()]
            told = f"SURVIVES {', '.join(survived)}" if survived else "caught"
            print(f"{mutant.name}: {told} (tests: {len(mutant.caught_by)})", flush=True)
    write_down(chosen, found)
    lived = sum(map(bool, found.values()))
    print(f"{len(chosen)} mutants, {lived} not caught")
    return int(lived > 0)


def passed_in_copy(copy: Path, tests: Sequence[str], mutant: Mutant | None = None) -> list[str]:
    """Runs these tests in a copy that has the defect; returns those of which nothing failed. RuntimeError where they could
    not be run."""
    copied(copy)
    if mutant is not None:
        mutant.plant(copy)
    report = copy / "report.xml"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=60", f"--junitxml={report}"]
    words += ["-m", ""]  # those that are nightly, too
    around = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*words, *tests], cwd=copy, env=around, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"The tests could not be run (exit code {done.returncode}):\n{done.stdout}\n{done.stderr}")
    failed = {
        (case.get("classname", "").replace(".", "/"), case.get("name", "").partition("[")[0])
        for case in ElementTree.parse(report).iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    }
    shutil.rmtree(copy)
    return [test for test in tests if (test.partition("::")[0].removesuffix(".py"), function_of(test)) not in failed]


def function_of(test: str) -> str:
    """The last part of a test's id, without its parameters."""
    return test.rpartition("::")[2].partition("[")[0]


def copied(copy: Path) -> None:
    """The repository's code and tests; links stay links."""
    copy.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "build")
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, copy / part, symlinks=True, ignore=ignored)
        else:
            shutil.copy2(source, copy / part)


def write_down(chosen: list[Mutant], found: dict[str, list[str]]) -> None:
    """What became of each, for the report."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    facts = [
        {"name": each.name, "breaks": each.breaks, "caught_by": each.caught_by, "survived": found[each.name]}
        for each in chosen
    ]
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
