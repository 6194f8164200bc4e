"""A run that is too large for the machine asks first: by its cores, and by what its processes need of memory."""

import io
import sys

import pytest

from paceline.core.errors import UsageError
from paceline.core.settings.config import Config
from paceline.launch.this_machine import capacity
from paceline.launch.this_machine.capacity import refuse_too_many, too_many

GIB = 1 << 30


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_the_machine_can_bear_goes_on() -> None:
    assert too_many(Config(workers=20, servers=4), cores=2, free=4 * GIB) is None


def test_too_many_processes_for_the_cores_are_told() -> None:
    said = too_many(Config(workers=1000, servers=2), cores=2, free=64 * GIB)

    assert said is not None
    assert said.startswith("1,000 workers make 1,003 processes, on 2 cores; they need 29.9 GiB of memory at least")


def test_too_little_memory_is_told() -> None:
    config = Config(workers=8, servers=1)

    assert too_many(config, cores=8, free=1 * GIB) is None
    assert "0.7 GiB is free" in str(too_many(config, cores=8, free=GIB * 7 // 10))


def test_runs_side_by_side_count_together() -> None:
    small = Config(workers=1, servers=1)

    assert too_many(small, cores=8, free=1 * GIB) is None
    said = str(too_many(small, cores=8, free=1 * GIB, runs=4))
    need = "1.3" if sys.platform == "linux" else "2.3"  # where they are forked from one process, they share its memory
    assert said.startswith(
        f"1 workers in each of 4 runs side by side make 12 processes, on 8 cores; they need {need} GiB"
    )


def test_without_a_terminal_it_is_refused_unless_they_have_said_yes() -> None:
    large = Config(workers=1000, servers=2)

    with pytest.raises(UsageError, match=r"start anyway with yes=True\."):
        refuse_too_many(large, False, "yes=True")
    refuse_too_many(large, True)


def test_a_terminal_that_is_closed_at_the_question_ends_the_command_as_ctrl_c_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capacity.sys, "stdin", Terminal(""))
    monkeypatch.setattr(capacity.sys, "stderr", Terminal())

    with pytest.raises(KeyboardInterrupt):
        refuse_too_many(Config(workers=1000, servers=2), False)


@pytest.mark.parametrize(("answer", "goes_on"), [("y\n", True), ("n\n", False)])
def test_on_a_terminal_it_asks(monkeypatch: pytest.MonkeyPatch, answer: str, goes_on: bool) -> None:
    monkeypatch.setattr(capacity.sys, "stdin", Terminal(answer))
    monkeypatch.setattr(capacity.sys, "stderr", Terminal())

    try:
        refuse_too_many(Config(workers=1000, servers=2), False)
    except UsageError:
        assert not goes_on
    else:
        assert goes_on
    assert "Go on?" in capacity.sys.stderr.getvalue()
