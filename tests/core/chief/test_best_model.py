"""What a run is judged by, which version is scored next, and how people learn of it."""

import json
import math

import pytest

from paceline.core.chief.best_model import (
    ACCURACY,
    LOSS,
    Measure,
    by_split,
    default_measure,
    measure_of,
    result,
    scores_of,
)
from paceline.core.chief.scoring import Score, Scoring
from paceline.core.errors import ConfigError, Fenced


@pytest.mark.parametrize("text", ["max f1", " min   mean_error "])
def test_a_measure_is_a_direction_and_a_name(text: str) -> None:
    assert str(Measure.parse(text, "BEST")) == " ".join(text.split())


@pytest.mark.parametrize("text", ["f1", "max", "", "max f1 loss", "f1 max", "largest f1", None, 3, ("max", "f1")])
def test_what_is_no_measure_is_refused_with_the_form_it_should_have(text: object) -> None:
    with pytest.raises(ConfigError, match=r"BEST in a\.py is .*; expected min or max and the name .*'max f1'"):
        Measure.parse(text, "BEST in a.py")


@pytest.mark.parametrize(("text", "right"), [("max loss", "min loss"), ("min accuracy", "max accuracy")])
def test_the_wrong_direction_is_refused(text: str, right: str) -> None:
    with pytest.raises(ConfigError, match=f"would keep the worst model; write '{right}'"):
        Measure.parse(text, "BEST")


def test_a_name_that_is_not_measured_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"BEST is 'max f1', but what is measured is: auc, loss\."):
        Measure("max", "f1").check(["auc"], "BEST")
    with pytest.raises(ConfigError, match="only where labels are classes"):
        ACCURACY.check([], "BEST")
    LOSS.check([], "BEST")


def test_the_loss_decides_between_versions_that_are_equal_in_the_measure() -> None:
    versions = [{"f1": 0.5, "loss": 2.0}, {"f1": 0.5, "loss": 1.0}, {"f1": math.nan, "loss": 0.1}, {"loss": 0.2}]
    assert max(versions, key=Measure("max", "f1").rank) is versions[1]
    assert max(versions, key=Measure("min", "f1").rank) is versions[1]
    assert max(versions, key=LOSS.rank) is versions[2]


def test_accuracy_decides_where_it_is_measured_and_else_the_loss() -> None:
    assert default_measure({"loss": 1.0, "accuracy": 0.5, "f1": 0.1}) == ACCURACY
    assert default_measure({"loss": 1.0, "f1": 0.1}) == LOSS
    assert measure_of({"test_accuracy": 0.5}) == ACCURACY
    assert measure_of({"test_accuracy": 0.5}, "max f1") == Measure("max", "f1")


def test_scores_of_a_split_begin_with_the_loss() -> None:
    metrics = {"test_f1": 0.5, "test_auc": 0.75, "test_loss": 1.0, "train_loss": 2.0, "mean_test_loss": 3.0}
    assert list(scores_of(metrics, "test").items()) == [("loss", 1.0), ("auc", 0.75), ("f1", 0.5)]


@pytest.mark.parametrize(
    ("metrics", "told", "words"),
    [
        ({"test_accuracy": 0.96666, "test_loss": 0.1}, "", "test accuracy 0.9667"),
        ({"test_accuracy": 0.96666, "test_loss": 0.1}, "max accuracy", "test accuracy 0.9667"),
        ({"test_loss": 2900.123456}, "min loss", "test loss 2900.1235"),
        (
            {"test_loss": 0.5, "test_r2": 0.25, "test_mean_error": 3.0},
            "",
            "test loss 0.5000, mean error 3.0000, r2 0.2500",
        ),
        ({"test_f1": 0.25, "test_accuracy": 0.9}, "max f1", "test f1 0.2500, accuracy 0.9000"),
        (
            {"test_accuracy": 0.5, "mean_test_accuracy": 0.75, "vote_test_accuracy": 1.0},
            "",
            "test accuracy 0.5000 (global; local models: mean 0.7500, vote 1.0000)",
        ),
        ({"validation_loss": 0.5, "train_loss": 0.25}, "", "validation loss 0.5000"),
        ({"train_loss": 0.25}, "", "train loss 0.2500"),
        ({}, "", "test score unknown: the run was not scored"),
    ],
)
def test_the_last_words_on_a_run_are_what_it_goes_by(metrics: dict[str, float], told: str, words: str) -> None:
    assert result(metrics, told) == words


def test_all_scores_say_of_how_many_examples_they_are() -> None:
    metrics = {"test_loss": 0.5, "train_loss": 0.25, "train_accuracy": 1.0}
    said = "train (2,000 examples): loss 0.2500, accuracy 1.0000; test: loss 0.5000"
    assert by_split(metrics, {"train": 2000}) == said


def test_local_models_scores_follow_those_of_the_global_model() -> None:
    metrics = {"test_loss": 0.5, "mean_test_loss": 0.25, "vote_test_accuracy": 1.0, "local_models": 2.0}
    assert by_split(metrics, {"test": 3}) == (
        "test (3 examples): loss 0.5000; mean of the local models, test (3 examples): loss 0.2500; "
        "their vote, test (3 examples): accuracy 1.0000"
    )


def score(epoch: int, final: bool = False, **metrics: float) -> Score:
    return Score(epoch, 1.0, [1], metrics, final=final)


def test_only_the_newest_score_once_more_is_a_repeat():
    scoring = Scoring()
    assert not scoring.is_repeat(score(0))

    scoring.add(score(0))
    scoring.add(score(1))

    assert [scoring.is_repeat(score(epoch)) for epoch in (0, 1)] == [False, True]


def test_scores_of_weights_that_the_run_went_back_from_count_no_more_and_their_epochs_are_due_again():
    scoring = Scoring()
    for epoch in range(4):
        scoring.add(score(epoch))

    scoring.go_back(1.5)
    scoring.add(score(3), is_gone=True)  # its evaluator was at work meanwhile
    again = Scoring()
    again.restore(json.loads(json.dumps(scoring.state())))

    for one in (scoring, again):
        assert [each.epoch for each in one.judged] == [0, 1]
        assert [one.is_due(epoch) for epoch in (1, 2)] == [False, True]
        one.add(score(2))
        assert [each.epoch for each in one.judged] == [0, 1, 2]
        assert one.skipped == 0
        assert len(one.scores) == 6


def test_the_result_is_there_once_the_final_version_is_scored():
    scoring = Scoring()
    assert scoring.result is None
    scoring.add(score(1, test_accuracy=0.5))
    assert scoring.result is None

    scoring.add(score(2, final=True, test_accuracy=0.9667))

    assert scoring.result == "test accuracy 0.9667"


def test_a_restarted_chief_knows_all_scores_and_waits_for_the_evaluators_data_anew():
    scoring = Scoring()
    scoring.is_ready = True
    scoring.add(score(2, test_accuracy=0.5))
    again = Scoring()

    again.restore(json.loads(json.dumps(scoring.state())))

    assert (again.scores, again.skipped, again.is_ready) == (scoring.scores, 2, False)


def test_a_newer_evaluator_takes_over_and_the_one_before_has_nothing_left_to_do():
    scoring = Scoring()
    first = scoring.admit(0)
    assert scoring.admit(first) == first

    second = scoring.admit(0)

    with pytest.raises(Fenced, match="Evaluator 2 has taken over from number 1"):
        scoring.admit(first)
    assert scoring.admit(second) == second
    assert Scoring().admit(second) == second, "a chief that was started again takes the one that calls"
