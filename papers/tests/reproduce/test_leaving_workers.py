"""The recipe with leaving and joining workers at a tiny size, with real processes."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from paceline.core.errors import PacelineError
from paceline.core.explain.cause import Finding
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.status.chief_status import RemoteChief
from paceline.launch.supervise.launcher import run_local
from paceline.rpc.auth import Credentials
from paceline.rpc.enums import phase_of
from paceline.rpc.token_file import read_token_file
from paceline.v1.run_service_pb2 import StatusReply
from paceline_papers.reproduce.hogwild_races import settings
from paceline_papers.reproduce.rcv1_runs import rows_like_rcv1
from paceline_papers.reproduce.recipes.ours.leaving_workers import (
    EVERY,
    JOINER,
    LEAVERS,
    WORKERS,
    Disturbance,
    prepared,
)


class Early(Disturbance):
    """All of it at once, each step as soon as the one before is seen, so that no step can come too early or too late.

    The other worker starts when both have left, and the run ends when it has trained.
    """

    leave, join = 0.01, float("inf")

    def __init__(self, place: RunFolder, shards: Path) -> None:
        super().__init__(place, shards)
        self.members: list[set[str]] = []

    def watch(self, status: StatusReply, rate: float, causes: Sequence[Finding]) -> None:
        seated = {worker.worker: worker for worker in status.workers if worker.member}
        if phase_of(status) == "training" and (not self.members or self.members[-1] != set(seated)):
            self.members.append(set(seated))
        if len(self.members) > 1 and not seated.keys() & set(LEAVERS):
            self.join = self.leave
        super().watch(status, rate, causes)
        joiner = seated.get(f"worker-{JOINER}")
        if phase_of(status) == "training" and joiner and joiner.figures["steps"] >= 5:
            place = self._place
            with closing(RemoteChief(place.facts()["chief"], Credentials(read_token_file(place.token)))) as chief:
                assert chief.stop("the worker that joined has trained"), chief.why


@pytest.mark.nightly  # 6 s of CPU time; workers leave and join by day in tests/runs/test_processes.py
def test_two_workers_leave_a_run_in_lock_step_and_one_joins_it(tmp_path: Path) -> None:
    data = rows_like_rcv1(tmp_path / "data", 0, 320)
    slowly = settings(EVERY["synchronous"], data, WORKERS, batches=1, pause=0.15)
    place, config, shards = prepared(tmp_path, slowly, "changing", 0, epochs=1000)

    with closing(Early(place, shards)) as disturbance:
        outcome = run_local(config, place.path, lambda line: None, disturbance.watch, shards=shards)

    assert outcome.exit_code == 0
    disturbance.check()
    started = {f"worker-{rank}" for rank in range(WORKERS)}
    stayed = started - set(LEAVERS)
    first, last = disturbance.members[0], disturbance.members[-1]
    assert (first, last) == (started, stayed | {f"worker-{JOINER}"})
    assert stayed in disturbance.members
    assert 0 < place.final_metrics()["test_accuracy"] <= 1


def test_a_worker_that_came_too_late_is_told_of(tmp_path: Path) -> None:
    data = rows_like_rcv1(tmp_path / "data", 0, 320)
    place, _, shards = prepared(tmp_path, settings(EVERY["synchronous"], data, WORKERS), "changing", 0, epochs=1)
    with pytest.raises(PacelineError, match="worker-4 was not ready before the run ended, so nobody joined it"):
        Disturbance(place, shards).check()
