"""When the workers of a linear model stop together: by the mean of all members' losses."""

import json
from typing import Any

import pytest

from paceline.core.chief.stopping import CommonStopping
from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config

BOTH = ("a", "b")


def stopping(epochs: int = 99, **svm: Any) -> CommonStopping:
    """Stops where the newest mean is above an earlier one."""
    return CommonStopping(Config(epochs=epochs, svm={"stopping": {"rule": "window", "window": 1}, "stop": "all"} | svm))


def test_the_mean_counts_every_example_once():
    common = stopping()

    common.add("a", 0, 1.0, 30)
    assert (common.judge(BOTH), common.losses) == ("", [])
    common.add("b", 0, 3.0, 10)
    common.judge(BOTH)

    assert common.losses == [1.5]


def test_the_run_stops_where_the_mean_has_settled():
    common = stopping()
    said = []

    for epoch, loss in enumerate((3.0, 1.0, 2.0)):
        common.add("a", epoch, loss, 10)
        said.append(common.judge(["a"]))

    assert said == ["", "", "the validation loss has settled at 2"]


def test_a_run_that_got_more_epochs_is_judged_by_its_new_losses():
    common = stopping()
    for epoch, loss in enumerate((3.0, 1.0, 2.0)):
        common.add("a", epoch, loss, 10)
        common.judge(["a"])

    common.judge_anew()
    again = stopping()
    again.restore(json.loads(json.dumps(common.state())))

    for each in (common, again):
        each.add("a", 3, 1.5, 10)
        assert each.judge(["a"]) == ""
        each.add("a", 4, 1.6, 10)
        assert "has settled at 1.6" in each.judge(["a"])


def test_a_repeat_and_an_older_epoch_change_nothing():
    common = stopping()

    common.add("a", 1, 1.0, 10)
    common.add("a", 1, 9.0, 10)
    common.add("a", 0, 9.0, 10)
    common.judge(["a"])

    assert common.losses == [1.0]


def test_the_newest_loss_of_a_fast_worker_counts():
    common = stopping()

    common.add("a", 0, 5.0, 10)
    common.add("a", 1, 1.0, 10)
    common.add("b", 0, 1.0, 10)
    common.judge(BOTH)

    assert common.losses == [1.0]


def test_those_who_have_left_are_not_waited_for_but_what_they_told_counts():
    common = stopping()
    common.add("a", 0, 1.0, 10)
    common.add("b", 0, 3.0, 10)

    common.judge(["a"])

    assert common.losses == [2.0]


def test_nobody_is_judged_without_members():
    common = stopping()
    common.add("a", 0, 1.0, 10)

    assert (common.judge([]), common.losses) == ("", [])


def test_only_where_all_stop_together_losses_count_and_with_fitted_steps_at_the_end_only():
    assert stopping().looks_at(0)
    assert not stopping(stop="own").looks_at(0)
    late = stopping(epochs=8, stopping={"rule": "delta"}, steps="fitted")
    assert [late.looks_at(epoch) for epoch in range(8)] == [False] * 5 + [True] * 3


def test_a_loss_that_is_no_number_is_named():
    common = stopping()
    common.add("a", 0, float("nan"), 10)

    with pytest.raises(ConfigError, match=r"The loss is nan: training has diverged"):
        common.judge(["a"])


def test_a_restarted_chief_knows_the_means_and_who_has_told():
    common = stopping()
    common.add("a", 0, 3.0, 10)
    common.judge(["a"])
    common.add("a", 1, 1.0, 10)
    again = stopping()

    again.restore(json.loads(json.dumps(common.state())))
    again.add("a", 1, 9.0, 10)
    again.judge(["a"])

    assert again.losses == [3.0, 1.0]
