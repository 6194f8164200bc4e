"""For pytest: how much CPU time the tests of each folder take, with their processes, next to what they may take."""

import resource
import time
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

BUDGETS = Path(__file__).parents[1] / "budgets.yaml"
MOST = 20
START = "start and collection"
"""What each process of pytest takes before its first test and after its last one."""


def cpu_seconds() -> float:
    """Returns the CPU time of this process and of all that it has started, as far as that still runs or was waited for."""
    ended = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(usage.ru_utime + usage.ru_stime for usage in ended)
    for process in psutil.Process().children(recursive=True):
        try:
            total += sum(process.cpu_times()[:4])  # its own, and its children's that it has waited for
        except psutil.NoSuchProcess:
            continue
    return total


def folder_of(file: str) -> str:
    """Returns the folder of a file of tests, or the file where it is in none; `k8s` and `papers` for theirs. `file`: its path
    from the repository's root."""
    return file.removeprefix("tests/").partition("/")[0]


def read_budgets() -> dict[str, float]:
    """Returns the CPU seconds that each folder may take, of `budgets.yaml`."""
    budgets: dict[str, float] = yaml.safe_load(BUDGETS.read_text())
    return budgets


class CpuOfTests:
    """Counts in each process that runs tests, by file; pytest-xdist's head adds up, and prints it at the end."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._counted = 0.0
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def _count(self, name: str) -> None:
        """Adds to a file what has been used since the last call."""
        now = cpu_seconds()
        self._seconds[name] += now - self._counted
        self._counted = now

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        if not self._seconds:
            self._count(START)
        result = yield
        if nextitem is None or nextitem.path != item.path:  # once a file, since it looks at all processes
            self._count(item.path.relative_to(self._root).as_posix())
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.config.getoption("numprocesses", None):  # the head, whose children have counted themselves
            self._seconds[START] += time.process_time()
            return
        self._count(START)
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["cpu"] = dict(self._seconds)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """In the head, when a process of pytest-xdist has ended: adds what it counted, which is nothing where it crashed."""
        for name, seconds in getattr(node, "workeroutput", {}).get("cpu", {}).items():
            self._seconds[name] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        budgets, folders = read_budgets(), defaultdict[str, float](float)
        terminalreporter.section(f"CPU seconds of the {MOST} longest files and of each folder")
        for name, seconds in _longest(self._seconds)[:MOST]:
            terminalreporter.line(f"{seconds:7.1f}  {name}")
        for name, seconds in self._seconds.items():
            folders[folder_of(name)] += seconds

        terminalreporter.line("")
        for name, seconds in _longest(folders):
            budget = budgets.get(name, 0)
            over = f"  OVER its budget of {budget} s" if seconds > budget else ""
            terminalreporter.line(f"{seconds:7.1f}  {name}{over}", yellow=bool(over))
        terminalreporter.line(f"{sum(folders.values()):7.1f}  in all, of {sum(budgets.values()):.0f}")


def _longest(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda found: -found[1])
