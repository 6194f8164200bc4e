"""Which version is scored next, what was skipped, and the result in words."""

import json

import pytest

from paceline.core.chief.scoring import Score, Scoring
from paceline.core.errors import Fenced


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
