"""What the tests here, of k8s/, of papers/ and of studies/ share."""

import atexit
import gc
import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from paceline.core.optimizers.optimizer import Optimizer
from tests.support import cpu, own
from tests.support.ledger import Ledger

_STARTERS = (
    "subprocess",
    "tests.support.processes",
    "tests.chaos.",
    "paceline_papers.baseline.",
    "paceline.launch.",
    "paceline_k8s.",
    "paceline_papers.reproduce.",
)
"""What starts processes: a module, or all of a package."""
settings.register_profile(
    "any machine",
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # `make test`, which takes several processes, draws the same examples each time: what fails there fails by what was
    # changed; a file that is run by itself goes on looking for new ones
    derandomize="PYTEST_XDIST_WORKER" in os.environ,
)
settings.register_profile("night", settings.get_profile("any machine"), max_examples=1000, derandomize=False)
settings.load_profile("any machine")
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell ignores it for what it starts by `&`, and so would all children
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = (
        "Run the contract tests on this policy, codec, ... of your own, and nothing else (docs/extend/first-policy.md)."
    )
    parser.addoption("--own", metavar="FILE.py", action="append", default=[], help=text)
    text = "Print how much CPU time the tests of each folder took, next to tests/budgets.yaml."
    parser.addoption("--cpu", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):  # pytest-xdist's own order: files of many tests first
        config.option.loadscopereorder = False
    if config.getoption("--cpu"):
        config.pluginmanager.register(cpu.CpuOfTests(Path(__file__).parent))
    for file in config.getoption("--own"):
        own.add(Path(file))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is collected stays to the end, so the garbage collector need not look at it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # or extension modules would say at the end that objects are left
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if names := {Path(file).stem for file in config.getoption("--own")}:
        config.hook.pytest_deselected(items=[item for item in items if not own.is_about(item, names)])
        items[:] = [item for item in items if own.is_about(item, names)]
    _longest_first(items)


def _longest_first(items: list[pytest.Item]) -> None:
    """Files that start processes, then the others, each with those of many tests first: so the last ones are short, and no
    core waits long for the other one."""
    files = {item.path: getattr(item, "module", None) for item in items}
    tests = Counter(item.path for item in items)
    slow = {path for path, module in files.items() if _starts_processes(module)}
    items.sort(key=lambda item: (item.path not in slow, -tests[item.path]))


def _starts_processes(module: object) -> bool:
    """Whether it uses what starts them."""
    used = vars(module).values() if module is not None else ()
    names = (getattr(value, "__module__", None) or getattr(value, "__name__", "") for value in used)
    return any(str(name).startswith(_STARTERS) for name in names)


@pytest.fixture(scope="module", autouse=True)
def own_objects() -> None:
    """What earlier modules have left is no garbage and not looked at again: `gc.get_objects`, which samplers of scripts call,
    would take 0.1 s each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_signals() -> Iterator[None]:
    """What a test sets for Ctrl-C and SIGTERM is no other test's."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(scope="session")
def ledger() -> Optimizer:
    return Ledger()


@pytest.fixture(params=["grpc", "lane"])
def kind(request: pytest.FixtureRequest) -> str:
    """A transport."""
    return str(request.param)


@pytest.fixture
def serve(kind: str) -> Iterator[Callable[..., Any]]:
    """Begins to serve on it, as `fake_service.Served` does; ended with the test."""
    from tests.support.fake_service import Served

    with ExitStack() as started:

        def start(*arguments: Any, **settings: Any) -> Served:
            served = Served(kind, *arguments, **settings)
            started.callback(served.stop)
            return served

        yield start
