"""Slices that are cut again for another number of servers: the same training goes on, bit for bit."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.optimizers.builtin.adam import Adam
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.settings.config import PlanConfig
from paceline.core.slice.plan import SlicePlan, make_plan
from paceline.core.slice.recut import recut, uneven
from paceline.core.slice.state import SliceState
from paceline.core.values import Base, Dense, Sparse
from tests.core.slice.test_plan import shapes, strategies
from tests.support.one_slice import OneSlice

SERVERS = (1, 2, 3, 4, 7, 8)
SHAPES = [("a.weight", (5, 7)), ("a.bias", (7,)), ("b.weight", (11,)), ("c", (3, 3)), ("d", (1,))]
LENGTH = 63
MOMENTUM, ADAM = Sgd(lr=0.1, momentum=0.9, weight_decay=0.01), Adam(lr=0.01, weight_decay=0.01)


class Model:
    """A model whose slices get their parts of every push."""

    def __init__(self, plan: SlicePlan, policy: str, optimizer: Optimizer, **more: Any) -> None:
        first = np.linspace(-1, 1, plan.total, dtype=np.float32)
        self.plan = plan
        self.slices = [OneSlice(policy, "abc", part, optimizer, **more) for part in self._parts(first)]

    def _parts(self, vector: np.ndarray) -> list[np.ndarray]:
        return [np.concatenate(views) if views else vector[:0] for views in self.plan.split(vector)]

    def push(self, worker: str, gradient: np.ndarray) -> None:
        for one, part in zip(self.slices, self._parts(gradient), strict=True):
            one.push(worker, update=Dense(part), examples=3)

    def train(self, seed: int, steps: int = 4) -> None:
        rng = np.random.default_rng(seed)
        for worker in "abc" * steps:
            self.push(worker, rng.standard_normal(self.plan.total).astype(np.float32))

    @property
    def states(self) -> list[SliceState]:
        return [replace(state := one.slice.state(), table=json.loads(json.dumps(state.table))) for one in self.slices]

    def start(self, states: Sequence[SliceState]) -> None:
        """All servers come back with these."""
        for one, state in zip(self.slices, states, strict=True):
            view = one.slice.clocks.view
            one.slice = one._new_slice(len(state.weights), 2)
            one.slice.restore(state)
            one.slice.view(view)
            one.bases = dict.fromkeys(one.bases, Base(2, one.slice.version))


def same(found: Sequence[SliceState], expected: Sequence[SliceState]) -> bool:
    """Whether these are the same states, to the bit."""
    return all(
        one.table == other.table
        and one.weights.tobytes() == other.weights.tobytes()
        and [slot.tobytes() for slot in one.slots] == [slot.tobytes() for slot in other.slots]
        and (one.gathered is None) == (other.gathered is None)
        and (one.gathered is None or one.gathered.tobytes() == other.gathered.tobytes())
        for one, other in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("slices", ["memorywise", "layerwise"])
@pytest.mark.parametrize(("policy", "optimizer"), [("bsp", MOMENTUM), ("asp", ADAM), ("ssp", MOMENTUM)])
def test_a_model_that_is_cut_anew_trains_on_as_one_that_was_cut_so_from_the_start(
    slices: str, policy: str, optimizer: Optimizer
):
    plans = {servers: make_plan(SHAPES, servers, PlanConfig(slices=slices, alignment=4)) for servers in SERVERS}
    for before, after in permutations(SERVERS, 2):
        old, new = Model(plans[before], policy, optimizer), Model(plans[after], policy, optimizer)
        old.train(1)
        new.train(1)
        cut = recut(plans[before], old.states, plans[after])
        assert same(cut, new.states), (before, after)

        other = Model(plans[after], policy, optimizer)
        other.start(cut)
        other.train(2)
        new.start(new.states)
        new.train(2)
        assert same(other.states, new.states), (before, after)


@given(shapes=shapes, some=strategies, others=strategies, before=st.integers(1, 9), after=st.integers(1, 9))
def test_to_another_number_and_back_is_the_same_model(
    shapes: Any, some: PlanConfig, others: PlanConfig, before: int, after: int
):
    old, new = make_plan(shapes, before, some), make_plan(shapes, after, others)
    table: dict[str, Any] = {"version": 3, "clocks": {}, "switch": None, "rounds": False, "rate": {"adascale": None}}
    states, start = [], 0
    for length in old.lengths:
        values = np.arange(start, start := start + length, dtype=np.float32)
        shares = {"a": Sparse(np.arange(0, length, 2, dtype=np.int64), values[::2], length)}
        states.append(SliceState(values, [values + 0.5], table, -values, values * 2, shares))

    back = recut(new, recut(old, states, new), old)

    assert same(back, states)
    for one, other in zip(back, states, strict=True):
        assert np.array_equal(one.lag, other.lag)
        assert one.shares["a"].places.tolist() == other.shares["a"].places.tolist()
        assert one.shares["a"].values.tobytes() == other.shares["a"].values.tobytes()


def test_pushes_that_wait_in_a_sum_are_folded_with_those_that_come_later():
    two, three = (make_plan([("w", (9,))], servers, PlanConfig(alignment=1)) for servers in (2, 3))

    def trained(plan: SlicePlan) -> Model:
        model = Model(plan, "kbuffered", MOMENTUM, k=2)
        model.push("a", np.ones(9, np.float32))
        return model

    old, new = trained(two), trained(three)
    other = Model(three, "kbuffered", MOMENTUM, k=2)
    other.start(recut(two, old.states, three))
    other.push("b", np.full(9, 2, np.float32))
    new.push("b", np.full(9, 2, np.float32))

    assert [one.weights for one in other.slices] == [one.weights for one in new.slices]
    assert other.slices[0].slice.version == 1


def test_the_steps_that_a_tensor_was_left_alone_in_stay_with_it():
    two, one = (make_plan([("w", (8,))], servers, PlanConfig(alignment=1)) for servers in (2, 1))
    model = Model(two, "asp", MOMENTUM)
    model.train(1, 1)
    first, second = model.states
    first.table["missed"], second.table["missed"] = [[0, 2]], [[0, 2], [3, 1]]

    (found,) = recut(two, [first, second], one)

    assert found.table["missed"] == [[0, 2], [3, 1]]


def test_slices_of_several_moments_are_uneven_with_the_reason():
    model = Model(make_plan([("w", (8,))], 2, PlanConfig(alignment=1)), "asp", MOMENTUM)
    model.train(1, 2)
    tables = [state.table for state in model.states]
    model.slices[1].push("b", *[1.0] * 4)

    assert uneven(tables) == ""
    assert uneven([state.table for state in model.states]) == "they have 2 and 3 pushes of b"
    switched = tables[1] | {"switch": {"number": 1}}
    assert uneven([tables[0], switched]) == "a change of policy has reached only some of them"
    assert uneven([tables[0] | {"gathered": [1, 3]}, tables[1]]) == "1 and 0 pushes wait in their sums"
    rounds = [tables[0] | {"rounds": True}, tables[1] | {"rounds": True, "version": 99}]
    assert uneven(rounds) == "they are of different rounds"


def test_a_slice_without_a_momentum_so_far_has_one_of_zeros() -> None:
    two, one = (make_plan([("w", (8,))], servers, PlanConfig(alignment=1)) for servers in (2, 1))
    model = Model(two, "asp", MOMENTUM)
    model.train(1, 1)
    first, second = model.states

    (found,) = recut(two, [first, replace(second, slots=())], one)

    assert found.slots[0].tolist() == [*first.slots[0].tolist(), *[0.0] * 4]
