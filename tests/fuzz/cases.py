"""Runs one reader over many damaged files: each must be read, or refused by a PacelineError, quickly and in little memory."""

import random
import re
import resource
import signal
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from paceline.core.errors import PacelineError, is_out_of_memory
from tests.fuzz.mutations import damaged, noise

SECONDS = 1.0
"""Longest that a case may take, of its thread's CPU time: a busy machine makes no case fail."""
MEMORY = 64 << 20
"""Most that a case may allocate (bytes)."""
TOGETHER = 500
"""Cases that are run under one limit of memory."""


def as_it_is(content: bytes) -> bytes:
    return content


class Endless(BaseException):
    """No Exception: readers catch these."""


class Form(NamedTuple):
    """A valid file, and what reads it."""

    read: Callable[[bytes], object]
    content: bytes
    finish: Callable[[bytes], bytes] = as_it_is
    """Makes it fit again when it was damaged: appends the checksum, packs it."""

    @property
    def whole(self) -> bytes:
        return self.finish(self.content)


Reader = Sequence[Form]
"""All forms of one kind of file."""


class Spent(NamedTuple):
    """What became of the cases of one reader."""

    cases: int
    seconds: float
    """Of CPU time, all that the cases took to be made included."""
    slowest: float
    said: Counter[str]
    """How often each error was raised; '': none."""


def case(form: Form, dice: random.Random) -> bytes:
    """Random bytes, or the valid file damaged before it is finished, afterwards, or both."""
    if dice.random() < 0.05:
        return noise(dice)
    if form.finish is as_it_is:
        return damaged(dice, form.content)
    way = dice.random()
    found = form.finish(damaged(dice, form.content) if way < 0.8 else form.content)
    return damaged(dice, found) if way > 0.7 else found


def run(reader: Reader, count: int, dice: random.Random) -> Spent:
    """This number of cases. AssertionError says what the first bad one is."""
    said: Counter[str] = Counter()
    began, slowest = time.thread_time(), 0.0
    for start in range(0, count, TOGETHER):
        with limited(MEMORY):
            for _ in range(min(TOGETHER, count - start)):
                form = dice.choice(reader)
                kind, seconds = tried(form.read, case(form, dice))
                said[kind] += 1
                slowest = max(slowest, seconds)
    return Spent(count, time.thread_time() - began, slowest, said)


def tried(read: Callable[[bytes], object], content: bytes) -> tuple[str, float]:
    """The error that this content raises, '' for none, and how long that took (seconds)."""
    began = time.thread_time()
    kind = ""
    signal.setitimer(signal.ITIMER_PROF, 5 * SECONDS)
    try:
        read(content)
    except PacelineError as error:
        kind = type(error).__name__
        if not str(error) or type(error) is PacelineError:
            raise AssertionError(f"an error without a kind or words, {error!r}, of {shown(content)}") from error
        if any(map(is_out_of_memory, _causes(error))):
            raise AssertionError(f"more than {MEMORY:,} bytes for {shown(content)}") from error
    except (Exception, Endless) as error:
        raise AssertionError(f"{type(error).__name__} ({error!s:.200}) for {shown(content)}") from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    seconds = time.thread_time() - began
    assert seconds < SECONDS, f"{seconds:.2f} s for {shown(content)}"
    return kind, seconds


def shown(content: bytes) -> str:
    """As it can be pasted into a test."""
    text = repr(content)
    if len(text) <= 2000:
        return text
    file = Path(tempfile.gettempdir()) / f"paceline-fuzz-{zlib.crc32(content):08x}"
    file.write_bytes(content)
    return f"{text[:300]}... of {len(content):,} bytes, in {file}"


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for the cases' files: in memory where there is such a place, since a disk would take most of the time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="paceline-fuzz-", dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


@contextmanager
def limited(more: int) -> Iterator[None]:
    """A MemoryError where this process takes more than this number of bytes besides those that it has, `Endless` where a case
    does not end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + more, hard))
    before = signal.signal(signal.SIGPROF, _endless)
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _endless(*_: object) -> None:
    """Ends a case that takes CPU time without end."""
    raise Endless(f"still busy after {5 * SECONDS} s of CPU time")


def _data_bytes() -> int:
    found = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None, "Linux says it"
    return int(found[1]) << 10


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
