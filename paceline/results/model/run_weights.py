"""The weights of a run as one flat vector, and the file that users take home, for each kind of model that a run can train."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from safetensors import SafetensorError

from paceline.core.errors import DataError, NotYet
from paceline.core.settings.config import Config
from paceline.core.slice.plan import Shapes, SlicePlan, make_plan
from paceline.core.values import Vector
from paceline.data.inputs import Inputs
from paceline.data.linear_model import LOSS, Labels, Parts, classes_of, save_safetensors, shapes_of
from paceline.data.shards import Shards, open_shards
from paceline.data.whole_file import replacing
from paceline.launch.folder.run_folder import RunFolder
from paceline.rpc.auth import Credentials
from paceline.server.disk import Disk
from paceline.server.json_files import CheckedFiles
from paceline.server.snapshot_files import DAMAGES, SnapshotFiles
from paceline.tasks.task import load_config, load_task
from paceline.worker.startup.run_process import check_addresses


class Source(NamedTuple):
    """Where the weights of one run can be read."""

    name: str
    config: Config
    addresses: list[str]
    """host:port of each server; empty while none has begun."""
    credentials: Credentials
    task: str
    """As `load_task` takes it."""
    shards: Path
    place: RunFolder | None
    """None: its folder is on another machine."""

    @classmethod
    def of_folder(cls, place: RunFolder) -> Self:
        """A run of this machine. ConfigError where its settings or its token can't be read."""
        config = place.settings()
        addresses = [str(address) for address in place.facts().get("servers", ())]
        return cls(place.name, config, addresses, place.credentials(), place.task(config.task), place.shards, place)

    @classmethod
    def elsewhere(cls, config: Path, servers: str, credentials: Credentials, shards: Path | None) -> Self:
        """A run of other machines, by its settings and its servers. ConfigError where these do not fit."""
        found = load_config(config, {}, own_file=False)
        addresses = check_addresses(servers, found)
        return cls(found.run or addresses[0], found, addresses, credentials, found.task, shards or Path("shards"), None)


class Weights(ABC):
    """A model of the run's form, as one vector that versions are read into. Not thread-safe."""

    config: Config
    plan: SlicePlan
    """How the servers have cut it."""
    flat: Vector

    @abstractmethod
    def write(self, path: Path, facts: Mapping[str, str]) -> list[str]:
        """Writes what `flat` holds as safetensors with these facts; what people should know of the file. DiskError."""


def weights_of(source: Source) -> Weights:
    """Those of the run. ConfigError, DataError where its task, its shards or its snapshots can't be read."""
    if source.config.updates == "sparse":
        return _LinearWeights(source)
    if source.config.data.source == "script":
        return _ScriptWeights(source)
    return ModuleWeights(source)


class ModuleWeights(Weights):
    """Of the torch model of a task."""

    def __init__(self, source: Source, device: str = "cpu") -> None:
        from paceline.worker.training.model_and_gradient import Replica

        self.config = config = source.config
        self.task = load_task(source.task, config.model)
        self.replica = Replica(self.task, device, config.seed)
        self.plan = make_plan(self.replica.shapes, config.servers, config.plan)
        self.flat = self.replica.local
        self._shards = source.shards
        shards = self._opened()
        self.inputs = None if shards is None else Inputs.of(shards.manifest)

    def settle(self) -> None:
        """`flat` was changed: the model follows, with statistics of BatchNorm that fit. DataError where that needs training
        data that this machine does not have."""
        from torch.nn.modules.batchnorm import _BatchNorm

        from paceline.worker.scoring.scorer import sample_rows

        self.replica.refresh()
        if not any(isinstance(layer, _BatchNorm) for layer in self.replica.model.modules()):
            return
        shards = self._opened()
        if shards is None:
            raise DataError(
                f"The model of task '{self.task.name}' has BatchNorm, whose statistics are estimated on training data, but "
                f"there are no shards in {self._shards}. Give their folder with --shards."
            )
        self.replica.recalibrate(*shards.rows(sample_rows(shards, self.config.seed)))

    def write(self, path: Path, facts: Mapping[str, str]) -> list[str]:
        from paceline.worker.scoring.model_file import save_model

        self.settle()
        inputs = {} if self.inputs is None else self.inputs.facts
        save_model(path, self.replica, {**facts, **inputs})
        return []

    def _opened(self) -> Shards | None:
        try:
            return open_shards(self._shards)
        except DataError:
            return None


class _LinearWeights(Weights):
    """Of a linear model over sparse rows."""

    def __init__(self, source: Source) -> None:
        self.config = config = source.config
        self._manifest = open_shards(source.shards).manifest
        self.plan = make_plan(shapes_of(self._manifest, config.svm.intercept), config.servers, config.plan)
        self.flat = np.zeros(self.plan.total, np.float32)

    def write(self, path: Path, facts: Mapping[str, str]) -> list[str]:
        svm, inputs = self.config.svm, Inputs.of(self._manifest).facts
        parts = Parts.of(self.flat, classes_of(self._manifest), svm.intercept)
        loss = svm.objective.over(self._manifest.train_weight).loss
        labels = Labels.of(svm.positive, self._manifest.classes or ())
        save_safetensors(path, parts, labels, {**facts, **inputs, LOSS: loss})
        return []


class _ScriptWeights(Weights):
    """Of a model whose code is in a script: what the servers call its tensors, in the newest file that the run has kept."""

    def __init__(self, source: Source) -> None:
        self.config = config = source.config
        if source.place is None:
            raise DataError(
                "The model of a script's run is known by the run's folder alone. Pull it on the machine that has the folder."
            )
        self._models = source.place.models
        self.plan = make_plan(_shapes_in(source.place.server(0)), config.servers, config.plan)
        self.flat = np.zeros(self.plan.total, np.float32)

    def write(self, path: Path, facts: Mapping[str, str]) -> list[str]:
        import torch
        from safetensors.torch import save_file

        starts = np.cumsum([0, *(int(np.prod(shape)) for _, shape in self.plan.shapes)])
        trained = {
            name: torch.from_numpy(self.flat[start:stop].reshape(shape).copy())
            for (name, shape), start, stop in zip(self.plan.shapes, starts[:-1], starts[1:], strict=True)
        }
        kept = self._scored_state()
        tied = {
            other: name
            for name in trained
            for other, value in kept.items()
            if other not in trained and name in kept and _same(value, kept[name])
        }
        whole = {**kept, **trained, **{other: trained[name].clone() for other, name in tied.items()}}
        found = {name: value.to(kept[name].dtype) if name in kept else value for name, value in whole.items()}
        with replacing(path, "the model") as temporary:
            save_file(found, temporary, {"format": "pt", **facts})
        return (
            [] if kept else ["It holds what the servers train: load it with model.load_state_dict(..., strict=False)."]
        )

    def _scored_state(self) -> dict[str, Any]:
        """The model's whole state as it was scored last."""
        from safetensors.torch import load_file

        for name in ("last", "best"):
            try:
                return load_file(self._models / f"{name}.safetensors")
            except (OSError, SafetensorError):
                continue
        return {}


def _same(one: Any, other: Any) -> bool:
    return one.shape == other.shape and one.numel() > 1 and bool((one == other).all())


def _shapes_in(folder: Path) -> Shapes:
    """The model's tensors, as a server's newest readable snapshot names them."""
    files = SnapshotFiles(CheckedFiles(folder, Disk(), None), Disk(), 0, None, lambda event, **facts: None)
    for number in sorted(files.numbers(), reverse=True):
        try:
            return files.plan(number).shapes
        except DAMAGES:
            continue
    raise NotYet(
        f"There is no snapshot in {folder} yet, which would say what the script trains. Try again in a moment."
    )
