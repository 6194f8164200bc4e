"""Reads versions of a run's weights: the newest from its servers while it trains, others from their snapshots."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from paceline.core.errors import ConfigError, DataError, NotYet, ServersGone, UsageError
from paceline.core.extension import Options
from paceline.core.policies.policy import build_policy
from paceline.core.values import Vector
from paceline.launch.status.chief_status import RemoteChief
from paceline.results.model.run_weights import Source, Weights
from paceline.rpc.enums import phase_of
from paceline.rpc.setting_values import policy_value
from paceline.server.disk import Disk
from paceline.server.json_files import CheckedFiles
from paceline.server.snapshot_files import DAMAGES, SnapshotFiles
from paceline.v1.run_service_pb2 import StatusReply
from paceline.worker.exchange.parameter_client import ParameterClient, pull_newest
from paceline.worker.surroundings import Surroundings

READER = "reader"
"""What servers call a process that only reads."""
PATIENCE = 30.0
"""Longest time that servers may take to answer, those that are just coming back too (seconds)."""


class Versions(NamedTuple):
    """Which weights were read."""

    of_slices: tuple[int, ...]
    """Folds of each server's slice that has weights."""
    is_one_moment: bool
    """Whether the whole model was so at one moment."""
    policy: str = ""

    @property
    def newest(self) -> int:
        return max(self.of_slices)

    def __str__(self) -> str:
        """'version 128, the same on all 2 slices', for people."""
        low, high, count = min(self.of_slices), self.newest, len(self.of_slices)
        if count == 1:
            return f"version {high:,}"
        if self.is_one_moment:
            return f"version {high:,}, the same on all {count} slices"
        run = f" ({self.policy} lets slices run apart)" if self.policy else ""
        spread = f"version {low:,}" if low == high else f"versions {low:,} to {high:,}"
        return f"{spread} of {count} slices, which were read one by one{run}: no single moment's model"


class LiveRun:
    """The servers of a run that trains. One call at a time."""

    def __init__(self, source: Source, weights: Weights) -> None:
        """ConfigError: the run has no servers."""
        if not source.config.servers:
            raise ConfigError(
                f"Run '{source.name}' has no servers: each worker has its own model, and no one has the run's while it "
                "trains. Take the best one that was scored so far with --best."
            )
        if not source.addresses:
            raise NotYet(f"Run '{source.name}' has no servers yet. Try again in a moment.")
        self._source = source
        self._weights = weights
        self._chief = RemoteChief(source.addresses[0], source.credentials)
        around = Surroundings(
            config=source.config, name=READER, addresses=source.addresses, credentials=source.credentials
        )
        self._client = ParameterClient(around, weights.plan)
        self._client.pull_exactly()

    def status(self) -> StatusReply | None:
        """Where the run is; None while the chief can't be reached."""
        return self._chief.status()

    def pull(self, status: StatusReply, into: Vector | None = None) -> Versions:
        """The newest version into the weights; in rounds one that all slices have had. NotYet: nothing is trained yet;
        ServersGone: a server does not answer."""
        if phase_of(status) == "waiting":
            lacking = f", and waits for {', '.join(status.missing)}" if status.missing else ""
            raise NotYet(f"Run '{self._source.name}' has not begun to train{lacking}. Try again in a moment.")
        policy = policy_value(status.policy) if status.HasField("policy") else self._source.config.policy.model_dump()
        is_in_rounds = bool(build_policy(Options(**policy)).rounds)
        self._client.give_up_after(PATIENCE)
        flat = self._weights.flat if into is None else into
        found = pull_newest(self._client, flat, is_in_rounds, self._source.config.mean_from is not None)
        lengths = self._weights.plan.lengths
        own = tuple(version for version, length in zip(found, lengths, strict=True) if length)
        is_one = len(own) == 1 or (is_in_rounds and len(set(own)) == 1)
        return Versions(own, is_one, str(policy["name"]))

    def close(self) -> None:
        self._chief.close()


class _Snapshot(NamedTuple):
    number: int
    is_in_rounds: bool


class KeptVersions:
    """The snapshots in the folders of a run's servers."""

    def __init__(self, folders: Sequence[Path], lengths: Sequence[int]) -> None:
        """`lengths`: elements of each server's slice."""
        self._files = [
            SnapshotFiles(CheckedFiles(folder, Disk(), None), Disk(), 0, None, lambda event, **facts: None)
            for folder, length in zip(folders, lengths, strict=True)
            if length
        ]
        self._each = [_whole(files) for files in self._files]

    @property
    def versions(self) -> list[int]:
        """Those of which all slices are kept: in rounds the same ones, otherwise those of the first slice."""
        first, *others = self._each or [{}]
        return sorted(
            version
            for version, snapshot in first.items()
            if all(version in found if snapshot.is_in_rounds else found for found in others)
        )

    def read(self, version: int) -> tuple[list[Vector], Versions]:
        """The slices of this version, and the versions that they have: where slices run apart, those nearest to it.
        UsageError lists the versions that are kept."""
        if version not in self.versions:
            there = ", ".join(f"{each:,}" for each in self.versions) or "none"
            raise UsageError(f"There is no snapshot of version {version:,}. Versions that are kept: {there}.")
        is_in_rounds = self._each[0][version].is_in_rounds
        chosen = [version if is_in_rounds else min(found, key=lambda each: abs(each - version)) for found in self._each]
        slices = []
        for files, found, of in zip(self._files, self._each, chosen, strict=True):
            try:
                slices.append(files.load(found[of].number)[1].weights)
            except DAMAGES as error:
                raise DataError(
                    f"The snapshot of version {of:,} can't be read: {error}. If the run trains, it was replaced meanwhile: "
                    "take another version."
                ) from error
        return slices, Versions(tuple(chosen), len(chosen) == 1 or is_in_rounds)


def _whole(files: SnapshotFiles) -> Mapping[int, _Snapshot]:
    """The snapshots that can be read, by version; of several the newest. One that is removed meanwhile is left out."""
    found = {}
    for number in sorted(files.numbers()):
        with suppress(*DAMAGES):
            table = files.checked(number)[0]["table"]
            found[int(table["version"])] = _Snapshot(number, bool(table.get("rounds")))
    return found


def put_together(weights: Weights, slices: Sequence[Vector]) -> None:
    """Copies the slices into the flat model. DataError: they are of another model."""
    own = [views for views in weights.plan.split(weights.flat) if views]
    if [len(values) for values in slices] != [sum(map(len, views)) for views in own]:
        raise DataError(
            "The snapshots are of another model than the task has now: their slices have "
            f"{', '.join(f'{len(values):,}' for values in slices)} weights. Has the task file changed since?"
        )
    for views, values in zip(own, slices, strict=True):
        start = 0
        for view in views:
            np.copyto(view, values[start : start + len(view)])
            start += len(view)


def refuse_gone(source: Source) -> ServersGone:
    """What to say where the servers of a run that has not ended don't answer."""
    if source.place is not None:
        return source.place.gone()
    return ServersGone(f"No server answers at {source.addresses[0]}. Is the run going on, and is this its gRPC port?")
