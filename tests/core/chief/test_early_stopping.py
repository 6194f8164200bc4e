"""When scores end a run, and that the chief ends it so."""

import json
import math

import pytest

from paceline.core.chief.phases import RunPhase
from paceline.core.chief.run import Run
from paceline.core.chief.scoring import Score
from paceline.core.chief.stopping import settled
from paceline.core.settings.stopping import StoppingConfig
from tests.core.chief.test_run import config, started

NAN = math.nan


def scored(*values: float, first: int = 1, metric: str = "validation_accuracy", measure: str = "") -> list[Score]:
    """The scores of epochs from `first` on."""
    return [
        Score(epoch, 1.0, [epoch], {"train_loss": 1.0, metric: value}, measure=measure)
        for epoch, value in enumerate(values, first)
    ]


def why(values: list[float], metric: str = "validation_accuracy", measure: str = "", **stopping: object) -> str:
    return settled(StoppingConfig(**stopping), scored(*values, metric=metric, measure=measure))


@pytest.mark.parametrize(
    ("values", "stopping", "told"),
    [
        ([0.5, 0.6, 0.6], {"patience": 2}, ""),
        ([0.5, 0.6, 0.6, 0.55], {"patience": 2}, "was not better than 0.6000 in 2 scores"),
        ([0.5, 0.6, 0.6, 0.61], {"patience": 2}, ""),
        ([0.5, 0.6, 0.605, 0.608], {"patience": 2, "min_delta": 0.01}, "better than 0.6000 by more than 0.01 in 2"),
        ([0.5, 0.6, 0.605, 0.612], {"patience": 2, "min_delta": 0.01}, ""),
        ([0.5, NAN, NAN], {"patience": 2}, "was not better than 0.5000 in 2 scores"),
        ([NAN, NAN], {"patience": 2}, "was not a number in 2 scores"),
        ([0.5, 0.6], {"rule": "delta", "delta": 0.05}, ""),
        ([0.5, 0.6, 0.57], {"rule": "delta", "delta": 0.05}, "went from 0.6000 to 0.5700, by less than 0.05"),
        ([0.5], {"rule": "delta", "delta": 0.05}, ""),
        ([NAN, 0.5], {"rule": "delta"}, ""),
        ([0.5, 0.89], {"rule": "target", "target": 0.9}, ""),
        ([0.5, 0.9], {"rule": "target", "target": 0.9}, "is 0.9000, and 0.9 is asked for"),
        ([NAN], {"rule": "target", "target": 0.9}, ""),
    ],
)
def test_scores_end_a_run_by_the_rule(values, stopping, told):
    found = why(values, **stopping)

    assert (told in found) if told else not found


def test_a_loss_has_to_fall():
    assert not why([2.0, 1.5, 1.0], "validation_loss", "min loss", patience=1)
    assert why([1.0, 1.5], "validation_loss", "min loss", patience=1).endswith("was not better than 1.0000 in 1 score")
    assert why([1.0, 0.5], "validation_loss", "min loss", rule="target", target=0.6)


def test_without_validation_data_the_training_scores_count():
    assert "train loss" in settled(StoppingConfig(patience=1), scored(1, 1, metric="test_loss", measure="min loss"))


def test_the_first_weights_and_a_run_without_a_rule_do_not_count():
    assert not settled(StoppingConfig(patience=1), scored(0.9, 0.1, first=0))
    assert not settled(None, scored(0.5, 0.5, 0.5))


def test_the_chief_ends_a_run_whose_scores_have_settled_and_says_why():
    run, clocks = started("a", "b", stopping=StoppingConfig(patience=1), epochs=100)
    for score in scored(0.5, 0.4):
        run.stop_early(lambda: clocks, 1.0)
        assert run.phase is RunPhase.TRAINING
        run.score(score, 1.0)

    run.stop_early(lambda: clocks, 2.0)

    assert run.phase is RunPhase.STOPPING
    assert run.reason == ("early stopping after epoch 2: validation accuracy was not better than 0.5000 in 1 score")


def test_a_restarted_chief_still_knows_the_scores():
    settings = {"stopping": StoppingConfig(patience=1), "epochs": 100}
    run, _ = started("a", **settings)
    for score in scored(0.5, 0.4):
        run.score(score, 1.0)
    again = Run(config(workers=1, **settings))
    again.restore(json.loads(json.dumps(run.state())), 2.0)

    assert settled(again.config.stopping, again.scoring.scores)


def test_a_run_that_got_more_epochs_is_judged_by_its_new_scores():
    settings = {"stopping": StoppingConfig(patience=1), "epochs": 100}
    run, clocks = started("a", **settings)
    for score in scored(0.5, 0.4):
        run.score(score, 1.0)
    again = Run(config(workers=1, **(settings | {"epochs": 200})))
    again.restore(json.loads(json.dumps(run.state())), 2.0)
    again.extend(lambda: clocks, 2.0)
    third = Run(config(workers=1, **(settings | {"epochs": 200})))
    third.restore(json.loads(json.dumps(again.state())), 3.0)

    for each in (again, third):
        assert not settled(each.config.stopping, each.scoring.judged)
        for score in scored(0.6, 0.5, first=3):
            each.score(score, 4.0)
        assert "after epoch 4" in settled(each.config.stopping, each.scoring.judged)


def test_where_the_mean_of_the_workers_models_is_kept_its_scores_end_the_run():
    scores = [
        Score(epoch, 1.0, [epoch], {"validation_accuracy": 0.5, "mean_validation_accuracy": mean})
        for epoch, mean in enumerate((0.7, 0.8, 0.8), 1)
    ]

    assert not settled(StoppingConfig(patience=2), scores)
    assert "mean validation accuracy was not better than 0.8000" in settled(StoppingConfig(patience=1), scores)
