"""A snapshot is of one moment, although training changes the arrays while they are copied."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from paceline.core.optimizers.builtin.adam import Adam
from paceline.core.optimizers.builtin.ftrl import Ftrl
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.slice import copies as copies_module
from paceline.core.slice.copies import Copies
from paceline.core.slice.sparse_folding import SparseFolding
from paceline.core.values import Sparse
from tests.support.one_slice import OneSlice

NAMES = ["a", "b"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies_module, "_BLOCK", 4)


def test_blocks_are_copied_one_after_another_to_spare_arrays_first() -> None:
    sources = {"x": np.arange(10, dtype=np.float32), "y": np.ones(10, np.float32)}
    spare = [np.zeros(3, np.float32), np.zeros(10, np.float32)]
    first = spare[1]
    copies = Copies(sources, spare)
    steps = 0
    while not copies.is_done:
        copies.advance()
        steps += 1
    assert steps == 6
    assert copies.made["x"] is first
    assert [len(array) for array in spare] == [3]
    assert [copies.made[name].tolist() for name in sources] == [source.tolist() for source in sources.values()]


class SparseSlice(OneSlice):
    folding = staticmethod(partial(SparseFolding, average_from=0.0))


def pushed(one: OneSlice, clock: int) -> None:
    """Both workers push."""
    for worker in NAMES:
        if isinstance(one, SparseSlice):
            places = np.array([0, clock, 9])
            one.push(worker, update=Sparse(places, np.full(3, clock, np.float32), 10))
        else:
            one.push(worker, *[float(clock)] * 10)


MOMENTUM = Sgd(lr=0.5, momentum=0.5, weight_decay=0.0)
CASES: dict[str, Callable[[], OneSlice]] = {
    "momentum": lambda: OneSlice("asp", NAMES, [0.0] * 10, MOMENTUM),
    "adam": lambda: OneSlice("asp", NAMES, [0.0] * 10, Adam(lr=0.5)),
    "rounds": lambda: OneSlice("bsp", NAMES, [0.0] * 10, MOMENTUM),
    "a sum": lambda: OneSlice("kbuffered", NAMES, [0.0] * 10, MOMENTUM, k=3),
    "sparse": lambda: SparseSlice("asp", NAMES, [0.0] * 10, per_epoch=1),
    "ftrl": lambda: SparseSlice("asp", NAMES, [0.0] * 10, Ftrl(lr=0.5), per_epoch=1),
}


HELD = {"a sum": "gathered", "sparse": "lag", "ftrl": "lag"}
"""What else is in the snapshot."""


@pytest.mark.parametrize("copied", range(7))
@pytest.mark.parametrize("case", CASES)
def test_a_snapshot_is_of_its_moment_wherever_folds_break_in(case: str, copied: int) -> None:
    one = CASES[case]()
    pushed(one, 1)
    pushed(one, 2)
    before = one.slice.state()

    taken = one.slice.snapshot()
    for _ in range(copied):
        taken.copies.advance()
    for clock in (3, 4, 5):
        pushed(one, clock)
    taken.copies.finish()

    assert taken.state.table == before.table
    assert taken.state.weights.tolist() == before.weights.tolist()
    assert [slot.tolist() for slot in taken.state.slots] == [slot.tolist() for slot in before.slots]
    for name in ("gathered", "lag"):
        found, expected = getattr(taken.state, name), getattr(before, name)
        assert (found is None) == (expected is None) == (name != HELD.get(case))
        assert found is None or found.tolist() == expected.tolist()
    assert one.slice.state().weights.tolist() != before.weights.tolist()
    one.slice.release(taken.weights)
