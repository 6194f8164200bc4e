"""Error feedback: what a codec leaves out is never lost."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from paceline.core.codecs.codec import Codec, build_codec
from paceline.core.codecs.error_feedback import ErrorFeedback, Owed
from paceline.core.errors import BadPush
from paceline.core.settings.config import Options
from paceline.core.values import Vector
from paceline.rpc.transport import encoded_parts, room_for
from tests.core.codecs.test_codecs import CODECS, bears_huge, every_codec
from tests.support.nights import fewer

SPECIAL = np.float32([0.0, 0.0, 1e-45, -1e-40, 1e-30, 1.0, -1.0, 2.0**13]).tolist()
VALUES = st.one_of(st.floats(-(2.0**13), 2.0**13, width=32), st.sampled_from(SPECIAL))
HUGE = st.floats(-(2.0**120), 2.0**120, width=32)
HALF = [codec for codec in CODECS if bears_huge(codec)]
"""Those that hold all float32 values."""


def sent(codec: Codec, values: Vector, residual: Vector, part_bytes: int = 1 << 20) -> tuple[Vector, list[Any]]:
    """What the receiver gets, and the parts that took it there."""
    return through(ErrorFeedback(codec, residual[None], residual[None]), values, part_bytes)


def through(feedback: ErrorFeedback, values: Vector, part_bytes: int = 1 << 20) -> tuple[Vector, list[Any]]:
    """The same, where what is owed may be kept twice."""
    codec = feedback.codec
    scratch = np.empty(room_for(codec, part_bytes, len(values)), np.uint8)
    parts = list(encoded_parts(values, codec, part_bytes, scratch, feedback))
    out = np.full(len(values), np.nan, np.float32)
    for offset, data in parts:
        codec.decode(data, out[offset : offset + codec.elements_in(data)])
    return out, parts


def owing(length: int, momentum: float = 0.0) -> Owed:
    """Nothing yet."""
    shape = (2, 2 if momentum else 1, length)
    return Owed(np.zeros(shape, np.float32), np.zeros((2, 2), np.int64), momentum)


def check_nothing_is_lost(codec: Codec, steps: np.ndarray, part_bytes: int, dropped: list[bool]) -> None:
    """sum(used) + residual == sum(given), as far as float32 goes, where some pushes are dropped."""
    given_sum, used_sum = np.zeros(len(steps[0])), np.zeros(len(steps[0]))
    owed, largest = owing(len(steps[0])), 0.0
    for clock, (step, is_dropped) in enumerate(zip(steps, dropped, strict=False), 1):
        gradient = np.array(step)
        out, _ = through(owed.feedback(codec), gradient, part_bytes)
        owed.sent(clock)
        given_sum += gradient
        if is_dropped:
            owed.take_back(gradient)
        else:
            used_sum += out
        largest = max(largest, *(float(np.abs(one).max(initial=0)) for one in (gradient, out, owed.residual)))
    np.testing.assert_allclose(
        used_sum + owed.residual, given_sum, rtol=0, atol=largest * len(steps) * 2.0**-21 + 1e-44
    )


def steps_of(values: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 40)), elements=values, fill=st.nothing())


@every_codec
@fewer(3)
@given(steps=steps_of(VALUES), part_bytes=st.integers(40, 400), dropped=st.lists(st.booleans(), min_size=6, max_size=6))
def test_what_was_sent_and_what_is_left_make_what_was_given(
    codec: Codec, steps: np.ndarray, part_bytes: int, dropped: list[bool]
) -> None:
    check_nothing_is_lost(codec, steps, part_bytes, dropped)


@pytest.mark.parametrize("codec", HALF, ids=repr)
@fewer(3)
@given(steps=steps_of(HUGE), dropped=st.lists(st.booleans(), min_size=6, max_size=6))
def test_nothing_of_huge_values_is_lost_either(codec: Codec, steps: np.ndarray, dropped: list[bool]) -> None:
    check_nothing_is_lost(codec, steps, 100, dropped)


@every_codec
def test_nothing_is_lost_of_several_blocks_in_many_steps(codec: Codec) -> None:
    random = np.random.default_rng(1)
    steps = [list(random.standard_normal(5003)) for _ in range(8)]
    check_nothing_is_lost(codec, steps, 2500, [False] * 8)


GRADIENTS = [[0.3, -0.6, 0.1, 1.2], [0.3, 0.2, 0.1, -0.1], [0, -0.4, 0.35, 0.1]]
STROM = {
    "full": [
        ([0, -0.6, 0, 1.2], [0.3, 0, 0.1, 0]),
        ([0.6, 0, 0, 0], [0, 0.2, 0.2, -0.1]),
        ([0, 0, 0.55, 0], [0, -0.2, 0, 0]),
    ],
    "quantised": [
        ([0, -0.5, 0, 0.5], [0.3, -0.1, 0.1, 0.7]),
        ([0.5, 0, 0, 0.5], [0.1, 0.1, 0.2, 0.1]),
        ([0, 0, 0.5, 0], [0.1, -0.3, 0.05, 0.2]),
    ],
}


@pytest.mark.parametrize("form", STROM)
def test_the_worked_example_of_stroms_codec(form: str) -> None:
    codec = build_codec(Options(name="threshold", tau=0.5, form=form), "codec")
    residual = np.zeros(4, np.float32)
    for gradient, (message, rest) in zip(GRADIENTS, STROM[form], strict=True):
        out, _ = sent(codec, np.array(gradient, np.float32), residual)
        np.testing.assert_allclose(out, message, atol=1e-6)
        np.testing.assert_allclose(residual, rest, atol=1e-6)


def test_what_is_too_small_for_a_threshold_is_sent_when_it_has_grown() -> None:
    codec, residual = build_codec(Options(name="threshold", tau=1.0), "codec"), np.zeros(3, np.float32)
    messages = [sent(codec, np.array([0.25, 0, -0.5], np.float32), residual)[0].tolist() for _ in range(4)]
    assert messages == [[0, 0, 0], [0, 0, -1], [0, 0, 0], [1, 0, -1]]


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec.name != "randomk"], ids=repr)
def test_everything_arrives_in_the_end(codec: Codec) -> None:
    """Where nothing more is given, the residual goes to 0, or below what the codec ever sends. Not with randomk, whose
    seed stays the same while nothing changes."""
    given_first, residual = np.random.default_rng(2).standard_normal(300).astype(np.float32), np.zeros(300, np.float32)
    total, _ = sent(codec, given_first, residual)
    for _ in range(400):
        total = total + sent(codec, np.zeros(300, np.float32), residual)[0]
    allowed = 0.5 if "tau=0.5" in repr(codec) else 0.05
    assert np.abs(total - given_first).max() <= allowed


def test_the_wrapper_codes_as_its_codec_does() -> None:
    codec, values = build_codec(Options(name="int8"), "codec"), np.arange(10, dtype=np.float32)
    nothing, out, other = np.zeros((1, 10), np.float32), bytearray(14), bytearray(14)
    wrapped = ErrorFeedback(codec, nothing, nothing)
    assert wrapped.encode(values, out) == codec.encode(values, other)
    assert out == other


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec.biased], ids=repr)
def test_a_residual_that_overflows_is_not_sent(codec: Codec) -> None:
    residual, most = np.full(50, 3e38, np.float32), np.full(50, 3e38, np.float32)
    with pytest.raises(BadPush, match=r"Lower optimizer\.lr"):
        sent(codec, most, residual)


def test_what_is_owed_can_be_forgotten_after_the_same_clock() -> None:
    owed = owing(2, momentum=0.9)
    through(owed.feedback(build_codec(Options(name="topk", share=0.5), "codec.push")), np.array([1.0, 3.0], np.float32))
    owed.sent(7)
    assert owed.residual.any()

    owed.clear()

    assert (owed.clock, owed.residual.tolist(), owed.velocity.tolist()) == (7, [0, 0], [0, 0])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_last_push_without_a_codec_brings_all_that_is_owed(momentum: float) -> None:
    owed, given = owing(4, momentum), np.array([4.0, 3.0, 2.0, 1.0], np.float32)
    before, _ = through(owed.feedback(build_codec(Options(name="topk", share=0.5), "codec.push")), given)
    owed.sent(1)

    last, _ = through(owed.feedback(build_codec(Options(name="none"), "codec.push")), given)
    owed.sent(2)

    kept = np.float32(1 + momentum) * np.array([0.0, 0.0, 2.0, 1.0], np.float32)
    assert before.tolist() == [4, 3, 0, 0]
    assert last == pytest.approx(given + kept)
    assert not owed.residual.any()
    assert momentum == 0 or not owed.velocity.any()
