"""PowerSGD: how a slice is cut at its tensors' matrices, what their factors keep, and bytes that nobody would have sent."""

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.codecs.codec import MOST_ELEMENTS, Codec, Run, build_codec, load_codec
from paceline.core.errors import BadPush, ConfigError
from paceline.core.settings.config import Config, Options, PlanConfig
from paceline.core.slice.plan import make_plan
from paceline.core.values import Vector
from paceline.rpc.transport import encoded_parts, room_for
from paceline_studies.planning.sizes import plan_report

SHAPES = [("conv.weight", (16, 3, 3, 3)), ("conv.bias", (16,)), ("fc.weight", (10, 16)), ("fc.bias", (10,))]
models = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple), min_size=1, max_size=5).map(
    lambda found: [(f"layer{number}.weight", shape) for number, shape in enumerate(found)]
)


def powersgd(rank: int, *runs: Run) -> Codec:
    codec = build_codec(Options(name="powersgd", rank=rank), "codec")
    return codec.fitted(runs) if runs else codec


def arrived(codec: Codec, values: Vector, part_bytes: int = 1 << 20) -> Vector:
    """What a receiver gets, who knows nothing but the codec's name."""
    out = np.full(len(values), np.nan, np.float32)
    for start, data in encoded_parts(values, codec, part_bytes):
        other = load_codec(codec.name)
        other.decode(data, out[start : start + other.elements_in(data)])
    return out


def message(elements: int, rows: int, columns: int, rank: int, *values: float) -> bytes:
    return struct.pack(f"<4I{len(values)}f", elements, rows, columns, rank, *values)


def test_the_worked_example_of_a_part() -> None:
    """A matrix of three rows and three columns of rank 1, and two values behind it."""
    data = message(11, 3, 3, 1, 0, 0.6, 0.8, 5, 0, 10, 7, -8)
    out = np.ones(11, np.float32)

    load_codec("powersgd").add(data, out, 2.0)
    np.testing.assert_allclose(out, [1, 1, 1, 7, 1, 13, 9, 1, 17, 15, -15])

    load_codec("powersgd").decode(data, out)
    np.testing.assert_allclose(out, [0, 0, 0, 3, 0, 6, 4, 0, 8, 7, -8], rtol=1e-6)


def test_the_worked_example_of_a_slice() -> None:
    """Rank 1: 16 x 27 by 43 values, the bias behind it; 10 x 16 by 26, with its bias."""
    plan = make_plan(SHAPES, 1, PlanConfig())
    codec, values = powersgd(1, *plan.runs(0)), np.random.default_rng(0).standard_normal(plan.total, np.float32)

    parts = [(start, len(data)) for start, data in encoded_parts(values, codec, 1 << 20)]

    assert plan.runs(0) == (Run(432, 27), Run(16, 0), Run(160, 16), Run(10, 0))
    assert parts == [(0, 4 * (4 + 43 + 16)), (448, 4 * (4 + 26 + 10))]
    assert room_for(codec, 1 << 20, plan.total) == sum(size for _, size in parts)
    config = Config(servers=1, codec={"push": {"name": "powersgd", "rank": 1}})
    assert plan_report(config, SHAPES, bandwidth=1e9)["traffic"]["push_bytes"] == 4 * (63 + 40)
    back = arrived(codec, values)
    assert (back[432:448] == values[432:448]).all()
    assert (back[608:] == values[608:]).all()


def test_rows_that_a_cut_goes_through_travel_as_they_are() -> None:
    plan = make_plan([("a", (20, 10)), ("b", (20, 10))], 2, PlanConfig(alignment=1, max_slice_bytes=4 * 125))

    assert plan.runs(0) == (Run(120, 10), Run(5, 0), Run(5, 0), Run(70, 10))
    assert plan.runs(1) == (Run(5, 0), Run(70, 10), Run(120, 10), Run(5, 0))


@pytest.mark.parametrize(
    ("run", "shapes"),
    [
        (Run(10_000, 10_000), [(100, 100, 0)]),  # one row
        (Run(5003, 10_000), [(71, 70, 33)]),  # less than one
        (Run(5003, 0), [(0, 0, 5003)]),
        (Run(400, 4), [(20, 20, 0)]),  # four columns, as many as the rank: factors would be longer
        (Run(4000, 8), [(500, 8, 0)]),
        (Run(64, 8), [(0, 0, 64)]),
    ],
)
def test_matrices_with_too_few_rows_or_columns_become_near_square(run: Run, shapes: list[tuple[int, int, int]]) -> None:
    found = [cut.codec for cut in powersgd(4, run).cuts(run.length, 1 << 20)]

    assert [tuple(codec._shape) for codec in found] == shapes  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("rows", "columns", "rank", "parts"),
    [(50_257, 768, 4, 3), (768, 50_257, 4, 3), (768, 50_257, 32, 3), (4096, 25_088, 2, 7), (3, 20_000_000, 2, 4)],
)
def test_matrices_that_are_too_large_for_a_part_are_cut_at_rows_or_into_squares(
    rows: int, columns: int, rank: int, parts: int
) -> None:
    total, limit = rows * columns, int(Config().part_bytes)
    codec = powersgd(rank, Run(total, columns))

    cuts = list(codec.cuts(total, limit))

    assert sum(cut.stop - cut.start > 100_000 for cut in cuts) == parts
    assert [cut.start for cut in cuts] == [0, *(cut.stop for cut in cuts[:-1])]
    assert cuts[-1].stop == total
    assert max(cut.stop - cut.start for cut in cuts) <= MOST_ELEMENTS
    assert max(cut.codec.most_bytes(cut.stop - cut.start) for cut in cuts) <= limit
    assert room_for(codec, limit, total) < 0.2 * total


@given(
    models, st.integers(1, 3), st.sampled_from(["memorywise", "layerwise"]), st.integers(1, 5), st.integers(20, 2000)
)
def test_any_slice_is_cut_into_parts_that_fit_and_are_never_longer_than_float32(
    model: list[tuple[str, tuple[int, ...]]], servers: int, slices: str, rank: int, part_bytes: int
) -> None:
    plan = make_plan(model, servers, PlanConfig.model_validate({"slices": slices, "alignment": 1}))
    for server, length in enumerate(plan.lengths):
        codec = powersgd(rank).fitted(plan.runs(server))
        values = np.random.default_rng(length).standard_normal(length, np.float32)
        parts = [(start, bytes(data)) for start, data in encoded_parts(values, codec, part_bytes)]

        ends = [start + codec.elements_in(data) for start, data in parts]
        assert [start for start, _ in parts] == [0, *ends][: len(parts)]
        assert not length or ends[-1] == length
        assert all(len(data) <= part_bytes for _, data in parts)
        assert sum(len(data) - 16 for _, data in parts) <= 4 * length
        assert np.isfinite(arrived(codec, values, part_bytes)).all()


@given(
    st.integers(12, 60), st.integers(12, 60), st.integers(1, 5), st.integers(0, 5), st.sampled_from([1e-30, 1.0, 1e30])
)
def test_a_matrix_of_at_most_that_rank_arrives_whole(
    rows: int, columns: int, rank: int, true: int, size: float
) -> None:
    random = np.random.default_rng(rows * columns)
    matrix = size * random.standard_normal((rows, min(true, rank))) @ random.standard_normal((min(true, rank), columns))
    values = matrix.astype(np.float32).reshape(-1)

    back = arrived(powersgd(rank, Run(len(values), columns)), values)

    np.testing.assert_allclose(back, values, rtol=0, atol=2e-5 * size * max(1, np.abs(matrix / size).max()))


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e-45, 1e36])
def test_columns_that_are_all_alike_or_0_are_no_harm(value: float) -> None:
    values = np.full(900, value, np.float32)

    back = arrived(powersgd(4, Run(900, 30)), values)

    np.testing.assert_allclose(back, values, rtol=1e-5, atol=1e-43)


def test_two_iterations_come_close_to_the_best_possible_error() -> None:
    """Of a matrix whose singular values fall as 1/k, as a gradient's about do."""
    random = np.random.default_rng(3)
    left, right = (np.linalg.qr(random.standard_normal((size, 60)))[0] for size in (200, 120))
    matrix = left * (1 / np.arange(1, 61)) @ right.T
    values = matrix.astype(np.float32).reshape(-1)

    lost = np.linalg.norm(arrived(powersgd(4, Run(len(values), 120)), values) - values)

    best = np.sqrt((1 / np.arange(5, 61) ** 2).sum())
    assert best <= lost < 1.1 * best


def test_the_next_push_looks_into_other_directions() -> None:
    """What a push left out lies at right angles to all that it looked at; from the same start nothing of it would ever go."""
    random, codec = np.random.default_rng(5), powersgd(2, Run(900, 30))
    residual, left = random.standard_normal(900).astype(np.float32), []
    for _ in range(15):
        residual -= arrived(codec, residual)
        left.append(float(np.linalg.norm(residual)))

    assert all(after < before for before, after in pairwise(left))
    assert left[-1] < 1e-3


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (message(9, 3, 3, 0), "3 x 3 of 9 values, of rank 0, is no such matrix"),
        (message(9, 3, 3, 2, *[1] * 12), "of rank 2, is no such matrix"),  # longer than what it stands for
        (message(8, 3, 3, 1, *[1] * 5), "3 x 3 of 8 values"),
        (message(10_000, 100, 100, 33, *[1] * 6600), "of rank 33, is no such matrix"),
        (message(9, 0, 3, 0, *[1] * 9), "0 x 3 of 9 values"),
        (message(9, 3, 3, 1, *[1] * 5), "9 values take 40 bytes, not 36"),
        (message(2**32 - 1, 0, 0, 0, 1), "values take 17,179,869,196 bytes, not 20"),
        (message(9, 3, 3, 1, 1, 1, np.nan, 1, 1, 1), "NaN or infinity is in it"),
        (message(10, 3, 3, 1, *[1] * 6, -np.inf), "NaN or infinity is in it"),
        (message(9, 3, 3, 1, 1, 1, 1e20, 1, -1e20, 1), "or comes of it"),
        (message(9, 3, 3, 1)[:15], "it ends after 15 bytes"),
    ],
)
def test_a_part_that_no_encoder_gives_is_refused_and_touches_nothing(data: bytes, error: str) -> None:
    out = np.full(struct.unpack("<I", data[:4])[0] % 20_000, 3, np.float32)

    with pytest.raises(BadPush, match=error):
        load_codec("powersgd").decode(data, out)

    assert (out == 3).all()


def test_a_slice_of_another_length_than_its_tensors_is_refused() -> None:
    with pytest.raises(BadPush, match="A slice of 100 values can't be cut as one of 99"):
        list(encoded_parts(np.zeros(99, np.float32), powersgd(1, Run(100, 10)), 1000))


@pytest.mark.parametrize("rank", [0, -1, 33, "many"])
def test_a_rank_that_can_not_be_is_refused(rank: object) -> None:
    with pytest.raises(ConfigError, match=r"codec\.push\.rank: got"):
        _ = Config(codec={"push": {"name": "powersgd", "rank": rank}}).codec.push_codec
