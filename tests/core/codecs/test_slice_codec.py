"""Running statistics travel as they are, with every codec of the gradients before them."""

import numpy as np
import pytest

from paceline.core import registry
from paceline.core.codecs.codec import PACKAGE, Run, load_codec
from paceline.core.codecs.error_feedback import Owed
from paceline.core.codecs.slice_codec import SliceCodec
from paceline.core.settings.config import PlanConfig
from paceline.core.slice.plan import Range, make_plan
from paceline.core.values import Vector
from paceline.rpc.transport import encoded_parts, room_for
from paceline.server.push_assembly import Assembly
from paceline.worker.exchange.received_weights import SliceSink

ROWS, STATISTICS, PART = 64, 30, 512
GRADIENT = (1e-3 * np.random.default_rng(1).standard_normal(ROWS * ROWS)).astype(np.float32)
MOVED = np.linspace(-1e7, 1e7, STATISTICS).astype(np.float32)


def slice_codec(name: str) -> SliceCodec:
    return SliceCodec(load_codec(name), len(GRADIENT)).fitted((Run(len(GRADIENT), ROWS), Run(STATISTICS, 0)))


def assembled(coding: SliceCodec, values: Vector, owed: Owed | None = None) -> Vector:
    """What a server has of a push."""
    assembly = Assembly("worker-0", np.empty(len(values), np.float32), SliceCodec(coding.codec, coding.exact_from))
    feedback = None if owed is None else owed.feedback(coding.codec)
    for offset, data in encoded_parts(values, coding, PART, feedback=feedback):
        assembly.take(offset, data)
    assembly.check_complete()
    return assembly.values


@pytest.mark.parametrize("name", registry.names(PACKAGE))
def test_statistics_arrive_exactly_and_leave_the_gradient_before_them_as_it_would_be_alone(name: str) -> None:
    alone = SliceCodec(load_codec(name), len(GRADIENT)).fitted((Run(len(GRADIENT), ROWS),))
    both = slice_codec(name)

    arrived = assembled(both, np.concatenate([GRADIENT, MOVED]))

    assert arrived[: len(GRADIENT)].tobytes() == assembled(alone, GRADIENT).tobytes()
    assert arrived[len(GRADIENT) :].tobytes() == MOVED.tobytes()
    assert room_for(both, PART, len(arrived)) == room_for(alone, PART, len(GRADIENT)) + 4 * STATISTICS


@pytest.mark.parametrize("name", ["topk", "sign", "powersgd"])
def test_error_feedback_owes_nothing_of_them(name: str) -> None:
    values = np.concatenate([GRADIENT, MOVED])
    owed = Owed(np.zeros((2, 1, len(values)), np.float32), np.zeros((2, 2), np.int64))

    for clock in (1, 2, 3):
        assert assembled(slice_codec(name), values, owed)[len(GRADIENT) :].tobytes() == MOVED.tobytes()
        owed.sent(clock)

    assert owed.residual.any()
    assert not owed.residual[len(GRADIENT) :].any()


@pytest.mark.parametrize("name", ["none", "fp16", "int8"])
def test_weights_come_back_with_exact_statistics_into_a_model_in_two_ranges(name: str) -> None:
    values, coding = np.concatenate([GRADIENT, MOVED]), SliceCodec(load_codec(name), len(GRADIENT))
    model, half = np.zeros(len(values) + 10, np.float32), len(values) // 2
    sink = SliceSink(model, (Range(0, half), Range(half + 10, len(model))), coding)

    for offset, data in encoded_parts(values, coding, PART):
        sink.take(offset, data)

    assert model[-STATISTICS:].tobytes() == MOVED.tobytes()
    assert np.delete(model, np.s_[half : half + 10])[: len(GRADIENT)] == pytest.approx(GRADIENT, abs=1e-4)


@pytest.mark.parametrize("slices", ["memorywise", "layerwise", "whole"])
def test_a_plan_knows_where_they_begin_in_each_slice(slices: str) -> None:
    shapes = (("a", (5, 3)), ("b", (7,)), ("mean", (4,)), ("var", (4,)))
    plan = make_plan(shapes, 3, PlanConfig(slices=slices))

    before = [plan.elements_before(("mean", "var"), server) for server in range(3)]

    flat = np.arange(plan.total)
    for count, pieces in zip(before, plan.split(flat), strict=True):
        ours = np.concatenate(pieces) if pieces else flat[:0]
        assert (ours[:count] < 22).all()
        assert (ours[count:] >= 22).all()
    assert sum(before) == 22
    assert [plan.elements_before((), server) for server in range(3)] == list(plan.lengths)
