"""Cutting the model: the worked example of docs/choose/without-servers.md, and invariants of every strategy."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.codecs.codec import Run
from paceline.core.errors import PlanMismatch
from paceline.core.optimizers.layout import Layout, Piece
from paceline.core.settings.config import Config, PlanConfig
from paceline.core.slice.plan import assembly_buffers, make_plan, server_memory

EXAMPLE = [("a", (10,)), ("b", (9, 10)), ("c", (3,)), ("d", (4,))]

shapes = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5)), max_size=12).map(
    lambda found: [(f"layer{number // 2}.tensor{number}", shape) for number, shape in enumerate(found)]
)
strategies = st.one_of(
    st.builds(PlanConfig, slices=st.just("memorywise"), alignment=st.sampled_from([1, 4, 16])),
    st.builds(PlanConfig, slices=st.just("memorywise"), max_slice_bytes=st.sampled_from([64, 100, 400])),
    st.builds(PlanConfig, slices=st.sampled_from(["layerwise", "whole"])),
)


def cuts(plan):
    return [[(part.start, part.stop) for part in ranges] for ranges in plan.slices]


@pytest.mark.parametrize(
    ("alignment", "expected"),
    [(1, [(0, 26), (26, 53), (53, 80), (80, 107)]), (16, [(0, 16), (16, 48), (48, 80), (80, 107)])],
)
def test_memorywise_cuts_of_the_worked_example(alignment, expected):
    plan = make_plan(EXAMPLE, 4, PlanConfig(alignment=alignment))

    assert cuts(plan) == [[cut] for cut in expected]


def test_imbalance_of_the_worked_example():
    layerwise = make_plan(EXAMPLE, 4, PlanConfig(slices="layerwise"))
    memorywise = make_plan(EXAMPLE, 4, PlanConfig(alignment=1))

    assert layerwise.lengths == (10, 90, 3, 4)
    assert layerwise.imbalance == pytest.approx(3.36, abs=0.005)
    assert memorywise.imbalance == pytest.approx(1.01, abs=0.005)
    assert (4 / memorywise.imbalance, 4 / layerwise.imbalance) == pytest.approx((3.96, 1.19), abs=0.01)


def test_layerwise_keeps_the_tensors_of_a_layer_together():
    model = [("conv1.weight", (3,)), ("conv1.bias", (1,)), ("fc.weight", (5,)), ("fc.bias", (2,))]

    plan = make_plan(model, 2, PlanConfig(slices="layerwise"))

    assert cuts(plan) == [[(0, 4)], [(4, 11)]]


def test_whole_puts_everything_on_server_0():
    assert make_plan(EXAMPLE, 3, PlanConfig(slices="whole")).lengths == (107, 0, 0)


def test_shats_form_splits_only_layers_above_the_limit():
    model = [("a.weight", (20,)), ("a.bias", (2,)), ("b.weight", (50,)), ("c.weight", (10,)), ("c.bias", (6,))]

    plan = make_plan(model, 2, PlanConfig(max_slice_bytes=4 * 30))

    assert cuts(plan) == [[(0, 22), (52, 72)], [(22, 52), (72, 88)]]


@pytest.mark.parametrize(
    ("elements", "lengths"), [(1, (1, 0, 0, 0)), (9, (9, 0, 0, 0)), (17, (16, 1, 0, 0)), (50, (16, 16, 16, 2))]
)
def test_a_tiny_model_leaves_the_last_servers_empty_and_never_the_first(elements: int, lengths: tuple[int, ...]):
    """The chief counts the run's versions, and tells by them whether it has begun."""
    assert make_plan([("w", (elements,))], 4, PlanConfig()).lengths == lengths


@given(shapes, st.integers(1, 7), strategies)
def test_every_element_is_on_one_server(model, servers, config):
    plan = make_plan(model, servers, config)

    owned = sorted(element for ranges in plan.slices for part in ranges for element in range(part.start, part.stop))

    assert owned == list(range(plan.total))
    assert plan.servers == servers


@given(shapes, st.integers(1, 7), st.sampled_from([1, 4, 16]))
def test_memorywise_slices_differ_by_the_alignment_and_a_tail(model, servers, alignment):
    plan = make_plan(model, servers, PlanConfig(alignment=alignment))

    assert max(plan.lengths) - min(plan.lengths) < 2 * alignment


@given(shapes, st.integers(1, 5), strategies)
def test_a_split_model_is_the_model(model, servers, config):
    plan = make_plan(model, servers, config)
    flat = np.arange(plan.total, dtype=np.float32)

    parts = [part for slice_parts in plan.split(flat) for part in slice_parts]

    assert all(np.shares_memory(part, flat) for part in parts)
    assert sorted(np.concatenate([*parts, np.empty(0, np.float32)])) == list(flat)


def test_equal_plans_have_equal_hashes_and_others_do_not():
    plan = make_plan(EXAMPLE, 4, PlanConfig())
    others = [
        make_plan(EXAMPLE, 3, PlanConfig()),
        make_plan(EXAMPLE, 4, PlanConfig(alignment=1)),
        make_plan(EXAMPLE, 4, PlanConfig(slices="layerwise")),
        make_plan([("z", (10,)), *EXAMPLE[1:]], 4, PlanConfig()),
        make_plan([("a", (2, 5)), *EXAMPLE[1:]], 4, PlanConfig()),
    ]

    assert make_plan(list(EXAMPLE), 4, PlanConfig()).hash == plan.hash
    assert len({plan.hash, *(other.hash for other in others)}) == 6


def test_another_plan_is_refused_with_what_to_compare():
    plan = make_plan(EXAMPLE, 4, PlanConfig())
    plan.check(plan.hash, "worker-3")

    with pytest.raises(PlanMismatch, match=r"worker-3 has another plan .* Compare 'task', 'servers' and 'plan'"):
        plan.check("0" * 64, "worker-3")


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ([("a", (3, 4)), ("b", (5,))], "a is (3, 4), expected (2, 4)."),
        ([("a", (2, 4))], "b (5,) is missing."),
        ([("a", (2, 4)), ("b", (5,)), ("c", (1,))], "c (1,) is not in the run's."),
        ([("b", (5,)), ("a", (2, 4))], "they come in another order."),
        ([(str(number), ()) for number in range(4)], "2 () is not in the run's, and 3 more."),
    ],
)
def test_another_model_is_refused_by_tensor_and_shape(other, told):
    plan, theirs = (make_plan(shapes, 1, PlanConfig()) for shapes in ([("a", (2, 4)), ("b", (5,))], other))

    with pytest.raises(PlanMismatch, match=f"worker-1's model has other tensors than the run's: .*{re.escape(told)}"):
        plan.check(theirs.hash, "worker-1", other)


def test_memory_of_a_server_follows_the_formula():
    memory = server_memory(1000, slots=1, arrays=1, workers=4, part_bytes=1 << 10, push_memory=8000)

    assert memory == {
        "weights": 4000,
        "optimizer": 4000,
        "snapshot": 8000,
        "published": 4000,
        "policy": 4000,
        "assembly": 8000,
        "messages": 16 << 10,
    }


@pytest.mark.parametrize(
    ("length", "workers", "places"),
    [(1000, 1, 1), (1000, 8, 8), (25_600_000, 8, 5), (138_000_000, 8, 2), (0, 8, 8)],
    ids=["one worker", "small", "ResNet-50", "VGG-16", "empty slice"],
)
def test_as_many_pushes_are_assembled_at_a_time_as_there_is_memory_for(length: int, workers: int, places: int):
    assert assembly_buffers(length, workers, Config().push_memory) == places


small_shapes = st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), min_size=1, max_size=7)


def plan_of(found: list[tuple[int, ...]], servers: int, slices: str, alignment: int = 1):
    named = [(f"layer{number // 2}.{'wb'[number % 2]}", shape) for number, shape in enumerate(found)]
    return make_plan(named, servers, PlanConfig(slices=slices, alignment=alignment))


def test_by_hand_a_cut_goes_through_a_tensor():
    whole = Layout.whole([("a", (2, 3)), ("none", (0,)), ("b", (4,))])

    assert whole.pieces == (Piece(0, 0, 6), Piece(2, 6, 10))
    assert whole.cut([(4, 8)]).pieces == (Piece(0, 0, 2), Piece(2, 2, 4))
    assert whole.cut([(8, 10), (0, 2)]).pieces == (Piece(2, 0, 2), Piece(0, 2, 4)), "ranges one behind the other"


class Counted(tuple[Piece, ...]):
    """Pieces that count how often one is looked at."""

    looks = 0

    def __getitem__(self, number):
        Counted.looks += 1
        return super().__getitem__(number)


def looks_at_each(layers: int) -> float:
    """How often a layerwise cut looks at each tensor of a model with this number of layers."""
    plan = plan_of([(8, 8), (8,)] * layers, 2, "layerwise")
    whole = plan.layout()
    Counted.looks = 0
    Layout(whole.names, Counted(whole.pieces)).cut((part.start, part.stop) for part in plan.slices[0])
    return Counted.looks / len(whole.pieces)


def test_a_layerwise_cut_looks_at_each_tensor_about_as_often_whether_there_are_few_or_many():
    assert looks_at_each(1000) < 2 * looks_at_each(100) < 40


@given(found=small_shapes, servers=st.integers(1, 4))
def test_the_runs_of_layerwise_slices_are_the_whole_rows_of_their_tensors(found, servers):
    plan = plan_of(found, servers, "layerwise")
    for server in range(servers):
        own = [shape for number, shape in enumerate(found) if number // 2 % servers == server and math.prod(shape)]
        columns = [math.prod(shape[1:]) if len(shape) > 1 else 0 for shape in own]
        assert plan.runs(server) == tuple(Run(math.prod(shape), each) for shape, each in zip(own, columns, strict=True))


@pytest.mark.parametrize("slices", ["memorywise", "layerwise", "whole"])
@given(found=small_shapes, servers=st.integers(1, 4), alignment=st.sampled_from([1, 3, 16]))
def test_pieces_name_the_tensor_of_each_element_of_a_slice_once(slices, found, servers, alignment):
    plan = plan_of(found, servers, slices, alignment)
    owner = np.repeat(np.arange(len(found)), [math.prod(shape) for shape in found]).astype(np.float32)

    for server, parts in enumerate(plan.split(owner)):
        pieces = plan.layout(server).pieces
        told = np.concatenate([np.full(one.stop - one.start, one.tensor) for one in pieces]) if pieces else np.zeros(0)
        assert [one.start for one in pieces] == [0, *(one.stop for one in pieces)][: len(pieces)], "no gap, no overlap"
        np.testing.assert_array_equal(told, np.concatenate(parts) if parts else np.zeros(0))
