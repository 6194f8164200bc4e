"""Which tensors lie where in a slice, however the model is cut."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.optimizers.layout import Layout, Piece
from paceline.core.settings.config import PlanConfig
from paceline.core.slice.plan import make_plan

shapes = st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), min_size=1, max_size=7)


def plan_of(found: list[tuple[int, ...]], servers: int, slices: str, alignment: int = 1):
    named = [(f"layer{number // 2}.{'wb'[number % 2]}", shape) for number, shape in enumerate(found)]
    return make_plan(named, servers, PlanConfig(slices=slices, alignment=alignment))


def test_by_hand_a_cut_goes_through_a_tensor():
    whole = Layout.whole([("a", (2, 3)), ("none", (0,)), ("b", (4,))])

    assert whole.pieces == (Piece(0, 0, 6), Piece(2, 6, 10))
    assert whole.cut([(4, 8)]).pieces == (Piece(0, 0, 2), Piece(2, 2, 4))
    assert whole.cut([(8, 10), (0, 2)]).pieces == (Piece(2, 0, 2), Piece(0, 2, 4)), "ranges one behind the other"


@pytest.mark.parametrize("slices", ["memorywise", "layerwise", "whole"])
@given(found=shapes, servers=st.integers(1, 4), alignment=st.sampled_from([1, 3, 16]))
def test_pieces_name_the_tensor_of_each_element_of_a_slice_once(slices, found, servers, alignment):
    plan = plan_of(found, servers, slices, alignment)
    owner = np.repeat(np.arange(len(found)), [math.prod(shape) for shape in found]).astype(np.float32)

    for server, parts in enumerate(plan.split(owner)):
        pieces = plan.layout(server).pieces
        told = np.concatenate([np.full(one.stop - one.start, one.tensor) for one in pieces]) if pieces else np.zeros(0)
        assert [one.start for one in pieces] == [0, *(one.stop for one in pieces)][: len(pieces)], "no gap, no overlap"
        np.testing.assert_array_equal(told, np.concatenate(parts) if parts else np.zeros(0))
