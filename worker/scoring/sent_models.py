"""The models of a run, sent to where `models_at` says as soon as they are written: a folder with the run's name."""

from pathlib import Path

from paceline.core.errors import DiskError, ServersGone
from paceline.data.stored_folder import StoredFolder
from paceline.rpc.retries import Patient
from paceline.worker.surroundings import Surroundings


class SentModels:
    """Copies files of a folder to a URL, each under its name. Not thread-safe."""

    def __init__(self, url: str, models: Path, around: Surroundings) -> None:
        """Raises what is wrong with the URL or the credentials (`StoredFolder`). An earlier start of this process may have
        written a best model, and not sent it."""
        folder = f"{url.rstrip('/')}/{around.config.run or ''}"
        self._store = StoredFolder(folder, Patient(around.stop, around.say))
        self._store.what = "models"
        self._models = models
        self._say = around.say
        self._owed = {"best"} if any(models.glob("best.*")) else set[str]()
        self._store.look()

    def send(self, name: str, is_last: bool) -> None:
        """Sends the files of that name, and those that could not be sent before. Raises ConfigError if rights are missing,
        and DiskError or ServersGone if the last model can't be sent; one before it may wait."""
        self._owed.add(name)
        try:
            for each in sorted(self._owed):
                for file in sorted(self._models.glob(f"{each}.*")):
                    self._store.put(self._models, file.name)
                self._owed.discard(each)
        except (DiskError, ServersGone) as error:
            if is_last:
                raise
            self._say("can't send the best model so far; scoring goes on", why=str(error))
