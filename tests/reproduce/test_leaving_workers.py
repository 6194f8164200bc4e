"""The recipe with leaving and joining workers at a tiny size, with real processes."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from paceline.core.errors import PacelineError
from paceline.core.explain.cause import Finding
from paceline.local.launcher import run_local
from paceline.reproduce.hogwild_races import settings
from paceline.reproduce.rcv1_runs import rows_like_rcv1
from paceline.reproduce.recipes.ours.leaving_workers import EVERY, JOINER, WORKERS, Disturbance, prepared
from paceline.rpc.auth import Credentials
from paceline.rpc.token_file import read_token_file
from paceline.v1.run_service_pb2 import StatusReply
from paceline.watch.chief_status import RemoteChief


class Early(Disturbance):
    """All of it at once, and the run ends when the worker that joins has trained: it can't come too late."""

    leave = join = 0.01

    def watch(self, status: StatusReply, rate: float, causes: Sequence[Finding]) -> None:
        super().watch(status, rate, causes)
        seated = {worker.worker: worker for worker in status.workers if worker.member}
        joiner = seated.get(f"worker-{JOINER}")
        if status.phase == "training" and len(seated) == 3 and joiner and joiner.figures["steps"] >= 5:
            place = self._place
            with closing(RemoteChief(place.facts()["chief"], Credentials(read_token_file(place.token)))) as chief:
                assert chief.stop("the worker that joined has trained"), chief.why


def test_two_workers_leave_a_run_in_lock_step_and_one_joins_it(tmp_path: Path) -> None:
    data = rows_like_rcv1(tmp_path / "data", 0, 320)
    slowly = settings(EVERY["synchronous"], data, WORKERS, batches=1, pause=0.15)
    place, config, shards = prepared(tmp_path, slowly, "changing", 0, epochs=1000)

    with closing(Early(place, shards)) as disturbance:
        outcome = run_local(config, place.path, lambda line: None, disturbance.watch, shards=shards)

    assert outcome.exit_code == 0
    disturbance.check()
    statuses = [json.loads(line) for line in place.metrics.read_text().splitlines()]
    members = [sum(worker["member"] for worker in each["workers"]) for each in statuses if each["phase"] == "training"]
    assert (members[0], members[-1]) == (4, 3)
    assert 2 in members
    assert 0 < place.final_metrics()["test_accuracy"] <= 1


def test_a_worker_that_came_too_late_is_told_of(tmp_path: Path) -> None:
    data = rows_like_rcv1(tmp_path / "data", 0, 320)
    place, _, shards = prepared(tmp_path, settings(EVERY["synchronous"], data, WORKERS), "changing", 0, epochs=1)
    with pytest.raises(PacelineError, match="worker-4 was not ready before the run ended, so nobody joined it"):
        Disturbance(place, shards).check()
