"""The contract of every codec in the folder, and what is special about each."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paceline.core import registry
from paceline.core.codecs.codec import PACKAGE, Codec, build_codec, load_codec
from paceline.core.errors import BadPush, ConfigError
from paceline.core.settings.config import Config, Options
from paceline.core.values import Vector
from paceline.rpc.transport import encoded_parts, room_for, weights_codec
from paceline.server.push_assembly import Assembly
from paceline.settings.load_settings import load, parse_sets

NAMES = registry.names(PACKAGE)
BOUNDS = {"none": (0.0, 0.0), "fp16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-133)}
"""Largest relative error, and absolute error where values are subnormal, of those that code each value by itself."""
ROUND = sorted(BOUNDS)
FLOATS = st.floats(-60000, 60000, width=32)
ANY = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**120), max_value=2.0**120),
    st.sampled_from([0.0, -0.0, 1e-45, -1e-45, 1.2e-38, 1e-30, 1.0, -1.0, 1.0]),
)
"""Zeros, subnormals, equal ones, huge ones."""
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "topk": [{"share": 0.3}, {"share": 1.0}, {"share": 0.4, "threshold": "sampled"}],
    "threshold": [
        {"tau": 0.5},
        {"tau": 0.5, "form": "quantised"},
        {"share": 0.3},
        {"share": 0.3, "form": "quantised"},
    ],
    "randomk": [{"share": 0.3}, {"share": 1.0}],
    "powersgd": [{"rank": 1}, {"rank": 2}],
}
"""The contract holds with a codec's defaults and with these."""
CODECS = [build_codec(Options(name=name, **more), "codec") for name in NAMES for more in [{}, *OPTIONS.get(name, [])]]
every_codec = pytest.mark.parametrize("codec", CODECS, ids=repr)


def bears_huge(codec: Codec) -> bool:
    """Whether it has a finite form of the largest values; half precision has none."""
    try:
        codec.round(huge := np.array([3e38], np.float32))
    except BadPush:
        return False
    return bool(np.isfinite(huge).all())


def encoded(codec: Codec, values: Vector) -> bytes:
    out = bytearray(codec.most_bytes(len(values)))
    return bytes(out[: codec.encode(values, memoryview(out))])


def decoded(codec: Codec, data: bytes, elements: int) -> Vector:
    out = np.full(elements, np.nan, np.float32)
    codec.decode(memoryview(data), out)
    return out


def numbers(length: int) -> Vector:
    return np.random.default_rng(0).standard_normal(length, dtype=np.float32)


def test_a_codec_keeps_all_values_or_has_error_feedback() -> None:
    assert all(load_codec(name).keeps_all or load_codec(name).biased for name in NAMES)
    assert {name for name in NAMES if not load_codec(name).biased} >= set(BOUNDS)
    assert {name for name in NAMES if load_codec(name).keeps_all} >= {*BOUNDS, "int8"}


@pytest.mark.parametrize("name", NAMES)
def test_a_codec_is_found_by_its_own_name(name: str) -> None:
    assert load_codec(name).name == name


@pytest.mark.parametrize("name", ROUND)
@given(values=st.lists(FLOATS, max_size=50))
def test_a_round_trip_stays_within_the_error_bound(name: str, values: list[float]) -> None:
    codec, vector = load_codec(name), np.array(values, np.float32)

    back = decoded(codec, encoded(codec, vector), len(vector))

    relative, absolute = BOUNDS[name]
    exact = vector.astype(np.float64)
    assert (np.abs(back - exact) <= np.maximum(relative * np.abs(exact), absolute)).all()
    if codec.lossless:
        assert back.tobytes() == vector.tobytes()


@pytest.mark.parametrize("name", ROUND)
@given(values=st.lists(FLOATS, max_size=50))
def test_a_second_round_trip_changes_nothing(name: str, values: list[float]) -> None:
    codec = load_codec(name)
    data = encoded(codec, np.array(values, np.float32))

    assert encoded(codec, decoded(codec, data, len(values))) == data


@pytest.mark.parametrize("name", ROUND)
@pytest.mark.parametrize("cut", [0, 1, 7, 50, 99, 100])
def test_parts_give_the_bytes_and_values_of_the_whole(name: str, cut: int) -> None:
    codec, values = load_codec(name), numbers(100)
    whole = encoded(codec, values)

    data = encoded(codec, values[:cut]) + encoded(codec, values[cut:])
    out = np.empty(100, np.float32)
    codec.decode(data[: codec.most_bytes(cut)], out[:cut])
    codec.decode(data[codec.most_bytes(cut) :], out[cut:])

    assert data == whole
    assert out.tobytes() == decoded(codec, whole, 100).tobytes()


@every_codec
@pytest.mark.parametrize("length", [9, 1030, 2048, 5003])
def test_a_part_may_lie_at_an_odd_address_of_a_message(codec: Codec, length: int) -> None:
    values, most = numbers(length), codec.most_bytes(length)
    message = bytearray(b"\7" * (most + 2))

    size = codec.encode(values, memoryview(message)[1 : most + 1])
    out = np.empty(length, np.float32)
    codec.decode(memoryview(bytes(message))[1 : size + 1], out)

    assert size <= most
    assert bytes(message[: size + 1]) == b"\7" + encoded(codec, values)
    assert message[-1] == 7
    assert out.tobytes() == decoded(codec, encoded(codec, values), length).tobytes()


@every_codec
def test_an_array_of_bytes_does_as_well_as_a_memoryview(codec: Codec) -> None:
    values = numbers(9)
    out = np.zeros(codec.most_bytes(9), np.uint8)

    size = codec.encode(values, out)

    assert out[:size].tobytes() == encoded(codec, values)


@every_codec
@pytest.mark.parametrize("wrong", [-2, -1, 1, 4])
def test_a_part_of_the_wrong_size_is_refused_and_touches_nothing(codec: Codec, wrong: int) -> None:
    values = numbers(10)
    data, out = encoded(codec, values), np.full(10, 3, np.float32)

    with pytest.raises(BadPush, match=rf"same plan and codec|A part is not a {codec.name}"):
        codec.decode((data + b"1234")[: len(data) + wrong], out)

    assert (out == 3).all()


@every_codec
def test_a_part_of_another_number_of_values_is_refused(codec: Codec) -> None:
    with pytest.raises(BadPush, match=r"are 10 values; expected 11\. Both ends must use the same plan and codec"):
        codec.decode(encoded(codec, numbers(10)), np.zeros(11, np.float32))


@every_codec
def test_what_has_too_little_room_is_refused_and_touches_nothing(codec: Codec) -> None:
    buffer = bytearray(codec.most_bytes(10) - 1)

    with pytest.raises(BadPush, match=f"may take {codec.most_bytes(10)} bytes as {codec.name}, but there is room for"):
        codec.encode(numbers(10), buffer)

    assert not any(buffer)


@every_codec
def test_anything_but_float32_is_refused(codec: Codec) -> None:
    with pytest.raises(BadPush, match="int32 can't be coded; convert them to float32"):
        codec.encode(np.zeros(4, np.int32), bytearray(codec.most_bytes(4)))


@pytest.mark.parametrize("name", ROUND)
def test_values_that_are_not_finite_stay_so_for_the_server_to_refuse(name: str) -> None:
    codec = load_codec(name)

    back = decoded(codec, encoded(codec, np.array([np.inf, -np.inf, np.nan], np.float32)), 3)

    assert back[0] == np.inf
    assert back[1] == -np.inf
    assert np.isnan(back[2])


def test_fp16_makes_infinite_what_it_can_not_hold_and_bf16_holds_it() -> None:
    large = np.array([65519.0, 65520.0, 3e38], np.float32)

    assert decoded(load_codec("fp16"), encoded(load_codec("fp16"), large), 3).tolist() == [65504.0, np.inf, np.inf]
    assert np.isfinite(decoded(load_codec("bf16"), encoded(load_codec("bf16"), large), 3)).all()


@every_codec
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_part_that_is_not_finite_is_never_taken_for_one_that_is(codec: Codec, poison: float) -> None:
    data = encoded(codec, np.full(2000, poison, np.float32))

    with pytest.raises(BadPush, match=r"NaN|it has a scale that is"):
        taken(codec, data, 2000)


def taken(codec: Codec, data: bytes, elements: int) -> Vector:
    """What a server makes of a push of one part."""
    assembly = Assembly("worker-0", np.full(elements, 3, np.float32), codec)
    assembly.take(0, memoryview(data))
    assembly.check_complete()
    return assembly.values


@every_codec
@given(values=st.lists(ANY, max_size=60), part_bytes=st.integers(40, 300))
def test_parts_of_any_size_make_a_push_and_fit_their_room(codec: Codec, values: list[float], part_bytes: int) -> None:
    codec = codec if bears_huge(codec) else load_codec("bf16")
    vector = np.array(values, np.float32)
    scratch = np.empty(room_for(codec, part_bytes, len(vector)), np.uint8)
    parts = list(encoded_parts(vector, codec, part_bytes, scratch))

    assembly = Assembly("worker-0", np.full(len(vector), 3, np.float32), load_codec(codec.name))
    for offset, data in parts:
        assert len(data) <= part_bytes
        assembly.take(offset, data)
    assembly.check_complete()

    once = [(offset, bytes(data)) for offset, data in encoded_parts(vector, codec, part_bytes)]
    assert once == [(offset, bytes(data)) for offset, data in parts]
    exact = codec.name in ("none", "topk", "randomk") or (codec.name == "threshold" and "full" in repr(codec))
    assert not exact or np.isin(assembly.values, [*vector, 0]).all()


@every_codec
@given(st.data())
def test_hostile_bytes_are_refused_or_are_values_of_the_slice(codec: Codec, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, 70))
    honest = bytearray(encoded(codec, numbers(length)))
    for _ in range(data.draw(st.integers(0, 4))):
        if honest:
            honest[data.draw(st.integers(0, len(honest) - 1))] = data.draw(st.integers(0, 255))
    message = data.draw(st.one_of(st.just(bytes(honest)), st.binary(max_size=80)))
    room = np.full(length + 200, 3, np.float32)

    assembly = Assembly("worker-0", room[100 : 100 + length], codec)
    try:
        assembly.take(0, memoryview(message))
    except BadPush:
        pass
    else:
        assert np.isfinite(room).all()
    assert (room[:100] == 3).all()
    assert (room[100 + length :] == 3).all()


@every_codec
def test_no_memory_is_taken_on_the_word_of_the_wire(codec: Codec) -> None:
    codec.decode(encoded(codec, numbers(10)), np.empty(10, np.float32))  # compiles what it needs
    out = np.empty(4, np.float32)
    tracemalloc.start()
    try:
        for message in (b"\xff" * 24, b"\4\0\0\0" + b"\xff" * 24, b"\4\0\0\0\1\0\0\0\xff\xff\xff\xff\0\0\0\0"):
            try:
                assert codec.elements_in(message) >= 0
                codec.decode(message, out)
            except BadPush:
                pass
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("topk", [4, 1, 0x3F800000, 0x05], "below 4"),  # the fifth place of four
        ("topk", [4, 1, 0x3F800000, 0x00], "must rise"),
        ("topk", [4, 1, 0x7FC00000, 0x01], "NaN"),
        ("topk", [4, 9, 0x3F800000, 0x01], "can't hold 9 values"),
        ("threshold", [4, 7, 0, 0], "its form is 7"),
        ("threshold", [4, 2, 1, 0x7F800000, 0x02], "NaN or infinity"),
        ("threshold", [4, 2, 5, 0x3F800000, 0x02], "don't hold 5 distances"),
        ("threshold", [1, 0, 0x7F800000], "NaN or infinity"),
        ("randomk", [1, 2, 5, 5, 0x3F800000, 0x3F800000], "no head and 2 of 1 values"),
        ("sign", [8, 0xBF800000, 0], "8 values take 9 bytes"),
    ],
)
def test_what_no_codec_would_have_written_is_refused_with_a_reason(name: str, data: list[int], error: str) -> None:
    codec, message = load_codec(name), b"".join(word.to_bytes(4, "little") for word in data)
    if name in ("topk", "threshold") and data[1] not in (0, 7):
        message = message[:-3]  # the last is a byte

    with pytest.raises(BadPush, match=error):
        codec.decode(message, np.zeros(data[0], np.float32))


@pytest.mark.parametrize("scale", [-1.0, np.inf, np.nan, 3e37])
def test_a_scale_that_no_encoder_gives_is_refused(scale: float) -> None:
    out = np.full(3, 3, np.float32)
    with pytest.raises(BadPush, match="a scale that is negative"):
        load_codec("int8").decode(np.float32(scale).tobytes() + b"\1\2\3", out)
    if scale < 3e37 or not np.isfinite(scale):
        with pytest.raises(BadPush, match="a scale that is negative"):
            load_codec("sign").decode(b"\3\0\0\0" + np.float32(scale).tobytes() + b"\1", out)
    assert (out == 3).all()


@given(st.lists(ANY, min_size=1, max_size=3000))
@example([float(np.finfo(np.float32).max)] * 3)
def test_int8_is_within_half_a_step_of_each_block(values: list[float]) -> None:
    codec, vector = load_codec("int8"), np.array(values, np.float32)

    back = decoded(codec, encoded(codec, vector), len(vector))

    for start in range(0, len(vector), 1024):
        block = vector[start : start + 1024].astype(np.float64)
        step = np.abs(block).max() / 127
        assert (np.abs(back[start : start + 1024] - block) <= 0.5001 * step + 1.5e-36).all()


def test_int8_and_sign_by_hand() -> None:
    values = np.array([127, -63.4, 0.2, -0.6], np.float32)

    assert decoded(load_codec("int8"), encoded(load_codec("int8"), values), 4).tolist() == [127, -63, 0, -1]
    sent = decoded(load_codec("sign"), encoded(load_codec("sign"), values), 4)
    np.testing.assert_allclose(sent, np.array([1, -1, 1, -1]) * (127 + 63.4 + 0.2 + 0.6) / 4, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "elements", "size"),
    [("int8", 5000, 5020), ("sign", 5000, 4 + 625 + 20), ("topk", 100_000, 5008), ("randomk", 100_000, 4016)],
)
def test_what_a_part_takes_on_the_wire(name: str, elements: int, size: int) -> None:
    assert len(encoded(load_codec(name), numbers(elements))) == pytest.approx(size, rel=0.15)


@given(st.lists(st.sampled_from([0.0, 1.0, -1.0, 2.0, -3.0, 1e-45]), max_size=100), st.floats(0.01, 1))
def test_topk_sends_the_largest_and_no_zeros(values: list[float], share: float) -> None:
    codec, vector = build_codec(Options(name="topk", share=share), "codec"), np.array(values, np.float32)

    back = decoded(codec, encoded(codec, vector), len(vector))

    count = min(int(np.ceil(share * len(vector))), np.count_nonzero(vector))
    assert sorted(np.abs(back[back != 0])) == sorted(np.abs(vector))[len(vector) - count :]
    assert np.isin(back[back != 0], vector).all()


@pytest.mark.parametrize("every", [1, 19, 57, 300_000])
@pytest.mark.parametrize("factor", [0.0, 1.0, 100.0])
def test_topk_is_exact_whatever_a_sample_shows(every: int, factor: float) -> None:
    values = numbers(300_000)
    values[::every] *= factor  # one value in 19 is looked at

    back = decoded(load_codec("topk"), encoded(load_codec("topk"), values), len(values))

    places = np.sort(np.argsort(-np.abs(values), kind="stable")[: min(3000, np.count_nonzero(values))])
    assert np.flatnonzero(back).tolist() == places.tolist()
    assert (back[places] == values[places]).all()


def test_topk_with_a_sampled_threshold_sends_about_the_share() -> None:
    values = numbers(300_000)
    codec = build_codec(Options(name="topk", share=0.01, threshold="sampled"), "codec")

    back = decoded(codec, encoded(codec, values), len(values))

    assert 2500 < np.count_nonzero(back) < 3500
    assert np.abs(back[back != 0]).min() > np.abs(values[back == 0]).max()


def test_topk_with_a_sampled_threshold_looks_at_all_where_the_sample_misleads() -> None:
    values = np.zeros(300_000, np.float32)
    values[1:300_000:57] = numbers(5264)  # one value in 19 is looked at
    codec = build_codec(Options(name="topk", share=0.01, threshold="sampled"), "codec")

    assert np.count_nonzero(decoded(codec, encoded(codec, values), len(values))) == 3000


def test_a_threshold_for_a_share_is_above_0_where_most_values_are() -> None:
    values = np.zeros(1000, np.float32)
    values[[3, 500]] = 2, -1
    codec = build_codec(Options(name="threshold", share=0.01, form="quantised"), "codec")

    back = decoded(codec, encoded(codec, values), 1000)

    assert (back[3], back[500], np.count_nonzero(back)) == (1, -1, 2)


def test_a_threshold_that_most_values_reach_sends_all_of_them_as_they_are() -> None:
    values, codec = numbers(1000), build_codec(Options(name="threshold", tau=0.1), "codec")

    data = encoded(codec, values)

    assert len(data) == 8 + 4000
    assert decoded(codec, data, 1000).tobytes() == values.tobytes()


def test_randomk_reaches_every_place_and_each_about_as_often() -> None:
    codec, values = build_codec(Options(name="randomk", share=0.1), "codec"), numbers(200)
    reached = np.zeros(200)
    for _ in range(2000):
        values += np.float32(0.01)
        reached += decoded(codec, encoded(codec, values), 200) != 0

    assert reached.sum() == 20 * 2000
    assert 130 < reached.min() < 200 < reached.max() < 270


def test_options_are_given_as_those_of_a_policy() -> None:
    sets = ["codec.push.name=topk", "codec.push.share=0.001", "codec.pull=int8"]

    config = load(None, parse_sets(sets))

    assert repr(config.codec.push_codec) == "Topk(share=0.001, threshold='exact')"
    assert config.codec.pull_codec.name == "int8"
    assert Config(codec={"push": "topk"}).codec.has_feedback
    assert not Config(codec={"push": "topk", "error_feedback": False}).codec.has_feedback
    assert not Config(codec={"push": "none", "error_feedback": True}).codec.has_feedback
    assert not Config(codec={"push": "fp16"}).codec.has_feedback


def test_a_name_above_takes_options_below_it() -> None:
    assert load(None, parse_sets(["codec.push=topk", "codec.push.share=0.5"])).codec.push_codec.most_bytes(10) == 48


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"codec": {"push": {"name": "topk", "shar": 0.1}}}, "codec.push.shar: .*Did you mean 'share'"),
        ({"codec": {"push": {"name": "topk", "share": 0}}}, "codec.push.share: got 0; .* greater than 0"),
        ({"codec": {"push": {"name": "topk", "threshold": "x"}}}, "codec.push.threshold: got 'x'"),
        ({"codec": {"push": {"name": "threshold", "tau": -1}}}, "codec.push.tau: got -1"),
        ({"codec": {"push": {"name": "fp16", "share": 0.1}}}, "codec.push.share: there is no such setting"),
    ],
)
def test_what_can_not_be_right_is_refused(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        load(None, settings)


@pytest.mark.parametrize("codec", [{"push": "int8"}, {"push": "topk"}, {"push": "fp16", "error_feedback": True}])
def test_sparse_updates_keep_no_residual_and_refuse_codecs_that_need_one(codec: dict[str, Any]) -> None:
    plain = {"name": "sgd", "lr": 0.1, "momentum": 0, "weight_decay": 0}

    with pytest.raises(ConfigError, match="sparse updates are small already and keep no residual"):
        load(None, {"updates": "sparse", "policy": {"name": "asp"}, "optimizer": plain, "codec": codec})


@pytest.mark.parametrize("name", [name for name in NAMES if not load_codec(name).keeps_all])
def test_nobody_gets_weights_in_a_codec_that_leaves_some_out(name: str) -> None:
    with pytest.raises(BadPush, match=f"Weights can't be sent as {name}"):
        weights_codec(name)
