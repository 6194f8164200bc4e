"""The recipe with leaving and joining workers at a tiny size, with real processes."""

import json
from pathlib import Path

from paceline.reproduce.hogwild_races import settings
from paceline.reproduce.rcv1_runs import rows_like_rcv1
from paceline.reproduce.recipes.ours.leaving_workers import CHANGING, EVERY, WORKERS, trained


def test_two_workers_leave_a_run_in_lock_step_and_one_joins_it(tmp_path: Path) -> None:
    data = rows_like_rcv1(tmp_path / "data", 0, 320)
    slowly = settings(EVERY["synchronous"], data, WORKERS, batches=1, pause=0.15)

    place = trained(tmp_path, slowly, "changing", 0, CHANGING, epochs=10)

    statuses = [json.loads(line) for line in place.metrics.read_text().splitlines()]
    members = [sum(worker["member"] for worker in each["workers"]) for each in statuses if each["phase"] == "training"]
    assert (members[0], members[-1]) == (4, 3)
    assert 2 in members
    assert place.last_status()["examples"] >= 10 * 4 * (80 - 8), "the examples of the leavers' places count on"
    assert 0 < place.final_metrics()["test_accuracy"] <= 1
