"""Takes snapshots during training: a consistent state under the lock, written without the lock, and a pause between two. Where
there is a store, each is safe once that has it."""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from paceline.core.errors import ConfigError, DiskError, PacelineError, ServersGone
from paceline.server.disk import DiskTrouble
from paceline.server.metrics import ServerMetrics
from paceline.server.sent_snapshots import SentSnapshots, Superseded
from paceline.server.slice_driver import SliceDriver
from paceline.server.slice_snapshots import Mark
from paceline.server.state_folder import StateFolder

SHORTEST, LONGEST = 1.0, 30.0
"""Bounds of a pause that no setting gives (seconds). With them, a server that is killed every few seconds still makes
progress."""
_SHARE = 2.0
"""Of the time that the last one took: the disk is busy for a third of the time at most."""
_SHARE_OF_STORE = 9.0
"""Of the time that sending it took: requests cost a server's processor, so it sends for a tenth of the time at most."""
_SILENCE = 60.0
"""Time that the store may take for a snapshot before that is said (seconds)."""
_LAST = 40.0
"""How long a server that stops waits for the store: `paceline run` gives it 60 s in all (seconds)."""


@dataclass(frozen=True, slots=True)
class Owed:
    """A snapshot in the folder that the store does not have yet."""

    number: int
    term: int
    table: dict[str, Any]


class Snapshots:
    """Writes a snapshot after each pause while something changes. A failing disk, or store, costs durability, not the run. A
    thread by itself sends snapshots to the store: however long that takes, those on the disk go on. While the store does not
    take them, rounds count what is on the disk, as without a store."""

    def __init__(
        self,
        driver: SliceDriver,
        folder: StateFolder,
        every: float | None,
        metrics: ServerMetrics,
        say: Callable[..., None],
        sent: SentSnapshots | None = None,
    ) -> None:
        """`every`: as `snapshot_pause` takes it; `sent`: the store, if there is one."""
        self._driver = driver
        self._folder = folder
        self._every = every
        self._took: float | None = None
        self._sent_in = 0.0
        """How long the store took for it (seconds)."""
        self._metrics = metrics
        self._say = say
        self.trouble = DiskTrouble("snapshot failed; training goes on", "snapshots are written again", say)
        self.store_trouble = DiskTrouble(
            "can't send snapshots to the store; training goes on", "snapshots are sent to the store again", say
        )
        self.removal_trouble = DiskTrouble(
            "can't remove older snapshots from the store", "older snapshots are removed from the store again", say
        )
        self.seconds = 0.0
        """In which snapshots were written, or tried (seconds)."""
        self._writing = threading.Lock()
        self._stop = False
        self._wake = threading.Event()
        driver.hurry = self._wake.set
        self._last: Mark | None = None
        self._sent = sent
        self._sending = threading.Lock()
        self._owed: Owed | None = None
        self._sends_since: float | None = None
        """When the present sending began; None: nothing is sent."""
        self._to_send = threading.Event()
        self._thread = threading.Thread(target=self._work, name="snapshots", daemon=True)
        self._sender = threading.Thread(target=self._send_on, name="sends-snapshots", daemon=True)
        metrics.checkpoint_interval.set(self.pause)

    @property
    def pause(self) -> float:
        """Seconds from the end of the last snapshot, or from the start, to the next one."""
        return snapshot_pause(self._every, self._took, self._sent_in)

    def start(self) -> None:
        """Starts to write in the background."""
        self._thread.start()
        if self._sent is not None:
            self._sender.start()

    def write_now(self) -> bool:
        """Writes the present state unless it is already on disk; logs a failure, and returns whether it is on disk. Waits for
        one that is being written."""
        if self._driver.has_named:
            self._keep(is_named=True)
        return self._keep()

    def send_now(self) -> bool:
        """Sends the newest snapshot, and the folder's other files, to the store, if there is one; logs a failure, and returns
        whether it has all. Waits for one that is being sent."""
        if self._sent is None:
            return True
        with self._sending:
            if self._driver.failure is not None:
                return False
            start, is_sent, has_news = time.monotonic(), False, self._owed is not None
            self._sends_since = start
            try:
                self._send(self._sent)
            except Superseded as error:
                self._driver.fails(error)
            except (PacelineError, MemoryError) as error:
                self._store_failed(error)
            except OSError as error:
                self._store_failed(DiskError(f"Can't read {self._folder.path}: {error}."))
            except Exception as error:
                self._driver.fails(error)
            else:
                is_sent = True
                self.store_trouble.works()
            finally:
                self._sends_since = self._folder.being_sent = None
            took = time.monotonic() - start
            self._sent_in = took if has_news else self._sent_in
            self._note_time(took)
            return is_sent

    @property
    def safe_numbers(self) -> Collection[int] | None:
        """The snapshots of the folder that can't be lost with it; None: all count, since it has no store, or none that takes
        them. Any thread may read it."""
        return None if self._sent is None or self.store_trouble.said else self._sent.numbers

    @contextmanager
    def none_written(self) -> Iterator[None]:
        """Meanwhile nothing is written."""
        with self._writing:
            yield
            self._last = None
            if self._sent is not None:
                self._sent.forget()

    def _keep(self, is_named: bool = False) -> bool:
        """Writes the present state, or that of the named version; logs a failure, and returns whether it is on disk."""
        with self._writing:
            if self._driver.failure is not None:
                return False
            start, is_kept = time.monotonic(), False
            try:
                if not self._write(is_named):
                    return True
            except (DiskError, MemoryError) as error:
                self._failed(error)
            except Exception as error:  # of a policy's own state, say: waiting does not help
                self._driver.fails(error)
                return False
            else:
                is_kept = True
                self.trouble.works()
                self._metrics.checkpoint_seconds.observe(time.monotonic() - start)
                self._metrics.checkpoint_time.set(time.time())
            self._took = time.monotonic() - start
            self._note_time(self._took)
            return is_kept

    def _failed(self, error: PacelineError | MemoryError) -> None:
        """Notes that nothing more is safe now."""
        self._driver.note_durable(None)
        self._metrics.checkpoint_failures.inc()
        self.trouble.failed(error)

    def _store_failed(self, error: PacelineError | MemoryError) -> None:
        """In rounds what is on the disk is as safe as it gets from now on, so that all can go back; otherwise workers keep
        their pushes until the store has them."""
        self._metrics.checkpoint_failures.inc()
        self.store_trouble.failed(error)
        with self._writing:
            owed, in_rounds = self._owed, self._driver.keeps_step
            is_here = in_rounds and owed is not None and owed.term == self._folder.term
            self._driver.note_durable(owed.table if is_here and owed is not None else None)

    def _note_time(self, seconds: float) -> None:
        self.seconds += seconds
        self._metrics.checkpoint_interval.set(self.pause)

    def close(self) -> None:
        """Ends the background thread, once the snapshot that it writes is whole, and writes the last state. Sends it, too; but
        a slow store is not waited for longer than the process has."""
        self._stop = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        if not self.write_now() and self._driver.failure is None:
            self._say("the last state is not on the disk", folder=str(self._folder.path), why=self.trouble.said)
        if self._sender.is_alive():
            self._to_send.set()
            self._sender.join(_LAST)
        else:
            self.send_now()
        if self._owed is not None and self._driver.failure is None:
            self._say(
                "the last snapshot is not in the store, only in the folder",
                folder=str(self._folder.path),
                why=self.store_trouble.said or f"the store has not taken it for {_LAST:g} s",
            )

    def _write(self, is_named: bool) -> bool:
        """False: there is nothing new."""
        with self._driver.snapshot(self._last, is_named) as found:
            if found is None:
                return False
            plan, state, mark = found
            self._folder.save_snapshot(plan, state)
            if self._sent is None or (self.store_trouble.said and self._driver.keeps_step):
                self._driver.note_durable(state.table)
            if self._sent is not None:
                self._owed = Owed(self._folder.current, self._folder.term, state.table)
                self._to_send.set()
            self._last = mark
            return True

    def _send(self, sent: SentSnapshots) -> None:
        """Raises what the store does. What is no longer in the folder, since all servers have gone back, is not sent."""
        with self._writing:
            owed = self._owed
            if owed is not None and owed.term != self._folder.term:
                self._owed = owed = None
            self._folder.being_sent = None if owed is None else owed.number
        if owed is None:
            sent.send_tables()
            self._prune(sent)  # what could not be removed before
            return

        sent.send(owed.number)
        with self._writing:
            if owed.term == self._folder.term:
                sent.has(owed.number)
                self._driver.note_durable(owed.table)
            if self._owed is owed:
                self._owed = None
        self._prune(sent)

    def _prune(self, sent: SentSnapshots) -> None:
        """What can't be removed costs room in the store, and nothing that was sent. Raises ServersGone."""
        try:
            sent.prune()
        except (ConfigError, DiskError) as error:
            self.removal_trouble.failed(error)
        else:
            self.removal_trouble.works()

    def _work(self) -> None:
        while not self._stop:
            self._wake.wait(self.pause)
            self._wake.clear()
            if self._driver.has_named:
                self._keep(is_named=True)
            elif not self._driver.keeps_step:
                self._keep()
            since = self._sends_since
            if since is not None and time.monotonic() - since > _SILENCE and not self.store_trouble.said:
                self._store_failed(ServersGone(f"The store has not taken a snapshot for {_SILENCE:g} s."))
            self._to_send.set()

    def _send_on(self) -> None:
        while not self._stop:
            self._to_send.wait()
            self._to_send.clear()
            self.send_now()
        self.send_now()


def snapshot_pause(every: float | None, took: float | None, sent_in: float = 0.0) -> float:
    """Seconds until the next snapshot. `every`: the setting, None where there is none. `took`: seconds that the last try of
    this start took, None before it; `sent_in`: seconds that the store took for it."""
    if every is not None:
        return every
    return min(max(SHORTEST, _SHARE * (took or 0.0) + _SHARE_OF_STORE * sent_in), LONGEST)
