"""What members say of themselves is bounded before it is kept, logged or shown."""

from collections.abc import Callable
from typing import Any

import pytest

from paceline.core.chief.phases import RunPhase
from paceline.core.errors import BadPush, TryAgain
from paceline.server import claims
from paceline.v1 import run_service_pb2 as pb
from tests.support.in_process import config_of, join_request

CONFIG = config_of("asp", workers=2, servers=2)
HUGE = 1 << 60


def join(**more: Any) -> None:
    claims.check_join(join_request(CONFIG, "worker-1", **more))


def beat(**more: Any) -> None:
    claims.check_heartbeat(pb.HeartbeatRequest(worker="worker-1", **more))


def score(phase: RunPhase = RunPhase.TRAINING, **more: Any) -> None:
    claims.check_score(pb.Score(**more), phase, CONFIG)


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        (lambda: join(host="h" * 201), r"'h+' \(201 characters\) as host; expected one line of 200 at most"),
        (lambda: join(host="all is well\n2026 server-0 phase=finished"), r"as host; expected one line"),
        (lambda: join(address="\x1b[2J"), "as address; expected one line"),
        (lambda: join(fingerprint="f" * 1000), "as fingerprint"),
        (lambda: join(settings=["a=b"] * 4097), "sent 4,097 settings; expected 4,096 or fewer"),
        (lambda: join(settings=["a" * 70_000]), r"\(70,000 characters\) among its settings; expected 65,536 at most"),
        (lambda: join(examples=HUGE), "says 1,152,921,504,606,846,976 examples; no run has as many"),
        (lambda: beat(phase="p" * 300), "as phase; expected one line"),
        (lambda: beat(phase_seconds=-1.0), "for -1.0 s; expected 0 or more"),
        (lambda: beat(phase_seconds=float("nan")), "for nan s; expected 0 or more"),
        (lambda: beat(clock=HUGE), "says 1,.* clock; no run"),
        (lambda: beat(figures={f"f{i}": 0.0 for i in range(513)}), "sent 513 figures; expected 512 or fewer"),
        (lambda: beat(figures={"f" * 201: 0.0}), "among its figures; expected 200 at most"),
        (lambda: claims.check_validated(pb.ValidatedRequest(worker="worker-1", examples=HUGE)), "examples; no run"),
        (lambda: score(epoch=HUGE), "The evaluator says 1,.* epoch; no run has as many"),
        (lambda: score(metrics={f"m{i}": 0.0 for i in range(513)}), "sent 513 metrics; expected 512 or fewer"),
        (lambda: score(metrics={"m" * 201: 1.0}), "among its metrics; expected 200 at most"),
        (lambda: score(measure="max\naccuracy"), "as measure; expected one line"),
        (lambda: score(versions=[1, 2, 3]), "names 3 versions; the run has 2 servers"),
        (lambda: score(seconds=float("inf")), "taken after inf s; expected 0 or more"),
        (lambda: score(examples={"test": HUGE}), "says 1,.* test; no run"),
        (lambda: claims.check_baseline({f"b{i}": 0.0 for i in range(513)}), "sent 513 values to compare with"),
        (lambda: claims.check_reason("r" * 1001), "reason to stop has 1,001 characters; expected 1,000 or fewer"),
    ],
)
def test_a_claim_that_can_t_be_right_is_refused(claim: Callable[[], None], told: str) -> None:
    with pytest.raises(BadPush, match=told):
        claim()


def test_what_a_real_process_says_is_taken() -> None:
    join(host="a machine", address="10.0.0.7:50053")
    beat(phase="compute", phase_seconds=0.5, clock=7, figures={"loss": float("nan"), "alpha": 0.5})
    score(epoch=3, metrics={"test_accuracy": 0.9}, versions=[4, 4], measure="max accuracy", examples={"test": 270})
    claims.check_reason("stopped on request")


@pytest.mark.parametrize("phase", [RunPhase.WAITING, RunPhase.TRAINING, RunPhase.STOPPING])
def test_a_last_score_is_not_taken_while_the_run_trains(phase: RunPhase) -> None:
    with pytest.raises(TryAgain, match=f"the last score, but the run is {phase}"):
        score(phase, final=True, metrics={"test_accuracy": 1.0})
    for later in (RunPhase.SCORING, RunPhase.FINISHED):
        score(later, final=True, metrics={"test_accuracy": 1.0})
