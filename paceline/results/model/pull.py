"""`paceline pull`: one version of a run's model as a file that plain torch loads, while the run trains or afterwards."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from paceline.base.private import make_private
from paceline.core.errors import ConfigError, DataError, DiskError, UsageError
from paceline.core.extension import Options
from paceline.core.policies.policy import build_policy
from paceline.data.whole_file import replacing
from paceline.launch.status.chief_status import RemoteChief, plain
from paceline.launch.status.run_status import find_chief
from paceline.results.model.live_run import KeptVersions, LiveRun, Versions, put_together, refuse_gone
from paceline.results.model.run_model import Trained
from paceline.results.model.run_weights import Source, weights_of
from paceline.rpc.agreed_settings import agreed_settings
from paceline.rpc.enums import phase_of
from paceline.settings.own_extensions import OWN
from paceline.v1.run_service_pb2 import StatusReply

ENDING = ".safetensors"


class WantedVersion(NamedTuple):
    """Which version is wanted; the newest where nothing is said."""

    version: int | None = None
    best: bool = False


@dataclass(frozen=True, slots=True)
class Pulled:
    """What was written."""

    path: Path
    origin: str
    """servers, snapshot, last or best"""
    versions: Versions | None
    """None where the file does not say it."""
    notes: Sequence[str] = ()

    def summary(self) -> list[str]:
        """For people."""
        where = {
            "servers": "from its servers",
            "snapshot": "from its servers' snapshots",
            "last": "the final model",
            "best": "the best model that was scored so far",
        }[self.origin]
        which = f", {self.versions}" if self.versions else ""
        return [f"{self.path}: {where}{which}", *self.notes]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = {"path": str(self.path), "origin": self.origin, "notes": list(self.notes)}
        if self.versions:
            found |= {"versions": list(self.versions.of_slices), "is_one_moment": self.versions.is_one_moment}
        return found


def pull(source: Source, out: Path, asked: WantedVersion = WantedVersion()) -> Pulled:  # noqa: B008 - a constant
    """Writes the file. UsageError: another ending, or no such version; NotYet: nothing is trained; ServersGone: a run that
    has not ended does not answer; DataError: what is kept is damaged; DiskError: the file can't be written."""
    if out.suffix != ENDING:
        raise UsageError(f"Can't pull to {out}: the file's ending must be {ENDING}. Other forms: paceline export.")
    if asked.best and asked.version is not None:
        raise UsageError("--best and --version: give only one of them.")
    try:
        make_private(out.parent)
    except OSError as error:
        raise DiskError(f"Can't make the folder {out.parent}: {error.strerror}.") from error
    if source.place is not None:
        OWN.open(source.place.path)
    if asked.version is not None:
        return _of_snapshots(source, out, asked.version)
    if asked.best:
        return _saved(source, out, "best")
    return _newest(source, out)


def _newest(source: Source, out: Path) -> Pulled:
    """From the servers while the run goes on; what an ended one has kept."""
    status = _status(source)
    if status is not None and (phase_of(status) != "finished" or not _has(source, "last")):
        return _of_servers(source, out)
    if source.place is None:
        raise refuse_gone(source)
    facts = source.place.facts()
    if status is None and facts.get("exit_code") is None:
        raise refuse_gone(source)
    for which in ("last", "best"):
        if _has(source, which):
            return _saved(source, out, which)
    there = _snapshots(source, weights_of(source).plan.lengths).versions
    if not there:
        raise DataError(f"Run '{source.name}' has ended, and has kept no model and no snapshot of all slices.")
    return _of_snapshots(source, out, there[-1])


def _status(source: Source) -> StatusReply | None:
    """Where the run is; None where it has ended, has not begun, or does not answer."""
    if source.place is not None:
        chief = find_chief(source.place, RemoteChief)
    else:
        chief = RemoteChief(source.addresses[0], source.credentials)
    try:
        return chief.status() if chief else None
    finally:
        if chief:
            chief.close()


def _of_servers(source: Source, out: Path) -> Pulled:
    weights = weights_of(source)
    live = LiveRun(source, weights)
    try:
        status = live.status()
        if status is None:
            raise refuse_gone(source)
        versions = live.pull(status)
    finally:
        live.close()
    scores = [plain(score) for score in status.scores]
    notes = weights.write(out, facts_of(source, "servers", versions, scores[-1] if scores else None))
    return Pulled(out, "servers", versions, notes)


def _of_snapshots(source: Source, out: Path, version: int) -> Pulled:
    weights = weights_of(source)
    slices, versions = _snapshots(source, weights.plan.lengths).read(version)
    put_together(weights, slices)
    scores = [score for score in _scores(source) if max(score["versions"], default=0) <= versions.newest]
    notes = weights.write(out, facts_of(source, "snapshot", versions, scores[-1] if scores else None))
    if source.config.mean_from is not None:
        notes = [*notes, "The run averages its versions; a snapshot's file holds the weights of this one version."]
    return Pulled(out, "snapshot", versions, notes)


def _snapshots(source: Source, lengths: Sequence[int]) -> KeptVersions:
    place = source.place
    if place is None or not all(place.server(index).is_dir() for index in range(source.config.servers)):
        raise ConfigError(
            f"Run '{source.name}' keeps its snapshots where its servers are. Leave out --version for the newest one, or "
            "pull on the machine that has the folders of all servers."
        )
    return KeptVersions([place.server(index) for index in range(source.config.servers)], lengths)


def _saved(source: Source, out: Path, which: str) -> Pulled:
    """A file that the run has kept, with what it does not say of itself."""
    if source.place is None:
        raise UsageError("--best is for a run whose folder is on this machine: the model lies in it.")
    trained = Trained(source.place)
    path = trained.file(which)
    framework, save_file = _framework(trained)
    try:
        with safe_open(path, framework) as file:
            facts: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except SafetensorError as error:
        raise DataError(f"{path} is damaged: {error}. Take another version: --version.") from error
    score, versions = score_of(facts, _scores(source)), None
    if numbers := versions_of(facts, score):
        is_one = (
            len(numbers) == 1 or which == "last" or in_lock_step(source, numbers)
        )  # the last one comes after all pushes
        versions = Versions(numbers, is_one, source.config.policy.name)
    with replacing(out, "the model") as temporary:
        save_file(tensors, temporary, {**facts, **facts_of(source, which, versions, score)})
    return Pulled(out, which, versions)


def _framework(trained: Trained) -> tuple[str, Callable[..., object]]:
    """By what safetensors holds the model's tensors, and how it writes them; linear models need no torch."""
    if trained.is_linear:
        from safetensors.numpy import save_file as save_arrays

        return "np", save_arrays
    from safetensors.torch import save_file

    return "pt", save_file


def facts_of(source: Source, origin: str, versions: Versions | None, score: Mapping[str, Any] | None) -> dict[str, str]:
    """The metadata of a model's file: what was trained, by which settings, and how far. `score`: the newest one that the
    version has, or that an older one has."""
    settings = "\n".join(agreed_settings(source.config))
    facts = {
        "run": source.name,
        "task": Path(source.config.task).name,
        "config_sha256": hashlib.sha256(settings.encode()).hexdigest(),
        "origin": origin,
    }
    if versions is not None:
        facts |= {
            "version": str(versions.newest),
            "versions": json.dumps(versions.of_slices),
            "one_moment": json.dumps(versions.is_one_moment),
        }
    if score is not None:
        facts["score"] = json.dumps({key: score[key] for key in ("epoch", "versions", "metrics") if key in score})
    return facts


def _scores(source: Source) -> list[dict[str, Any]]:
    """Those that the run's folder has, oldest first."""
    return [] if source.place is None else list(source.place.last_status().get("scores") or ())


def score_of(facts: Mapping[str, str], scores: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Of these scores the newest that the model has whose file says these facts; None where it has none."""

    def is_its(score: Mapping[str, Any]) -> bool:
        metrics = score.get("metrics", {})
        same = all(facts.get(name) == f"{value:.6g}" for name, value in metrics.items())
        return same and facts.get("epoch") == str(score.get("epoch"))

    return next(filter(is_its, reversed(scores)), None)


def versions_of(facts: Mapping[str, str], score: Mapping[str, Any] | None) -> tuple[int, ...]:
    """The version of each slice of a model that a run has kept: as its file says, otherwise the score that it belongs to,
    which comes later; none where neither does."""
    return tuple(json.loads(facts["versions"]) if "versions" in facts else (score or {}).get("versions") or ())


def in_lock_step(source: Source, versions: Sequence[int]) -> bool:
    """Whether all slices had the same version, and the run has trained in rounds up to now."""
    assert source.place is not None
    newest = source.place.last_status().get("policy")
    policies = [source.config.policy, *([Options(**json.loads(newest))] if newest else [])]
    return len(set(versions)) == 1 and all(build_policy(policy).rounds for policy in policies)


def _has(source: Source, which: str) -> bool:
    return source.place is not None and (source.place.models / f"{which}{ENDING}").is_file()
