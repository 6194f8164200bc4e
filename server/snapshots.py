"""Takes snapshots during training: copies a consistent state under the lock, writes it without the lock."""

import threading
import time
from collections.abc import Callable

from paceline.core.errors import DiskError
from paceline.server.metrics import ServerMetrics
from paceline.server.slice_driver import SliceDriver
from paceline.server.state_folder import StateFolder


class Snapshots:
    """Writes a snapshot every `every` seconds while something changes. A failing disk costs durability, not the run."""

    def __init__(
        self, driver: SliceDriver, folder: StateFolder, every: float, metrics: ServerMetrics, say: Callable[..., None]
    ) -> None:
        self._driver = driver
        self._folder = folder
        self._every = every
        self._metrics = metrics
        self._say = say
        self._writing = threading.Lock()
        self._stop = threading.Event()
        self._last: tuple[int, int] | None = None
        self._thread = threading.Thread(target=self._work, name="snapshots", daemon=True)

    def start(self) -> None:
        """Starts to write in the background."""
        self._thread.start()

    def write_now(self) -> None:
        """Writes the present state unless it is already on disk; logs a failure."""
        with self._writing:
            found = self._driver.state()
            if found is None:
                return
            plan, state = found
            mark = (state.table["version"], state.table["pushes"])
            if mark == self._last:
                return
            start = time.monotonic()
            try:
                self._folder.save_snapshot(plan, state)
            except DiskError as error:
                self._metrics.checkpoint_failures.inc()
                self._say("snapshot failed; training goes on", why=str(error))
                return
            self._last = mark
            self._metrics.checkpoint_seconds.observe(time.monotonic() - start)
            self._metrics.checkpoint_time.set(time.time())

    def close(self) -> None:
        """Ends the background thread and writes the last state."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.write_now()

    def _work(self) -> None:
        while not self._stop.wait(self._every):
            self.write_now()
