"""A slice of a diverged run: it takes older weights over at the moment that the change names, and its clocks go on."""

import json
from dataclasses import replace

import numpy as np
import pytest

from paceline.core.errors import NotYet
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.settings.config import ScheduleConfig
from paceline.core.slice.state import SliceState
from paceline.core.values import Seat, Switch, View
from tests.support.one_slice import OneSlice

HALVED = ScheduleConfig(name="step", every=1, gamma=0.5, lr_scale="none")
BACK = Switch(1, {"name": "asp"}, 20, 0.1, (4,))


def trained() -> tuple[OneSlice, SliceState]:
    """After three epochs of four examples, and the snapshot after the first one."""
    one = OneSlice("asp", "a", (1.0,), Sgd(lr=0.1, momentum=0.9, weight_decay=0), HALVED, 8, per_epoch=4)
    one.push("a", 1.0, examples=4)
    state = one.slice.state()
    one.push("a", 1.0, examples=4)
    one.push("a", 1.0, examples=4)
    return one, state


def ordered(one: OneSlice, switch_clock: int) -> None:
    seats = {"a": Seat(1, 0, switch_clock=switch_clock)}
    one.slice.view(View(one.slice.clocks.view.number + 1, seats, 4, BACK))


def test_the_slice_waits_for_the_older_weights_and_then_takes_all_of_that_moment() -> None:
    one, state = trained()
    ordered(one, 3)
    assert (one.slice.lacks_weights, one.slice.switch) == (BACK, None)

    one.slice.hold(1, state)

    assert (one.slice.lacks_weights, one.slice.switch) == (None, BACK)
    assert one.slice.folding.current().values == pytest.approx([0.9])
    assert (one.slice.version, one.slice.clocks.entry("a").clock) == (20, 3)
    assert (one.slice.clocks.examples, one.slice.clocks.discarded, one.slice.clocks.trained) == (12, 8, 4)
    assert one.slice.lr == pytest.approx(0.1 * 0.5 * 0.1), "the schedule is back in its second epoch"


@pytest.mark.parametrize(("kept", "step"), [({}, 1 + 0.9), ({"slots": ()}, 1)], ids=["kept", "not in the snapshot"])
def test_the_next_step_has_the_momentum_of_that_moment_where_the_snapshot_has_it(kept, step) -> None:
    one, state = trained()
    ordered(one, 3)
    one.slice.hold(1, replace(state, **kept))

    one.push("a", 1.0, examples=4)

    assert one.slice.folding.current().values == pytest.approx([0.9 - 0.005 * step])


def test_weights_that_come_before_the_members_are_there_wait_for_them() -> None:
    one, state = trained()
    ordered(one, 4)
    one.slice.hold(1, state)
    assert one.slice.switch is None

    one.push("a", 1.0, examples=4)

    assert one.slice.switch == BACK
    assert one.slice.folding.current().values == pytest.approx([0.9])


def test_where_no_snapshot_can_be_read_the_slice_keeps_its_weights_at_the_lower_rate() -> None:
    one, _ = trained()
    before = one.slice.folding.current().values.copy()
    ordered(one, 3)

    one.slice.hold(1, None)

    assert one.slice.switch == BACK
    assert one.slice.folding.current().values == pytest.approx(before)
    assert (one.slice.clocks.discarded, one.slice.lr) == (0, pytest.approx(0.1 * 0.125 * 0.1))


def test_a_slice_that_comes_back_from_a_snapshot_of_it_has_its_rate_and_what_was_discarded() -> None:
    one, state = trained()
    ordered(one, 3)
    one.slice.hold(1, state)
    kept = one.slice.state()
    again = OneSlice("asp", "a", (1.0,), Sgd(lr=0.1, momentum=0.9, weight_decay=0), HALVED, 8, per_epoch=4)

    again.slice.restore(replace(kept, table=json.loads(json.dumps(kept.table))))
    ordered(again, 3)

    assert (again.slice.lacks_weights, again.slice.switch) == (None, BACK)
    assert (again.slice.clocks.discarded, again.slice.lr) == (8, one.slice.lr)
    assert np.array_equal(again.slice.folding.current().values, one.slice.folding.current().values)


def test_a_slice_that_was_away_takes_and_gives_nothing_before_the_older_weights_are_here() -> None:
    one, state = trained()
    one.slice.view(View(one.slice.clocks.view.number + 1, {"a": Seat(1, 20)}, 4, made=BACK))
    assert one.slice.lacks_weights == BACK
    assert one.slice.pull() is None
    with pytest.raises(NotYet, match="waits for the older weights"):
        one.push("a", 1.0, examples=4)

    one.slice.hold(1, state)

    assert one.slice.switch == BACK
    assert one.slice.pull() is not None
