"""Points drawn from a grid: ranges, seeds, and what does not go together."""

import pytest

from paceline.core.errors import UsageError
from paceline.studies.search.grid import read_grid
from paceline.studies.search.sampling import sampled


def drawn(*texts, points=8, seed=None):
    pytest.importorskip("optuna")
    return list(sampled(read_grid(texts), "random", points, seed).points())


def test_points_are_drawn_from_lists_and_ranges():
    found = drawn("optimizer.lr=log:1e-3..1", "batch_size=8..64", "optimizer.momentum=0.0..0.9", "policy=bsp,ssp:3")

    assert len(found) == 8
    assert all(0.001 <= point["optimizer.lr"] <= 1 for point in found)
    assert all(type(point["batch_size"]) is int and 8 <= point["batch_size"] <= 64 for point in found)
    assert all(0 <= point["optimizer.momentum"] <= 0.9 for point in found)
    assert {point["policy"] for point in found} == {"bsp", "ssp:3"}


@pytest.mark.parametrize("grid", [("workers=1..50", "seed=0,1"), ("seed=0,1,2,3,4", "workers=1,2,3,4")])
def test_a_seed_draws_the_same_points_again_and_none_of_them_twice(grid):
    found = drawn(*grid, seed=1)

    assert found == drawn(*grid, seed=1)
    assert found != drawn(*grid, seed=2)
    assert all(found.count(point) == 1 for point in found)


def test_a_range_with_fewer_points_than_asked_for_is_refused():
    with pytest.raises(UsageError, match=r"--points 8: the ranges have only 2 different points"):
        drawn("workers=1..2")


@pytest.mark.parametrize(
    "text",
    ["workers=4..1", "workers=..3", "optimizer.lr=log:a..1", "optimizer.lr=0..", "workers=1..2,3", "workers=1..1"],
)
def test_a_range_without_two_ends_is_refused(text):
    with pytest.raises(UsageError, match=r"expected KEY=LOW\.\.HIGH or KEY=log:LOW\.\.HIGH"):
        read_grid([text])


def test_a_logarithmic_range_begins_above_0():
    with pytest.raises(UsageError, match=r"a logarithmic range begins above 0; got 0"):
        read_grid(["optimizer.lr=log:0..1"])


def test_a_path_to_the_folder_above_is_a_value():
    assert read_grid(["data.path=../a,../b"]).values == {"data.path": ["../a", "../b"]}


@pytest.mark.parametrize(
    ("text", "how", "points", "seed", "told"),
    [
        ("seed=0,1", None, None, 1, r"--seed 1 is for a sample: add --sample random"),
        ("seed=0,1", None, 5, None, r"--points 5 is for a sample"),
        ("workers=1..4", None, None, None, r"--grid workers=1\.\.4 is for a sample"),
        ("workers=1..4", "sobol", 2, None, r"--sample sobol: expected random or tpe"),
        ("workers=1..4", "random", None, None, r"how many points shall it draw\? Add --points 20"),
        ("workers=1..4", "tpe", None, None, r"how many points shall it draw\? Add --points 20"),
        ("seed=0,1", "tpe", 2, None, r"--points 2: the grid has 2 points; draw fewer"),
        ("seed=0,1", "random", 2, None, r"--points 2: the grid has 2 points; draw fewer"),
    ],
)
def test_options_of_a_sample_that_do_not_go_together_are_refused(text, how, points, seed, told):
    with pytest.raises(UsageError, match=told):
        sampled(read_grid([text]), how, points, seed)
