"""Processes by fork: what becomes of them, and of the process that forks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from paceline.launch.forks.forker import Forked, Forker, Loads
from paceline.launch.supervise.children import Child, end_all
from paceline.launch.this_machine.child_environment import child_environment
from tests.support.gone import is_gone
from tests.support.processes import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
TELLS = """
import os, random, sys, numpy
told = [*sys.argv[1:], os.getpid(), os.environ["STAGE"], random.random(), numpy.random.rand()]
os.write(1, (" ".join(map(str, told)) + "\\n").encode())  # by one call: two children write to one file
sys.exit(int(sys.argv[1]))
"""
HANGS = "import time\nprint('hangs', flush=True)\ntime.sleep(600)\n"
MakeForker = Callable[..., Forker]
Two = Callable[..., tuple[Forker, Forker]]
MakeChild = Callable[..., Forked]


@pytest.fixture
def forker() -> Iterator[MakeForker]:
    made: list[Forker] = []

    def make(*modules: str, **environment: str) -> Forker:
        made.append(Forker(Loads(modules), {**child_environment(1), **environment}))
        return made[-1]

    yield make
    for one in made:
        one.close()


READS = "import os, sys\nprint(os.pread(int(sys.argv[1]), 99, 0).decode(), flush=True)\n"


def started(forker: Forker, folder: Path, text: str, *arguments: str) -> Forked:
    script = folder / "script.py"
    script.write_text(text)
    (folder / "log").touch()
    return forker.start([str(script), *arguments], folder / "log", folder, {**os.environ, "STAGE": "here"})


def ended(forker: Forker, folder: Path, *words: str, log: str | None = "log", objects: int | None = None) -> int:
    """The exit code of a child of these words."""
    child = forker.start(list(words), folder / log if log else None, folder, dict(os.environ), objects=objects)
    return child.wait(60)


def by_itself(forker: Forker, folder: Path, text: str, **environment: str) -> str:
    """What a child prints that ends well and may start without being forked."""
    (folder / "script.py").write_text(text)
    around = child_environment(1) | environment
    child = Child("job", "job", [str(folder / "script.py")], folder / "log", around, forker=forker)
    child.start()
    eventually(lambda: child.poll() is not None, "it ends")
    assert child.code == 0
    return (folder / "log").read_text()


def test_a_child_has_its_arguments_environment_log_and_exit_code(forker: MakeForker, tmp_path: Path) -> None:
    one = forker("numpy")
    children = [started(one, tmp_path, TELLS, "3", "words") for _ in range(2)]
    assert [child.wait(60) for child in children] == [3, 3]
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted(line[:4] for line in lines) == sorted(["3", "words", str(child.pid), "here"] for child in children)
    assert all(child.peak > 1 << 20 for child in children)
    assert lines[0][4] != lines[1][4]  # random numbers
    assert lines[0][5] != lines[1][5]


def test_children_that_end_at_once_all_have_their_codes_and_others_live_on(forker: MakeForker, tmp_path: Path) -> None:
    """Each end is a signal, and one may come while another one is seen to."""
    one, number = forker(), 12
    (tmp_path / "hangs").mkdir()
    bystander = started(one, tmp_path / "hangs", HANGS)
    waits = "import os, pathlib, sys\nwhile not pathlib.Path('go').exists():\n    pass\nos._exit(0)\n"
    for _ in range(3):
        (tmp_path / "go").unlink(missing_ok=True)
        children = [started(one, tmp_path, waits) for _ in range(number)]
        (tmp_path / "go").touch()

        assert [child.wait(60) for child in children] == [0] * number
    assert bystander.poll() is None


def test_the_death_of_the_forker_is_that_of_its_children_and_is_told(forker: MakeForker, tmp_path: Path) -> None:
    one = forker()
    child = started(one, tmp_path, HANGS)
    eventually(lambda: "hangs" in (tmp_path / "log").read_text(), "the child runs")
    os.kill(one.pid, signal.SIGKILL)
    assert child.wait(60) == -signal.SIGKILL
    eventually(lambda: is_gone(child.pid), "the child is gone")
    assert one.start(["-m", "this"], tmp_path / "log", tmp_path, {}) is None


def test_what_a_child_has_started_ends_with_it_when_the_forker_is_closed(forker: MakeForker, tmp_path: Path) -> None:
    """As after a Ctrl-C before the forker has told of the child, when nobody else can end that."""
    one = forker()
    started(one, tmp_path, "import subprocess\nprint(subprocess.Popen(['sleep', '600']).pid, flush=True)\n" + HANGS)
    eventually(lambda: "hangs" in (tmp_path / "log").read_text(), "it runs")
    one.close()
    pid = int((tmp_path / "log").read_text().split()[0])
    eventually(lambda: is_gone(pid), "what it has started is gone", 10)


@pytest.mark.parametrize("module", ["no_such_module", "a_thread"])
def test_where_fork_is_not_possible_a_child_starts_by_itself(forker: MakeForker, tmp_path: Path, module: str) -> None:
    (tmp_path / "a_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    one = forker(module, PYTHONPATH=str(tmp_path))
    assert by_itself(one, tmp_path, "print('by itself')\n") == "by itself\n"


def test_what_a_library_prints_while_it_loads_is_shown_once_and_disturbs_nothing(
    forker: MakeForker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "talks.py").write_text("import os, sys\nprint('a library')\nos.write(1, b'directly\\n')\n")
    one = forker("talks", PYTHONPATH=str(tmp_path), PYTHONUNBUFFERED="")

    child = started(one, tmp_path, "print('done')\n")

    assert child.wait(20) == 0
    assert (tmp_path / "log").read_text() == "done\n"
    assert sorted(capfd.readouterr().err.splitlines()) == ["a library", "directly"]


def test_a_child_without_a_log_writes_to_this_processs_stderr(
    forker: MakeForker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.py").write_text("import sys\nprint('one', flush=True)\nprint('two', file=sys.stderr)\n")

    assert ended(forker(), tmp_path, str(tmp_path / "script.py"), log=None) == 0
    assert capfd.readouterr().err == "one\ntwo\n"


def test_a_forker_that_says_what_nobody_understands_is_ended(forker: MakeForker, tmp_path: Path) -> None:
    (tmp_path / "confused.py").write_text("import os\nos.write(3, b'no JSON\\n')\n")
    one = forker("confused", PYTHONPATH=str(tmp_path))

    assert one.start(["-m", "this"], tmp_path / "log", tmp_path, dict(os.environ)) is None
    assert is_gone(one.pid)


@pytest.mark.parametrize("is_early", [True, False])
def test_a_child_with_an_environment_too_large_for_a_message_starts_by_itself(
    forker: MakeForker, tmp_path: Path, is_early: bool
) -> None:
    large = {f"LARGE_{n}": "x" * 100_000 for n in range(10)}
    one = forker("json", **(large if is_early else {}))
    assert by_itself(one, tmp_path, "import os\nprint(len(os.environ['LARGE_9']))\n", **large) == "100000\n"


CLOSED = """
import os, sys
from contextlib import closing
from pathlib import Path
from paceline.launch.forks.forker import Forker, Loads

with closing(Forker(Loads(("json",)), os.environ)) as one:
    child = one.start(["script.py"], Path("log"), Path.cwd(), os.environ)
    sys.exit(child.wait(60))
"""


@pytest.mark.parametrize("closed", [0, 1])
def test_a_process_without_stdin_or_stdout_forks_as_others_do(tmp_path: Path, closed: int) -> None:
    (tmp_path / "script.py").write_text("import sys\nsys.exit(3)\n")

    command = ["sh", "-c", f'exec "$@" {closed}>&-', "sh", sys.executable, "-c", CLOSED]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (3, "")


def test_numpy_starts_no_threads_however_many_a_worker_may_have(forker: MakeForker, tmp_path: Path) -> None:
    child = started(forker("numpy", OMP_NUM_THREADS="4"), tmp_path, TELLS, "0")
    assert child.wait(60) == 0


def test_signals_to_children_that_are_just_ending_are_no_error(forker: MakeForker, tmp_path: Path) -> None:
    one, script = forker(), tmp_path / "script.py"
    script.write_text(HANGS)
    for _ in range(10):
        around = child_environment(1)
        logs = [tmp_path / f"{n}.log" for n in range(4)]
        children = [Child(log.stem, "worker", [str(script)], log, around, forker=one) for log in logs]
        for child in children:
            child.start()
        end_all(children, lambda: True)
        assert [child.code for child in children] == [-signal.SIGKILL] * 4
        assert all(is_gone(child.pid or 0) for child in children)


def test_what_cannot_be_forked_in_time_is_not_forked_later(
    forker: MakeForker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = forker()
    started(one, tmp_path, HANGS)
    monkeypatch.setattr("paceline.launch.forks.forker._PATIENCE", 0.2)
    os.kill(one.pid, signal.SIGSTOP)
    begun = time.monotonic()
    assert one.start(["-m", "this"], tmp_path / "log", tmp_path, dict(os.environ)) is None
    assert time.monotonic() - begun < 60
    eventually(lambda: is_gone(one.pid), "it can't fork any more")


def test_what_a_script_fails_with_is_shown_as_its_own(forker: MakeForker, tmp_path: Path) -> None:
    child = started(forker(), tmp_path, "def f():\n    return {}['key']\n\n\nf()\n")

    assert child.wait(60) == 1
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[:2] == ["Traceback (most recent call last):", f'  File "{tmp_path}/script.py", line 5, in <module>']
    assert lines[-1] == "KeyError: 'key'"
    assert not any("fork_program.py" in line or "runpy" in line for line in lines)


@pytest.mark.parametrize(("end", "code"), [("", 0), ("sys.exit()", 0), ("sys.exit(78)", 78), ("sys.exit('why')", 1)])
@pytest.mark.parametrize("arguments", [["-m", "program"], ["program.py"]])
def test_a_program_that_ends_leaves_nothing_unsaid(
    forker: MakeForker, tmp_path: Path, arguments: list[str], end: str, code: int
) -> None:
    (tmp_path / "program.py").write_text(
        "import atexit, sys, threading, time\n"
        "file = open('file', 'w')\n"
        "file.write('never closed')\n"
        "atexit.register(print, 'at exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('last thread'))).start()\n"
        f"print('said'){';' * bool(end)}{end}\n"
    )

    assert ended(forker("json", PYTHONPATH=str(tmp_path)), tmp_path, *arguments) == code
    assert (tmp_path / "file").read_text() == "never closed"
    assert (tmp_path / "log").read_text().splitlines() == ["said", *["why"] * (code == 1), "last thread", "at exit"]


@pytest.mark.parametrize(
    ("text", "code", "shown"),
    [("print('said')\n", 0, "said\n"), ("import json\n1 / 0\n", 1, "ZeroDivisionError: division by zero\n")],
    ids=["prints, where stdout was buffered before the fork", "crashes"],
)
def test_what_a_program_prints_or_crashes_with_is_kept(
    forker: MakeForker, tmp_path: Path, text: str, code: int, shown: str
) -> None:
    (tmp_path / "program.py").write_text(text)

    assert ended(forker("json", PYTHONPATH=str(tmp_path), PYTHONUNBUFFERED=""), tmp_path, "-m", "program") == code
    assert (tmp_path / "log").read_text().endswith(shown)


LOADED = "import sys\nprint('wave' in sys.modules, flush=True)\n"


@pytest.fixture
def two() -> Iterator[Two]:
    made: list[Forker] = []

    def make(*second: str) -> tuple[Forker, Forker]:
        made.append(Forker(Loads(("json",)), child_environment(1)))
        made.append(Forker(Loads(second), child_environment(1), made[0]))
        return made[0], made[1]

    yield make
    for one in reversed(made):
        one.close()


def test_a_second_forker_has_what_the_first_one_loads_and_more(two: Two, tmp_path: Path) -> None:
    for one in two("wave"):
        child = started(one, tmp_path, LOADED)
        assert child.wait(60) == 0
        assert child.peak > 1 << 20

    assert (tmp_path / "log").read_text().split() == ["False", "True"]


def test_the_second_forker_and_its_children_end_with_the_first_one(two: Two, tmp_path: Path) -> None:
    first, second = two("wave")
    child = started(second, tmp_path, HANGS)
    os.kill(first.pid, signal.SIGKILL)

    assert child.wait(60) == -signal.SIGKILL
    eventually(lambda: is_gone(child.pid), "the child is gone")
    assert second.start(["-m", "this"], tmp_path / "log", tmp_path, {}) is None


def test_the_first_forker_goes_on_without_the_second_one(two: Two, tmp_path: Path) -> None:
    first, second = two("no_such_module")

    assert second.start(["-m", "this"], tmp_path / "log", tmp_path, {}) is None
    assert started(first, tmp_path, LOADED).wait(60) == 0


def test_a_second_forker_that_is_closed_ends_its_children_alone(two: Two, tmp_path: Path) -> None:
    first, second = two("wave")
    child = started(second, tmp_path, HANGS)
    second.close()

    assert child.wait(60) == -signal.SIGKILL
    assert started(first, tmp_path, LOADED).wait(60) == 0


def test_a_child_of_the_first_forker_does_not_wait_for_what_later_ones_load(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\nwhile not pathlib.Path(__file__).with_name('go').exists():\n    time.sleep(0.02)\n"
    )
    environment = {**child_environment(1), "PYTHONPATH": str(tmp_path)}
    with (
        closing(Forker(Loads(("json",)), environment)) as first,
        closing(Forker(Loads(("slow",)), environment, first)) as second,
        closing(Forker(Loads(("wave",)), environment, second)) as third,
    ):
        assert started(first, tmp_path, LOADED).wait(60) == 0
        assert (second.is_ready, third.is_ready) == (False, False)
        (tmp_path / "go").touch()
        assert [started(each, tmp_path, LOADED).wait(60) for each in (second, third)] == [0, 0]

    assert (tmp_path / "log").read_text().split() == ["False", "False", "True"]


def test_a_child_gets_the_objects_that_are_for_it_and_nothing_else(forker: MakeForker, tmp_path: Path) -> None:
    memory, other = os.memfd_create("given"), os.memfd_create("kept")
    os.write(memory, b"objects")
    one, script = forker("numpy"), tmp_path / "script.py"
    script.write_text(READS)
    try:
        for descriptor, objects, code in (*[(memory, memory, 0)] * 2, (memory, None, 1), (other, memory, 1)):
            assert ended(one, tmp_path, str(script), str(descriptor), objects=objects) == code
    finally:
        os.close(memory)
        os.close(other)

    assert [line for line in (tmp_path / "log").read_text().split() if line == "objects"] == ["objects"] * 2


def test_a_process_that_is_not_forked_gets_them_too_when_it_is_started_again(tmp_path: Path) -> None:
    memory = os.memfd_create("given")
    os.write(memory, b"objects")
    script, log = tmp_path / "script.py", tmp_path / "log"
    script.write_text(READS)
    child = Child("worker-0", "worker", [str(script), str(memory)], log, os.environ, objects=memory)
    for _ in range(2):
        child.start()
        eventually(lambda: not child.running, "its end")
    os.close(memory)
    assert log.read_text().split() == ["objects", "objects"]


FORKS = """
import atexit, json, os, sys, threading
from contextlib import closing
from pathlib import Path
from paceline.launch.this_machine.child_environment import child_environment
from paceline.launch.forks.forker import Forker, Loads

said, here = sys.argv[1:], Path.cwd()
if "thread" in said:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("begins")
locked = os.open("lock", os.O_CREAT)
environment = {**child_environment(1), "PYTHONPATH": str(here), "STAGE": "new"}
with (
    closing(Forker(Loads(("heavy",)), environment)) as first,
    closing(Forker(Loads(("wave",)), environment, first)) as second,
):
    children = [one.start(["child.py", str(locked), *said], here / "child", here, {**os.environ, "STAGE": "its own"})
                for one in (first, second)]
    print(first.pid, *(each.pid for each in children), flush=True)
    print(*(each.wait(60) for each in children))
"""
CHILD = """
import os, signal, sys, time
import heavy
kept = os.path.exists(f"/proc/self/fd/{sys.argv[1]}")
is_default = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
line = f"{kept} {heavy.STAGE} {os.environ['STAGE']} {'wave' in sys.modules} {is_default}\\n"
os.write(1, line.encode())  # by one call: both children write to one file
time.sleep(600 * ("hangs" in sys.argv))
sys.exit(5)
"""


@pytest.fixture
def forking_child(forker: MakeForker, tmp_path: Path) -> MakeChild:
    """A child, with `heavy` loaded, that makes a forker itself."""
    (tmp_path / "heavy.py").write_text(
        "import os\nSTAGE = os.environ.get('STAGE')\n"
        f"with open({str(tmp_path / 'loaded')!r}, 'a') as file:\n    file.write('loaded\\n')\n"
    )
    (tmp_path / "child.py").write_text(CHILD)
    one = forker("heavy", "paceline.launch.forks.forker", PYTHONPATH=str(tmp_path), STAGE="first")

    def start(*said: str) -> Forked:
        return started(one, tmp_path, "import signal\nsignal.signal(signal.SIGTERM, print)\n" + FORKS, *said)

    return start


def test_a_child_that_makes_a_forker_becomes_one_by_a_fork_and_loads_nothing_again(
    forking_child: MakeChild, tmp_path: Path
) -> None:
    assert forking_child().wait(60) == 0

    assert (tmp_path / "loaded").read_text() == "loaded\n"
    begins, _, codes = (tmp_path / "log").read_text().splitlines()
    assert (begins, codes) == ("begins", "5 5")
    children = (tmp_path / "child").read_text().splitlines()
    assert sorted(children) == ["False first its own False True", "False first its own True True"]


def test_a_child_that_has_a_thread_starts_its_forker_afresh(forking_child: MakeChild, tmp_path: Path) -> None:
    assert forking_child("thread").wait(60) == 0

    assert (tmp_path / "loaded").read_text() == "loaded\nloaded\n"
    assert (tmp_path / "log").read_text().splitlines()[-1] == "5 5"
    assert "False new its own False True" in (tmp_path / "child").read_text()


def test_what_a_child_has_forked_ends_with_it(forking_child: MakeChild, tmp_path: Path) -> None:
    child = forking_child("hangs")
    eventually(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().count("own") == 2, "they run")
    # they may run before the one that forks them has told their pids, which it does in pieces
    eventually(lambda: (tmp_path / "log").read_text().count("\n") == 2, "their pids")
    pids = [int(word) for word in (tmp_path / "log").read_text().splitlines()[1].split()]
    assert len(pids) == 3
    assert not any(is_gone(pid) for pid in pids)

    os.kill(child.pid, signal.SIGKILL)

    eventually(lambda: all(is_gone(pid) for pid in pids), "all are gone")
