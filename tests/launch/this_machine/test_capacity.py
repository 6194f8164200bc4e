"""What a run gets of its machine: cores, ports, and memory; one that is too large asks first. And how a process leaves it."""

import io
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline.launch.this_machine import capacity, processors
from paceline.launch.this_machine.capacity import refuse_too_many, too_many
from paceline.launch.this_machine.free_ports import FreePorts
from paceline.launch.this_machine.processors import threads_each

GIB = 1 << 30


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_the_machine_can_bear_goes_on() -> None:
    assert too_many(Config(workers=20, servers=4), cores=2, free=4 * GIB) is None


def test_too_many_processes_for_the_cores_are_told() -> None:
    said = too_many(Config(workers=1000, servers=2), cores=2, free=64 * GIB)

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
    assert f"in each of 4 runs side by side make 12 processes, on 8 cores; they need {need} GiB" in said


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


@pytest.mark.parametrize(
    ("workers", "given", "threads"), [(2, None, 4), (3, None, 2), (16, None, 1), (1, 4, 4), (2, 64, 4), (0, None, 8)]
)
def test_workers_share_the_cores_or_those_that_their_job_has(
    workers: int, given: int | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "cores", lambda: 8)
    assert threads_each(workers, given) == threads


def test_without_a_range_any_free_port_is_taken() -> None:
    assert [FreePorts("").take() for _ in range(2)] == [0, 0]


def test_each_port_is_given_once_and_those_in_use_are_left_out() -> None:
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as taken:
        first = min(taken.getsockname()[1], 65532)
        ports = FreePorts(f"{first}-{first + 3}")
        given: list[int] = []
        with pytest.raises(ConfigError, match=rf"ports={first}-{first + 3}: no port of this range is free"):
            given.extend(ports.take() for _ in range(4))
    assert sorted(set(given)) == given
    assert len(given) < 4


@pytest.mark.parametrize("given", ["7100", "7100-", "7119-7100", "80-90", "7100-70000", "a-b"])
def test_what_is_no_range_is_refused(given: str) -> None:
    with pytest.raises(ValidationError, match="expected FIRST-LAST of 1024 to 65535, like 7100-7119"):
        Config(ports=given)


LEAVES = """
import atexit, sys, threading, time
from paceline.launch.this_machine.leave import leave
file = open('file', 'w')
file.write('never closed')
atexit.register(print, 'at exit')
threading.Thread(target=lambda: (time.sleep(0.1), print('last thread'))).start()
print('said')
leave({code})
"""


@pytest.mark.parametrize(("code", "ends_with"), [("None", 0), ("78", 78), ("-1", 255), ("'why'", 1)])
def test_nothing_is_lost_of_a_process_that_leaves(tmp_path: Path, code: str, ends_with: int) -> None:
    found = subprocess.run(
        [sys.executable, "-c", LEAVES.format(code=code)], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert found.returncode == ends_with
    assert found.stdout.splitlines() == ["said", "last thread", "at exit"]
    assert found.stderr == ("why\n" if ends_with == 1 else "")
    assert (tmp_path / "file").read_text() == "never closed"
