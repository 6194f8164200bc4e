"""The processes of a run on this machine: begun, waited for, and started again where that can help. What a user's script prints
is shown while it runs."""

import re
import signal
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

from paceline.core.errors import ConfigError, DataError, DiskError, OutOfMemory, PacelineError, Stopped, UsageError
from paceline.launch.folder.own_records import OwnRecords
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.forks.forker import Forker
from paceline.launch.supervise.children import Child, end_all, printable
from paceline.launch.supervise.faults import Faults
from paceline.launch.supervise.frozen_servers import FrozenServers
from paceline.launch.supervise.others import Others
from paceline.launch.this_machine.signals import Signals

T = TypeVar("T")
TICK = 0.02
"""Seconds between two looks at what is waited for."""
HOPELESS = (UsageError.exit_code, DataError.exit_code, ConfigError.exit_code)
"""Exit codes of mistakes that a second start would only repeat."""
DISK_PAUSE = 5.0
"""Seconds before a process is started again that the disk has ended."""
DISK_FORGOTTEN = 60.0
"""Seconds after which a disk's next failure is said again."""
_UNCAUGHT = 1
"""Python's exit code after an exception that nobody has caught: in a user's script it is theirs to repair."""
_FEW_STEPS = 10
"""Steps in which a script that raises has not got on: what it raises at each step, as a scheduler after its last one, would
start it again at every step of the rest."""
_BY_OTHERS = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, Stopped.exit_code)
_OWN_FAULTS = (_UNCAUGHT, PacelineError.exit_code, OutOfMemory.exit_code)
_EVENT = b'{"process": "'
"""What our own lines in a log begin with."""
_ERROR = re.compile(rb"Traceback \(most recent call last\)|script: [A-Z]\w+: ")
"""What the end of a script begins with: Python's own, or ours (worker/script/__main__.py)."""


class Ended(Exception):
    """The run can't or must not go on."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Processes:
    """All of one launch. Lives in the main thread, because children end with the thread that started them."""

    def __init__(
        self,
        folder: RunFolder,
        own: OwnRecords,
        *,
        say: Callable[[str], None],
        echo: Callable[[str], None],
        signals: Signals,
        forkers: Mapping[str, Forker],
        others: Others,
        frozen: FrozenServers,
        faults: Faults,
        objects: int | None,
        is_unheard: Callable[[], bool],
        has_begun: Callable[[], bool],
        has_trained: Callable[[], bool],
        got_to: Callable[[Child], int],
        waits_for_lost: Callable[[], bool],
    ) -> None:
        """`echo`: gets what scripts print; `objects`: the descriptor that all but servers inherit; `is_unheard`: whether a
        script has yet to say what it wants; `has_begun`: whether anything was pushed; `has_trained`: whether scripts have only
        their own last lines left; `got_to`: how far a process has come (any unit that only grows); `waits_for_lost`: whether
        workers wait for one that is gone."""
        self._folder = folder
        self._own = own
        self._say = say
        self._echo = echo
        self._signals = signals
        self._forkers = forkers
        self._others = others
        self._objects = objects
        self._is_unheard = is_unheard
        self._has_begun = has_begun
        self._has_trained = has_trained
        self._got_to = got_to
        self._waits_for_lost = waits_for_lost
        self._waits = ""
        """What all wait for, as the run's folder says."""
        self._frozen = frozen
        self._faults = faults
        self._disk_failed: dict[str, float] = {}
        """When the disk has ended a process last."""
        self._restart_at: dict[str, float] = {}
        self._crashes = Crashes()
        self._children: list[Child] = []
        self.failed: list[str] = []
        """Whose script failed after its training."""
        self._printed: list[Printed] = []

    # starting
    def begin(self, name: str, role: str, command: list[str], environment: Mapping[str, str], restarts: int) -> Child:
        """Starts one; `command`: what follows `python -P`."""
        forker = self._forkers.get(role)
        if forker is not None:
            self.wait_for(lambda: forker.is_ready)
        objects = None if role == "server" else self._objects
        child = Child(name, role, command, self._folder.log(name), environment, restarts, forker, objects)
        return self.take(child)

    def take(self, child: Child) -> Child:
        """Starts one that others have made."""
        self._children.append(child)
        child.start()
        return child

    def show_log(self, name: str) -> None:
        """From now on people see what this one prints."""
        self._printed.append(Printed(self._folder.log(name), self._echo))

    # looking after them
    def wait_for(self, ready: Callable[[], T], seconds: float = float("inf")) -> T | None:
        """Looks after the children until `ready` gives something, or None when the time is over. Ended on a signal."""
        end = time.monotonic() + seconds
        while True:
            if self._signals.exit_code is not None:
                raise Ended(self._signals.exit_code, "stopped on request")
            self._attend()
            found = ready()
            left = end - time.monotonic()
            if found or left <= 0:
                return found or None
            time.sleep(min(TICK, left))

    def let_end(self, seconds: float, are_scripts: bool = False) -> None:
        """Workers leave and the evaluator writes the model; a signal cuts that short. Scripts have the time that they need
        for what comes after their training."""
        self._wait_for_end(seconds)
        if are_scripts:
            late = ", ".join(child.name for child in self.clients() if child.running)
            if late and not self._signals.seen:
                self._say(f"The training is over; the script of {late} still runs. Ctrl-C ends it.")
                self._wait_for_end(float("inf"))
        for child in [] if self._signals.seen else self.clients():
            if child.poll() and child.role == "evaluator":
                lost = f"{child.name} {child.how_it_ended()} after the end; its model may be missing."
                self._say(f"{lost} It said:{child.tail()}")
            elif child.poll() and are_scripts and not child.given_up:
                self._note_failed(child)

    def _wait_for_end(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.present() and time.monotonic() < end and not self._signals.seen:
            self._tell_printed()
            time.sleep(0.05)

    def call_back(self) -> None:
        """The run waits for workers again, since it was given more epochs while it stopped: those that have left it come."""
        for child in self._children:
            if child.role == "worker" and child.poll() == 0:
                self._start_again(child)

    def refuse_untrained(self, workers: Collection[str]) -> None:
        """Ended where one of these has ended with 0 before the run has begun: the others would wait for it."""
        for child in self.clients():
            if child.name in workers:
                waits = (
                    "before it had trained, and the others would wait for it. Look for what ends it: sys.exit, os._exit"
                )
                raise Ended(ConfigError.exit_code, f"{child.name} {child.how_it_ended()} {waits}.{child.tail()}")

    def start_unfinished(self, workers: Collection[str]) -> None:
        """These have ended with 0 in the middle of their training, as by os._exit(0): they have died."""
        for child in self.clients():
            if child.name in workers and not child.given_up:
                self._died(child, 0)

    def give_up_unfinished(self, workers: Collection[str]) -> None:
        """These have ended with 0, and yet the run lacks what they were to train."""
        for child in self.clients():
            if child.name in workers and child.code == 0 and not child.given_up:
                child.given_up = True
                self._say(f"{child.name} {child.how_it_ended()} before its training was over.{child.tail()}")

    def thaw(self) -> None:
        """What a fault has frozen goes on, so that it can end."""
        self._faults.thaw(self._children)

    def end(self) -> None:
        """None is left after this."""
        self._frozen.close()
        self.thaw()
        end_all(self._children, self._signals.hurry, self._say)
        self._tell_printed()

    # looking things up
    def clients(self) -> list[Child]:
        """Workers and the evaluator."""
        return [child for child in self._children if child.role in ("worker", "evaluator")]

    @property
    def ended_with_0(self) -> list[str]:
        """Workers that have ended as if their part was done."""
        return [child.name for child in self.clients() if child.role == "worker" and child.poll() == 0]

    @property
    def in_vain(self) -> list[str]:
        """Workers that were started again in vain, or that their own fault has ended where `restarts` is 0."""
        return [
            child.name
            for child in self.clients()
            if child.given_up and (child.restarts or child.lacked_memory or child.code not in _BY_OTHERS)
        ]

    def has_given_up(self, name: str) -> bool:
        """Whether a process of this machine has ended, and is not started again."""
        return any(child.name == name and child.given_up for child in self._children)

    def are_gone(self, workers: Collection[str]) -> bool:
        """Whether these have ended for good: they are not started again, and no machine lends them."""
        gone = {child.name for child in self._children if child.given_up or child.is_done}
        return gone.issuperset(workers) and not self._others.awaited()

    def present(self) -> int:
        """How many workers and evaluators run."""
        return sum(child.running for child in self.clients())

    def note_pids(self) -> None:
        """Writes into the run's folder which ones run."""
        running = {child.name: child.pid for child in self._children if child.pid is not None and child.running}
        self._own.note(pids=running)

    # what becomes of those that end
    def _attend(self) -> None:
        """Names dead children and starts them again where that can help; shows what a script prints."""
        self._tell_printed()
        try:
            self._others.attend(self._children)
        except PacelineError as error:
            raise Ended(error.exit_code, str(error)) from error
        if (waits := self._others.waits()) != self._waits:
            self._waits = waits
            self._own.note(waits=waits)
        self._frozen.end_frozen(self._children, time.monotonic())
        self._faults.inflict(self._children, time.monotonic())
        for child in self._children:
            code = child.poll()
            if code is None or child.given_up or (code == 0 and child.role != "server"):
                continue
            if child.name in self.failed or (code and child.is_done):
                self._note_failed(child)
            elif child.name not in self._restart_at:
                self._died(child, code)
            elif time.monotonic() >= self._restart_at[child.name]:
                del self._restart_at[child.name]
                self._start_again(child)

    def _tell_printed(self) -> None:
        for each in self._printed:
            each.tell()

    def _note_failed(self, child: Child) -> None:
        """Says it once: the others train on, and the run is none the worse."""
        if child.name not in self.failed:
            self.failed.append(child.name)
            how = "" if child.is_done else f": it {child.how_it_ended()}"
            self._say(f"The script of {child.name} failed after its training{how}. Its last lines:{child.tail()}")

    def _died(self, child: Child, code: int) -> None:
        what = f"{child.name} {child.how_it_ended()}"
        if child.role == "worker" and self._has_trained():
            self._note_failed(child)
            return
        if code in HOPELESS or child.role in ("sharder", "check"):
            reason = child.sentence() or f"{what}. It said:{child.tail()}"
            raise Ended(code if code > 0 else PacelineError.exit_code, reason)
        if child.role == "worker" and code > 0 and self._is_unheard():
            reason = f"{what} before it had begun to train.{child.tail()}"
            raise Ended(ConfigError.exit_code if code == 1 else code, reason)
        if child.role == "worker" and not self._has_begun() and (again := self._crashes.repeated(child, code)):
            raise Ended(Crashes.exit_code(code), again)
        if code == DiskError.exit_code and self._has_begun():
            self._await_disk(child, what)
            return
        child.gets_on(self._got_to(child), _FEW_STEPS if child.role == "worker" and code == _UNCAUGHT else 1)
        if child.restarts_left:
            child.restarts_left -= 1
            self._say(f"{what}; starting it again ({child.restarts_left} restarts left). Its last lines:{child.tail()}")
            self._start_again(child)
            return
        self._give_up(child, code, what)

    def _await_disk(self, child: Child, what: str) -> None:
        """A disk that fails costs durability, not the run: none of these starts counts."""
        now = time.monotonic()
        if now - self._disk_failed.get(child.name, float("-inf")) > DISK_FORGOTTEN:
            again = f"It is started again every {DISK_PAUSE:.0f} s until the disk takes what it writes."
            self._say(f"{what}: {child.sentence() or 'it can not write to its disk.'} {again}")
        self._disk_failed[child.name] = now
        self._restart_at[child.name] = now + DISK_PAUSE

    def _start_again(self, child: Child) -> None:
        child.got_to = self._got_to(child)
        child.start()
        self.note_pids()
        if child.is_mute:
            self._say(f"{child.log} can't be written, so what {child.name} says is lost.")

    def _give_up(self, child: Child, code: int, what: str) -> None:
        """The run goes on without a worker, as long as there is another one and it may; without any other process it can't, nor
        where an error in the user's code would leave out this worker's part of the data."""
        child.given_up = True
        workers = [other for other in self._children if other.role == "worker"]
        is_last = all(worker.given_up for worker in workers) and not self._others.awaited()
        is_mistake = child.role == "worker" and code == _UNCAUGHT and child.is_here
        if child.role != "worker" or is_last or is_mistake or self._waits_for_lost():
            last = "the last worker, " if child.role == "worker" and is_last else ""
            waits = child.role == "worker" and not is_last and self._waits_for_lost()
            others = "; the others would wait for it (on_lost_worker=wait)" if waits else ""
            raise Ended(
                Crashes.exit_code(code) if is_mistake else code if code > 0 else PacelineError.exit_code,
                f"{last}{what}, and has no restarts left{_in_vain(child)}{others}. Its last lines:{child.tail()}",
            )
        self._say(
            f"{what} and has no restarts left{_in_vain(child)}; the others go on without it. Its last lines:{child.tail()}"
        )


def _in_vain(child: Child) -> str:
    """Why nobody starts it once more."""
    if not child.restarts:
        return ""
    times = "once" if child.restarts == 1 else f"{child.restarts} times"
    return f": it was started again {times} (`restarts`), and training got hardly further in between"


class Crashes:
    """The deaths of workers before anything was pushed."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}
        """Who died with these last words first."""

    def repeated(self, child: Child, code: int) -> str | None:
        """Notes a death; says so where the same one was seen before, of this worker or another."""
        words = _bare(child.last_words(), child.name)
        if not words or not (code in _OWN_FAULTS or (code < 0 and code not in _BY_OTHERS)):
            return None
        if words not in self._seen:
            self._seen[words] = child.name
            return None
        other = "again" if self._seen[words] == child.name else f"as {self._seen[words]} did"
        last = words.splitlines()[-1]
        return f"{child.name} ended before its first push, {other}, so another start would not help: {last}"

    @staticmethod
    def exit_code(code: int) -> int:
        """Of a run that ends for it."""
        return ConfigError.exit_code if code == _UNCAUGHT else code if code > 0 else PacelineError.exit_code


def _bare(words: str, name: str) -> str:
    """Without what differs from start to start."""
    return re.sub(r"0x[0-9a-f]+|\bpid \d+", "_", words.replace(name, "worker")).strip()


class Printed:
    """What a script prints, as it comes: the whole lines of its log that are not ours."""

    def __init__(self, log: Path, say: Callable[[str], None]) -> None:
        self._log = log
        self._say = say
        self._read = log.stat().st_size if log.exists() else 0
        self._left = b""
        """A line that has not ended yet, without what it has overwritten, like a progress bar."""

    def tell(self) -> None:
        """Says what is new."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._read)
                text = log.read()
        except OSError:  # not begun yet
            return
        self._read += len(text)
        *lines, left = (self._left + text).split(b"\n")
        self._left = left[max(0, left.rstrip(b"\r").rfind(b"\r")) :]
        for line in lines:
            if _ERROR.match(line):  # the error says how it ended
                break
            if not line.startswith(_EVENT):
                self._say(printable(line.rstrip(b"\r").decode(errors="replace").rpartition("\r")[2]))
