"""What members of a run say of themselves, as far as it can be right: lengths, numbers and names are bounded before they are
kept, logged or shown."""

import math
from collections.abc import Iterable, Mapping

from paceline.core.chief.phases import RunPhase
from paceline.core.errors import BadPush, TryAgain
from paceline.core.settings.config import Config
from paceline.v1 import run_service_pb2 as pb

MOST_FIGURES = 512
"""Figures of one heartbeat."""
MOST_METRICS = 512
"""Metrics of one score."""
MOST_SETTINGS = 4096
"""Settings of one worker."""
_NAME = 200
"""Characters of a name, a host, a phase."""
_LINE = 1 << 16
"""Characters of a setting, and of a reason to stop."""
_LATEST = 1 << 53
"""Largest count that JSON keeps."""


def check_join(request: pb.JoinRequest) -> None:
    """BadPush: a worker's claims when it joins can't be right."""
    _short(request.worker, {"fingerprint": request.fingerprint, "address": request.address, "host": request.host})
    _few(request.worker, "settings", request.settings, MOST_SETTINGS, _LINE)
    _counts(request.worker, {"examples": request.examples, "steps": request.steps, "shards": request.shards})


def check_heartbeat(request: pb.HeartbeatRequest) -> None:
    """BadPush: its figures can't be right. A loss may be infinite or no number, as it is where a model diverges."""
    _short(request.worker, {"phase": request.phase})
    _few(request.worker, "figures", request.figures, MOST_FIGURES, _NAME)
    _counts(request.worker, {"clock": request.clock, "reached": request.reached})
    if not 0 <= request.phase_seconds < math.inf:
        raise BadPush(
            f"{request.worker} says that it is {request.phase} for {request.phase_seconds} s; expected 0 or more."
        )


def check_validated(request: pb.ValidatedRequest) -> None:
    """BadPush: what a worker says of its held-out examples can't be right."""
    _counts(request.worker, {"epoch": request.epoch, "examples": request.examples})


def check_score(score: pb.Score, phase: RunPhase, config: Config) -> None:
    """BadPush: it can't be right. TryAgain: it is the last one, and the run still trains."""
    who = "The evaluator"
    _short(who, {"measure": score.measure})
    _few(who, "metrics", score.metrics, MOST_METRICS, _NAME)
    _few(who, "parts of the data", score.examples, MOST_METRICS, _NAME)
    _counts(who, {"epoch": score.epoch, **score.examples})
    if len(score.versions) > max(1, config.servers):
        raise BadPush(f"{who} names {len(score.versions)} versions; the run has {config.servers} servers.")
    if not 0 <= score.seconds < math.inf:
        raise BadPush(f"{who} says that a version was taken after {score.seconds} s; expected 0 or more.")
    if score.final and phase not in (RunPhase.SCORING, RunPhase.FINISHED):
        raise TryAgain(
            f"{who} reports the last score, but the run is {phase}: it takes that once all workers have left."
        )


def check_baseline(baseline: Mapping[str, float]) -> None:
    """BadPush: what scores are compared with can't be right."""
    _few("The evaluator", "values to compare with", baseline, MOST_METRICS, _NAME)


def check_reason(reason: str) -> None:
    """BadPush: no reason to stop is so long."""
    if len(reason) > _NAME * 5:
        raise BadPush(f"The reason to stop has {len(reason):,} characters; expected {_NAME * 5:,} or fewer.")


def _short(who: str, said: Mapping[str, str]) -> None:
    for name, text in said.items():
        if len(text) > _NAME or not text.isprintable():
            seen = f"{text[:40]!r} ({len(text):,} characters)"
            raise BadPush(f"{who} sent {seen} as {name}; expected one line of {_NAME} at most.")


def _few(who: str, what: str, names: Iterable[str], most: int, longest: int) -> None:
    found = list(names)
    if len(found) > most:
        raise BadPush(f"{who} sent {len(found):,} {what}; expected {most:,} or fewer.")
    for name in found:
        if len(name) > longest:
            seen = f"{name[:40]!r}... ({len(name):,} characters)"
            raise BadPush(f"{who} sent {seen} among its {what}; expected {longest:,} at most.")


def _counts(who: str, said: Mapping[str, int]) -> None:
    for name, count in said.items():
        if count > _LATEST:
            raise BadPush(f"{who} says {count:,} {name}; no run has as many.")
