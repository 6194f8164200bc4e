"""Takes snapshots during training: a consistent state under the lock, written without the lock, and a pause between two."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paceline.core.errors import DiskError
from paceline.server.disk import DiskTrouble
from paceline.server.metrics import ServerMetrics
from paceline.server.slice_driver import SliceDriver
from paceline.server.slice_snapshots import Mark
from paceline.server.state_folder import StateFolder

SHORTEST, LONGEST = 1.0, 30.0
"""Bounds of a pause that no setting gives (seconds). With them, a server that is killed every few seconds still makes
progress."""
_SHARE = 2.0
"""Of the time that the last one took: the disk is busy for a third of the time at most."""


class Snapshots:
    """Writes a snapshot after each pause while something changes. A failing disk costs durability, not the run."""

    def __init__(
        self,
        driver: SliceDriver,
        folder: StateFolder,
        every: float | None,
        metrics: ServerMetrics,
        say: Callable[..., None],
    ) -> None:
        """`every`: as `snapshot_pause` takes it."""
        self._driver = driver
        self._folder = folder
        self._every = every
        self._took: float | None = None
        self._metrics = metrics
        self.trouble = DiskTrouble("snapshot failed; training goes on", "snapshots are written again", say)
        self.seconds = 0.0
        """In which snapshots were written, or tried (seconds)."""
        self._writing = threading.Lock()
        self._stop = False
        self._wake = threading.Event()
        driver.hurry = self._wake.set
        self._last: Mark | None = None
        self._thread = threading.Thread(target=self._work, name="snapshots", daemon=True)
        metrics.checkpoint_interval.set(self.pause)

    @property
    def pause(self) -> float:
        """Seconds from the end of the last snapshot, or from the start, to the next one."""
        return snapshot_pause(self._every, self._took)

    def start(self) -> None:
        """Starts to write in the background."""
        self._thread.start()

    def write_now(self) -> bool:
        """Writes the present state unless it is already on disk; logs a failure, and returns whether it is on disk. Waits for
        one that is being written."""
        if self._driver.has_named:
            self._keep(is_named=True)
        return self._keep()

    @contextmanager
    def none_written(self) -> Iterator[None]:
        """Meanwhile nothing is written."""
        with self._writing:
            yield
            self._last = None

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
                self._driver.note_durable(None)
                self._metrics.checkpoint_failures.inc()
                self.trouble.failed(error)
            except Exception as error:  # of a policy's own state, say: waiting does not help
                self._driver.fails(error)
                return False
            else:
                is_kept = True
                self.trouble.works()
                self._metrics.checkpoint_seconds.observe(time.monotonic() - start)
                self._metrics.checkpoint_time.set(time.time())
            self._took = time.monotonic() - start
            self.seconds += self._took
            self._metrics.checkpoint_interval.set(self.pause)
            return is_kept

    def close(self) -> None:
        """Ends the background thread, once the snapshot that it writes is whole, and writes the last state."""
        self._stop = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self.write_now()

    def _write(self, is_named: bool) -> bool:
        """False: there is nothing new."""
        with self._driver.snapshot(self._last, is_named) as found:
            if found is None:
                return False
            plan, state, mark = found
            self._folder.save_snapshot(plan, state)
            self._driver.note_durable(state.table)
            self._last = mark
            return True

    def _work(self) -> None:
        while not self._stop:
            self._wake.wait(self.pause)
            self._wake.clear()
            if self._driver.has_named:
                self._keep(is_named=True)
            elif not self._driver.keeps_step:
                self._keep()


def snapshot_pause(every: float | None, took: float | None) -> float:
    """Seconds until the next snapshot. `every`: the setting, None where there is none. `took`: seconds that the last try of
    this start took, None before it."""
    if every is not None:
        return every
    return min(max(SHORTEST, _SHARE * (took or 0.0)), LONGEST)
