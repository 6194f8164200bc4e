"""For pytest, by `-p tests.support.shuffled`: the files of tests in random order, which SHUFFLE repeats where it is set."""

import os
import random

import pytest

SEED = os.environ.setdefault("SHUFFLE", str(random.randrange(1 << 32)))  # inherited by the processes of pytest-xdist


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.line(f"files in random order: SHUFFLE={SEED}")


@pytest.hookimpl(trylast=True)  # after the order in conftest.py
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    draw = random.Random(int(SEED))
    order = {path: draw.random() for path in sorted({item.path for item in items})}
    items.sort(key=lambda item: order[item.path])
