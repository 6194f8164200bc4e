"""Follows a run in its own thread: reads each newer version, and lets it answer."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from paceline.core.errors import DataError, PacelineError
from paceline.launch.folder.run_folder import RunFolder
from paceline.results.model.live_run import LiveRun, Versions
from paceline.results.model.pull import in_lock_step, score_of, versions_of
from paceline.results.model.run_model import Trained
from paceline.results.model.run_weights import Source
from paceline.results.serving.metrics import ServeMetrics
from paceline.results.serving.served_model import ServedModel
from paceline.settings.own_extensions import OWN


class Follower:
    """While the run goes on, the newest version of its servers; afterwards the model that it has kept. What can't be read
    leaves the last one in place."""

    def __init__(
        self, source: Source, model: ServedModel, metrics: ServeMetrics, say: Callable[..., None], best: bool = False
    ) -> None:
        """`best`: the best version that was scored so far, instead of the newest."""
        self._source = source
        self._model = model
        self._metrics = metrics
        self._say = say
        self._best = best
        self._live: LiveRun | None = None
        self._addresses: list[str] = []
        self._seen: Any = None
        """What was read last: the chief's version and term, or a file's time."""
        self._failed = ""
        if source.place is not None:
            OWN.open(source.place.path)

    def run(self, stop: threading.Event, every: float) -> None:
        """Looks now and every few seconds until told to stop."""
        while True:
            self.look()
            if stop.wait(every):
                return

    def look(self) -> bool:
        """Reads what is newer than the last; whether there was something. What goes wrong is said once, and counted."""
        try:
            found = self._look()
        except Exception as error:  # whatever it is, the next look may go well
            self._metrics.failed()
            why = str(error) if isinstance(error, PacelineError) else f"{type(error).__name__}: {error}"
            if why != self._failed:
                self._failed = why
                self._say("no newer model; the last one goes on answering", why=self._failed)
            return False
        self._failed = ""
        return found

    def _look(self) -> bool:
        place = self._source.place
        if place is not None and (self._best or place.facts().get("exit_code") is not None):
            return self._take_kept(place)
        return self._take_live(place)

    def _take_live(self, place: RunFolder | None) -> bool:
        live = self._servers(place)
        status = live.status()
        if status is None:
            raise DataError(f"The chief of run '{self._source.name}' does not answer.")
        newest = (status.version, status.servers[0].term if status.servers else 0, status.went_back)
        if newest == self._seen:
            return False
        versions = live.pull(status, self._model.spare.flat)
        self._model.spare.settle()
        self._swap(versions)
        self._seen = newest
        return True

    def _servers(self, place: RunFolder | None) -> LiveRun:
        """The run's servers, which a resumed run may have elsewhere."""
        source = self._source if place is None else self._source._replace(addresses=Source.of_folder(place).addresses)
        if self._live is None or source.addresses != self._addresses:
            if self._live is not None:
                self._live.close()
            self._live = LiveRun(source, self._model.spare)
            self._addresses = source.addresses
        return self._live

    def _take_kept(self, place: RunFolder) -> bool:
        trained = Trained(place)
        path = _model_file(place, self._best)
        if path is None:
            trained.file("best" if self._best else "last")  # says why it is missing
            return False
        seen = (path, path.stat().st_mtime_ns)
        if seen == self._seen:
            return False
        trained.load_into(self._model.spare.replica.model, path.stem)
        with safe_open(path, "numpy") as file:
            facts = file.metadata() or {}
        numbers = versions_of(facts, score_of(facts, place.last_status().get("scores") or [])) or (0,)
        is_one = path.stem == "last" or len(numbers) == 1 or in_lock_step(self._source, numbers)
        self._swap(Versions(numbers, is_one))
        self._seen = seen
        return True

    def _swap(self, versions: Versions) -> None:
        if not np.isfinite(self._model.spare.flat).all():
            raise DataError(f"{versions} has weights that are not finite.")
        self._model.swap(versions)
        self._metrics.swapped(versions.newest)
        self._say("serves", versions=list(versions.of_slices), is_one_moment=versions.is_one_moment)


def _model_file(place: RunFolder, best: bool) -> Path | None:
    """The file of the final model, or of the best one; None where there is none."""
    names = ("best",) if best else ("last", "best")
    return next((path for name in names if (path := place.models / f"{name}.safetensors").is_file()), None)
