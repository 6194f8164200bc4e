"""The processes of a local run: started afresh, each with its own log, named when they die, and all ended."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from paceline.base.private import make_private
from paceline.core.errors import OUT_OF_MEMORY, OutOfMemory, ScriptFailed, error_classes
from paceline.launch.forks.forker import Forked, Forker
from paceline.launch.this_machine.end_with_parent import tethered
from paceline.launch.this_machine.processors import kept_to
from paceline.rpc.memory import kernel_kills, memory_limit

TAIL_LINES = 12
TRACE_LINES = 40
"""Most lines of a crash that are shown."""
TAIL_BYTES = 16 << 10
WORKERS_LEAVE, ALL_GONE, SERVERS_GONE = 5.0, 10.0, 60.0
"""Seconds after the end was asked for: servers get the signal after the first, what is left is killed after the second, and a
server, which may be writing a snapshot and has a last one to write, after the third; so is a search's job, which has servers.
"""


@dataclass(slots=True)
class Child:
    """One process and its successors under the same name. Start it from a thread that lives as long as the launcher:
    the kernel ends children when the thread that started them ends."""

    name: str
    role: str
    """server, worker, evaluator, sharder or shard server; a search's are jobs."""
    arguments: list[str]
    """What follows `python -P`."""
    log: Path | None
    """Where its words go; None: to this process's stderr."""
    environment: Mapping[str, str]
    restarts_left: int = 0
    """How often it may be started again before it has got on."""
    forker: Forker | None = None
    """Starts it, if it can: quicker."""
    objects: int | None = None
    """A descriptor that it gets under the same number."""
    cores: Collection[int] = ()
    """The only CPU cores that it uses, and what it starts, where the system can do that; no limit if there are none."""
    code: int | None = None
    """How the newest process ended; negative for a signal."""
    given_up: bool = False
    is_mute: bool = False
    """Its log can't be opened, so that its words are lost."""
    ended_since: str = ""
    """Why the launcher itself has ended the newest process, in words; empty where it has not."""
    got_to: int = 0
    """How far it had come when its newest process was started (any unit that only grows)."""
    peak: int = 0
    """Largest memory of the process that ended last (bytes)."""
    _process: subprocess.Popen[bytes] | Forked | None = field(default=None, repr=False)
    _log_start: int = 0
    _kills_before: int | None = None
    restarts: int = field(init=False)
    """What `restarts_left` begins with, and is set back to."""

    def __post_init__(self) -> None:
        self.restarts = self.restarts_left

    def gets_on(self, here: int, fewest: int = 1) -> None:
        """It has died, having come so far: if that is further than when it was started, by this many at least, its deaths count
        from 0 again."""
        if here >= self.got_to + fewest:
            self.restarts_left = self.restarts

    def never_again(self) -> None:
        """It can't be started again, however far it has come."""
        self.restarts = self.restarts_left = 0

    def start(self) -> None:
        """A new process in its own group, so that a Ctrl-C reaches it through the launcher only."""
        log = self._open_log()
        self.code, self.ended_since = None, ""
        self._kills_before = kernel_kills()
        if self.forker is not None:
            words = (self.arguments, log, Path.cwd(), self.environment, self.cores, self.objects)
            if forked := self.forker.start(*words):
                self._process = forked
                return
        with nullcontext(2) if log is None else log.open("ab") as file, kept_to(self.cores):
            self._process = subprocess.Popen(
                tethered(sys.executable, "-P", *self.arguments),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=self.environment,
                start_new_session=True,
                pass_fds=() if self.objects is None else (self.objects,),
            )

    def _open_log(self) -> Path | None:
        """Where the next process writes; nowhere, where the disk takes nothing."""
        if self.log is None:
            return None
        try:
            make_private(self.log.parent)
            with self.log.open("ab") as log:
                self._log_start = log.tell()
        except OSError:
            self.is_mute = True
            return Path(os.devnull)
        self.is_mute = False
        return self.log

    def end(self, why: str) -> None:
        """Ends it at once; `why` is what `how_it_ended` then says."""
        self.ended_since = why
        self.signal(signal.SIGKILL)

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this machine."""
        return True

    @property
    def listens_at(self) -> str:
        """host:port of a server on another machine; empty while it is not known, and here, where it is reported in a file."""
        return ""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        return self._process is not None and self.poll() is None

    def poll(self) -> int | None:
        """The exit code once the process has ended; notes its peak memory."""
        if self._process is None or self.code is not None:
            return self.code
        if isinstance(self._process, Forked):
            self.code = self._process.poll()
            self.peak = self._process.peak
            return self.code
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid:
            self.code = self._process.returncode = os.waitstatus_to_exitcode(status)
            self.peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return self.code

    @property
    def is_done(self) -> bool:
        """Whether it has ended, and its part of the run is done: it needs no new start."""
        return self.poll() == 0 or (self.role == "worker" and self.code == ScriptFailed.exit_code)

    def signal(self, number: int) -> None:
        """Sends it to the process and all that it has started."""
        with suppress(ProcessLookupError):  # it has just ended, and its forker tells us later
            if self.running and self._process:
                os.killpg(self._process.pid, number)

    def tail(self) -> str:
        """The last lines that the newest process wrote, indented; all of its last words where it has some."""
        lines = self._lines()
        words = self.last_words().splitlines()[-TRACE_LINES:]
        whole = lines[-TAIL_LINES:] if len(words) <= TAIL_LINES else words
        return "".join(f"\n    {printable(line)}" for line in whole)

    def sentence(self) -> str | None:
        """The error that it ended with, as `exits` prints it, without its name; None where there is none."""
        text = "\n".join(self._lines())
        kinds = "|".join(error_classes())
        found = list(re.finditer(rf"^[\w-]+: (?:{kinds}): ", text, re.MULTILINE))
        return printable(text[found[-1].end() :].strip(), "\n") if found else None

    def last_words(self) -> str:
        """What it wrote that is no event of its log: from the last traceback on, where there is one."""
        text = "\n".join(line for line in self._lines() if not line.startswith("{"))
        return text[max(0, text.rfind("Traceback (most recent call last)")) :].strip()

    def _lines(self) -> list[str]:
        """The end of what the newest process wrote."""
        if self.log is None or self.is_mute or not self.log.exists():
            return []
        with self.log.open("rb") as log:
            log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()

    @property
    def lacked_memory(self) -> bool:
        """Whether memory ran out, as far as that can be known once it has ended."""
        if self.code == -signal.SIGABRT:
            return any(sign in self.last_words() for sign in OUT_OF_MEMORY)
        if self.code == -signal.SIGKILL:
            kills = kernel_kills()
            return kills is not None and self._kills_before is not None and kills > self._kills_before
        return self.code == OutOfMemory.exit_code

    def how_it_ended(self) -> str:
        """In words: the exit code, or the signal, with the memory where it may have been too much."""
        assert self.code is not None
        if self.ended_since and self.code == -signal.SIGKILL:
            return self.ended_since
        peak, limit = self.peak / 2**20, memory_limit() / 2**20
        memory = f"Its peak was {peak:,.0f} MiB, the limit here is {limit:,.0f} MiB for all processes"
        if self.code >= 0:
            lacked = f"ran out of memory (exit code {self.code}). {memory}"
            return lacked if self.lacked_memory else f"ended with exit code {self.code}"
        name = signal.Signals(-self.code).name
        if -self.code != signal.SIGKILL:
            lacked = f"ran out of memory ({name}). {memory}"
            return lacked if self.lacked_memory else f"was ended by signal {-self.code} ({name})"
        if self.lacked_memory:
            return f"was killed by the kernel ({name}), because memory ran out. {memory}"
        return f"was killed ({name}): by someone, or by the kernel because memory ran out. {memory}"


def end_all(
    children: Sequence[Child],
    hurry: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """SIGTERM to workers and evaluator, then to the servers, SIGKILL to those that are left too late, or at once in a `hurry`
    (a second Ctrl-C). Says which ones it waits for. Returns when all are gone."""
    start = time.monotonic()
    told: set[str] = set()
    is_said = False
    while running := [child for child in children if child.running]:
        elapsed = time.monotonic() - start
        clients = [child for child in running if child.role != "server"]
        if elapsed > SERVERS_GONE or hurry():
            _tell(children, signal.SIGKILL, set())
        elif elapsed > ALL_GONE:
            _tell([child for child in clients if child.role != "job"], signal.SIGKILL, set())
            _tell(children, signal.SIGTERM, told)
            if not is_said and (names := ", ".join(child.name for child in running if child.role == "server")):
                is_said = True
                say(f"Waiting for the last snapshot of {names}, {SERVERS_GONE - ALL_GONE:g} s at most.")
        elif clients and elapsed < WORKERS_LEAVE:
            _tell(clients, signal.SIGTERM, told)
        else:
            _tell(children, signal.SIGTERM, told)
        time.sleep(0.02)


def _tell(children: Iterable[Child], number: int, told: set[str]) -> None:
    for child in children:
        if child.name not in told:
            child.signal(number)
            told.add(child.name)


def printable(line: str, kept: str = "") -> str:
    """Without control characters, which could drive the terminal, but for those that are `kept`."""
    return "".join(letter if letter.isprintable() or letter in f"\t{kept}" else "?" for letter in line)
