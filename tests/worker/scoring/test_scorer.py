"""The evaluator: one exact version in rounds, and the best model kept across its restarts."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from paceline.core.chief.best_model import Measure
from paceline.core.errors import DiskError
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.v1 import run_service_pb2 as pb
from paceline.worker.scoring import scorer as scoring


class Client:
    """Servers whose versions are what the test says, one list for each pull."""

    def __init__(self, *versions: Sequence[int]) -> None:
        self.versions = list(versions)
        self.asked = []

    def pull(self, target: Any, version: int | None = None, is_patient: bool = True, mean: bool = False) -> list[int]:
        assert not mean
        self.asked.append((version, is_patient))
        return list(self.versions.pop(0))


def pulled(client: Client, rounds: bool = True) -> list[int]:
    policy: Any = SimpleNamespace(rounds=rounds)
    scorer: Any = SimpleNamespace(
        _client=client, _in_force=PolicyInForce(policy), _model=np.zeros(1), _average_from=None
    )
    return scoring.Scorer._pull(scorer)


def test_versions_that_agree_are_taken_as_they_are() -> None:
    client = Client([7, 7])
    assert pulled(client) == [7, 7]
    assert client.asked == [(None, True)]


def test_in_rounds_the_newest_version_of_any_server_is_pulled_from_all() -> None:
    client = Client([7, 8], [8, 8])
    assert pulled(client) == [8, 8]
    assert client.asked == [(None, True), (8, False)]


def test_rounds_that_are_too_quick_are_met_further_ahead() -> None:
    client = Client([7, 8], [9, 10], [14, 14])
    assert pulled(client) == [14, 14]
    assert client.asked[-1] == (14, False)


def test_versions_that_never_agree_are_reported_as_they_are() -> None:
    assert pulled(Client([1, 2], [3, 4], [5, 6], [7, 8])) == [7, 8]


def test_without_rounds_the_newest_of_each_server_will_do() -> None:
    assert pulled(Client([7, 9]), rounds=False) == [7, 9]


WORST = (float("-inf"), float("-inf"))


@pytest.mark.parametrize(
    ("facts", "own", "rank"),
    [
        ({"epoch": "3", "validation_accuracy": "0.75", "validation_loss": "0.5"}, None, (0.75, -0.5)),
        ({"validation_loss": "0.5", "train_loss": "0.1"}, None, (-0.5, -0.5)),
        ({"train_loss": "0.25"}, None, (-0.25, -0.25)),
        (
            {"model": "mean", "validation_accuracy": "0.9", "mean_validation_accuracy": "0.5", "mean_train_loss": "1"},
            None,
            (0.5, -float("inf")),
        ),
        ({"train_loss": "0.25", "mean_train_loss": "0.75"}, None, (-0.75, -0.75)),
        ({}, None, WORST),
        ({"validation_f1": "0.25", "validation_accuracy": "0.9", "validation_loss": "2"}, "max f1", (0.25, -2.0)),
        ({"validation_mae": "3", "measure": "min mae", "validation_loss": "2"}, "min mae", (-3.0, -2.0)),
        ({"validation_auc": "nan", "validation_loss": "2"}, "max auc", (-float("inf"), -2.0)),
    ],
)
def test_the_best_model_on_disk_sets_the_bar_after_a_restart(
    tmp_path: Path, facts: dict[str, str], own: str | None, rank: tuple[float, float]
) -> None:
    save_file({"weight": np.zeros(1)}, tmp_path / "best.safetensors", facts)
    measure = None if own is None else Measure.parse(own, "BEST")
    assert scoring._earlier_best(tmp_path / "best.safetensors", measure) == rank


def test_without_a_best_model_any_score_is_the_best(tmp_path: Path) -> None:
    (tmp_path / "damaged.safetensors").write_bytes(b"damaged")
    for name in ("missing", "damaged"):
        assert scoring._earlier_best(tmp_path / f"{name}.safetensors", None) == WORST


def test_where_the_measure_never_moves_the_loss_decides_which_model_is_the_best() -> None:
    written: list[str] = []
    scorer: Any = SimpleNamespace(
        _measure=None,
        _best=WORST,
        _average_from=None,
        _examples={"train": 3},
        _sent=None,
        note_score=lambda is_better, final: None,
        write=lambda name, facts: written.append(
            f"{name} {facts['epoch']} {facts['measure']} {facts['train_examples']} {facts['versions']}"
        ),
    )
    for epoch, loss in enumerate([2.0, 0.5, 0.75, float("nan"), 0.25]):
        due = pb.EvaluateReply(epoch=epoch, final=epoch == 4)
        metrics = {"validation_accuracy": 0.25, "validation_loss": loss}
        scoring.Scorer._keep(scorer, metrics, "max accuracy", due, [epoch, 7])
    assert written == [f"best {epoch} max accuracy 3 [{epoch}, 7]" for epoch in (0, 1)] + [
        f"{name} 4 max accuracy 3 [4, 7]" for name in ("last", "best")
    ]


def test_a_best_model_that_the_disk_does_not_take_ends_no_scoring_and_the_next_better_one_is_tried() -> None:
    tried: list[str] = []
    said: list[str] = []

    def write(name: str, facts: dict[str, str]) -> None:
        tried.append(f"{name} {facts['epoch']}")
        if facts["epoch"] == "0":
            raise DiskError("No space left on device")

    scorer: Any = SimpleNamespace(
        _measure=None,
        _best=WORST,
        _average_from=None,
        _examples={},
        _sent=None,
        note_score=lambda is_better, final: None,
        write=write,
        _say=lambda event, **facts: said.append(event),
    )
    for epoch, loss in enumerate([1.0, 2.0, 3.0]):
        due = pb.EvaluateReply(epoch=epoch)
        metrics = {"validation_accuracy": 0.25, "validation_loss": loss}
        scoring.Scorer._keep(scorer, metrics, "max accuracy", due, [epoch])

    assert tried == ["best 0", "best 1"]
    assert said == ["can't keep the best model so far; scoring goes on"]
