"""The contract of every codec in the folder, and what is special about each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core import registry
from paceline.core.codec import PACKAGE, Codec, load_codec
from paceline.core.errors import BadPush, ConfigError
from paceline.core.values import Vector

NAMES = registry.names(PACKAGE)
BOUNDS = {"none": (0.0, 0.0), "fp16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-133)}
"""Largest relative error, and absolute error where values are subnormal."""
FLOATS = st.floats(-60000, 60000, width=32)


def encoded(codec: Codec, values: Vector) -> bytes:
    out = bytearray(codec.bytes_for(len(values)))
    codec.encode(values, memoryview(out))
    return bytes(out)


def decoded(codec: Codec, data: bytes, elements: int) -> Vector:
    out = np.full(elements, np.nan, np.float32)
    codec.decode(memoryview(data), out)
    return out


def numbers(length: int) -> Vector:
    return np.random.default_rng(0).standard_normal(length, dtype=np.float32)


def test_the_folder_holds_the_codecs_that_have_a_bound_here() -> None:
    assert set(NAMES) == set(BOUNDS)


@pytest.mark.parametrize("name", NAMES)
def test_a_codec_is_found_by_its_own_name(name: str) -> None:
    assert load_codec(name).name == name


@pytest.mark.parametrize("name", NAMES)
@given(values=st.lists(FLOATS, max_size=50))
@settings(deadline=None)
def test_a_round_trip_stays_within_the_error_bound(name: str, values: list[float]) -> None:
    codec, vector = load_codec(name), np.array(values, np.float32)

    back = decoded(codec, encoded(codec, vector), len(vector))

    relative, absolute = BOUNDS[name]
    exact = vector.astype(np.float64)
    assert (np.abs(back - exact) <= np.maximum(relative * np.abs(exact), absolute)).all()
    if codec.lossless:
        assert back.tobytes() == vector.tobytes()


@pytest.mark.parametrize("name", NAMES)
@given(values=st.lists(FLOATS, max_size=50))
@settings(deadline=None)
def test_a_second_round_trip_changes_nothing(name: str, values: list[float]) -> None:
    codec = load_codec(name)
    data = encoded(codec, np.array(values, np.float32))

    assert encoded(codec, decoded(codec, data, len(values))) == data


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cut", [0, 1, 7, 50, 99, 100])
def test_parts_give_the_bytes_and_values_of_the_whole(name: str, cut: int) -> None:
    codec, values = load_codec(name), numbers(100)
    whole = encoded(codec, values)

    data = encoded(codec, values[:cut]) + encoded(codec, values[cut:])
    out = np.empty(100, np.float32)
    codec.decode(data[: codec.bytes_for(cut)], out[:cut])
    codec.decode(data[codec.bytes_for(cut) :], out[cut:])

    assert data == whole
    assert out.tobytes() == decoded(codec, whole, 100).tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_part_may_lie_at_an_odd_address_of_a_message(name: str) -> None:
    codec, values = load_codec(name), numbers(9)
    size = codec.bytes_for(9)
    message = bytearray(size + 2)

    codec.encode(values, memoryview(message)[1 : size + 1])
    out = np.empty(9, np.float32)
    codec.decode(memoryview(bytes(message))[1 : size + 1], out)

    assert bytes(message) == b"\0" + encoded(codec, values) + b"\0"
    assert out.tobytes() == decoded(codec, encoded(codec, values), 9).tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_an_array_of_bytes_does_as_well_as_a_memoryview(name: str) -> None:
    codec, values = load_codec(name), numbers(9)
    out = np.zeros(codec.bytes_for(9), np.uint8)

    codec.encode(values, out)

    assert out.tobytes() == encoded(codec, values)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrong", [-2, -1, 1, 4])
def test_a_part_of_the_wrong_size_is_refused_and_touches_nothing(name: str, wrong: int) -> None:
    codec, values = load_codec(name), numbers(10)
    size = codec.bytes_for(10)
    out, buffer = np.full(10, 3, np.float32), bytearray(size + wrong)

    with pytest.raises(BadPush, match=f"takes {size} bytes as {name}, but there are {size + wrong}"):
        codec.decode(bytes(size + wrong), out)
    with pytest.raises(BadPush, match="same plan and codec"):
        codec.encode(values, buffer)

    assert (out == 3).all()
    assert not any(buffer)


@pytest.mark.parametrize("name", NAMES)
def test_anything_but_float32_is_refused(name: str) -> None:
    codec = load_codec(name)

    with pytest.raises(BadPush, match="int32 can't be coded; convert them to float32"):
        codec.encode(np.zeros(4, np.int32), bytearray(codec.bytes_for(4)))


@pytest.mark.parametrize("name", NAMES)
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


def test_an_unknown_codec_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"no 'fp17' among the codecs: bf16, fp16, none.* Did you mean 'fp16'\?"):
        load_codec("fp17")
