"""The rules of early stopping, with worked examples."""

from typing import Any

import pytest
from pydantic import ValidationError

from paceline.core.errors import ConfigError
from paceline.core.linear.stopping import Cs449, Delta, Stopping, StoppingRule, Window, tolerance
from paceline.core.settings.linear import SvmConfig


def stops_after(rule: StoppingRule, losses: list[float]) -> int | None:
    """How many losses it takes; None where they are not enough."""
    return next((count for count, loss in enumerate(losses, 1) if rule.add(loss)), None)


def test_two_losses_that_are_close_end_a_run() -> None:
    assert stops_after(Delta(0.01), [1, 0.5, 0.495]) == 3


def test_a_small_rise_ends_a_run_like_a_small_fall() -> None:
    assert stops_after(Delta(0.01), [1, 0.5, 0.505]) == 3
    assert stops_after(Delta(0.01), [1, 0.5, 0.6, 0.4]) is None


def test_a_loss_that_stays_exactly_as_it_is_is_passed_over_three_times() -> None:
    assert stops_after(Delta(0.01), [1, 1, 1, 1]) is None
    assert stops_after(Delta(0.01), [1, 1, 1, 1, 1]) == 5
    assert stops_after(Delta(0.01), [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5]) is None


def test_the_authors_program_stops_on_any_rise_and_compares_the_first_loss_with_nine_tenths() -> None:
    assert stops_after(Cs449(0.01), [0.8, 0.5, 0.6]) == 3
    assert stops_after(Cs449(0.01), [0.8, 0.5, 0.495]) == 3
    assert stops_after(Cs449(0.01), [0.895]) == 1
    assert stops_after(Cs449(0.01), [0.88, 0.86, 0.84]) is None


def test_a_window_stops_when_it_holds_nothing_as_low_as_what_was_before() -> None:
    assert stops_after(Window(2), [3, 2, 1, 1.5, 1.2]) == 5
    assert stops_after(Window(2), [3, 2, 1, 1.5, 1]) is None


def test_a_window_that_is_not_full_does_not_stop() -> None:
    assert stops_after(Window(3), [1, 2, 3]) is None
    assert stops_after(Window(3), [1, 2, 3, 4]) == 4


def test_the_tolerance_follows_the_learning_rate() -> None:
    assert tolerance(0.005) == pytest.approx(2.222e-5, rel=1e-3)
    assert tolerance(0.005, omega=50) == pytest.approx(1.111e-3, rel=1e-3)
    assert tolerance(0.0045, omega=50) == pytest.approx(1e-3)
    assert tolerance(0.005, omega=50, lag=2) == pytest.approx(1.111e-3 * (1 + 6 * 0.44 * 2 + 4 * 4 * 50), rel=1e-3)


@pytest.mark.parametrize(("preset", "change"), [("report", 2e-5), ("authors", 1.1e-3)])
@pytest.mark.parametrize("rule", ["delta", "cs449"])
def test_presets_differ_in_how_close_losses_must_be(rule: Any, preset: Any, change: float) -> None:
    stopping = Stopping(rule=rule, preset=preset)
    assert stops_after(stopping.build(0.005), [0.5, 0.5 - change]) == 2
    assert stops_after(stopping.build(0.005), [0.5, 0.5 - 1.2 * change]) is None


def test_a_window_needs_no_learning_rate_and_starts_anew_each_time() -> None:
    stopping = Stopping(rule="window", window=2)
    assert stops_after(stopping.build(1.0), [3, 2, 1, 1.5, 1.2]) == 5
    assert stops_after(stopping.build(9.0), [3, 2, 1, 1.5, 1.2]) == 5


def test_of_fitted_steps_rules_for_two_losses_in_a_row_look_at_the_last_quarter_only() -> None:
    for rule in ("delta", "cs449"):
        seen = [Stopping(rule=rule).looks_at(epoch, 30, is_fitted=True) for epoch in range(30)]  # type: ignore[arg-type]
        assert seen.index(True) == 22
        assert all(seen[22:])
        assert Stopping(rule=rule).looks_at(0, 30, is_fitted=False)  # type: ignore[arg-type]
    assert Stopping(rule="window").looks_at(0, 30, is_fitted=True)
    assert SvmConfig(stopping=Stopping(), steps="fitted").judges(29, 30)
    assert not SvmConfig(stopping=Stopping(), steps="fitted").judges(2, 30)
    assert not SvmConfig(steps="fitted").judges(29, 30), "there is no rule"


@pytest.mark.parametrize("rule", [Delta(0.1), Cs449(0.1), Window(2)])
@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_says_that_training_has_diverged(rule: StoppingRule, loss: float) -> None:
    with pytest.raises(ConfigError, match=r"training has diverged\. Lower the learning rate"):
        rule.add(loss)


@pytest.mark.parametrize("wrong", [{"rule": "never"}, {"window": 0}, {"preset": "ours"}, {"lag": -1}])
def test_a_rule_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Stopping(**wrong)
