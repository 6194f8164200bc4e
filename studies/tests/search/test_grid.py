"""Grids and plans: what a command line names becomes points with checked configs; the papers' grids hold their tables."""

import importlib
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("optuna")

from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline.launch.settings.read_config import read_config
from paceline.settings.flags import Flags
from paceline.settings.load_settings import load
from paceline_studies.search.grid import read_grid, read_paper_grid
from paceline_studies.search.grids import paper_grids
from paceline_studies.search.scheduler import Point
from paceline_studies.search.study import Plan


def read(sets: Sequence[str]) -> Config:
    return read_config("digits", Flags(sets=list(sets)))


def points(*texts: str, **how: Any) -> list[Point]:
    grid = read_grid(texts)
    named: dict[str, Any] = {"preset": grid.preset} if grid.preset else {}
    task = None if grid.preset else "digits"
    plan = Plan(grid=grid, read=lambda sets: read_config(task, Flags(sets=list(sets), **named)), **how)
    return [plan.point(number, values, None) for number, values in enumerate(plan.values(), 1)]


def test_every_combination_is_a_point_and_the_last_key_varies_fastest() -> None:
    found = read_grid(["optimizer.lr=0.1,1e-2", "batch_size=16,32,64"]).points()

    wanted = [(0.1, 16), (0.1, 32), (0.1, 64), (0.01, 16), (0.01, 32), (0.01, 64)]
    assert [tuple(point.values()) for point in found] == wanted


def test_values_are_read_as_yaml_so_that_lists_and_texts_may_be_among_them() -> None:
    assert read_grid(["schedule.milestones=[1, 2],[3]"]).values == {"schedule.milestones": [[1, 2], [3]]}
    assert read_grid(["precision=float32,bf16", "clip.norm=null,1.5"]).values == {
        "precision": ["float32", "bf16"],
        "clip.norm": [None, 1.5],
    }
    assert read_grid(["data.path=../a,../b"]).values == {"data.path": ["../a", "../b"]}


def test_a_point_is_one_config_or_one_for_each_fold() -> None:
    plain = points("policy=bsp,ssp:5", "seed=7")
    (folded,) = points("batch_size=8", folds=2)

    assert [config.run for point in plain for config in point.configs] == ["point-1", "point-2"]
    assert [point.configs[0].policy.model_dump() for point in plain] == [{"name": "bsp"}, {"name": "ssp", "bound": 5}]
    assert [config.data.fold for config in folded.configs] == [(0, 2), (1, 2)]
    assert [config.run for config in folded.configs] == ["point-1-fold-0", "point-1-fold-1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimizr.lr=1,2", r"point 1 \(optimizr.lr=1\): optimizr: there is no such setting. Did you mean 'optimizer'"),
        ("workers=1,0", r"point 2 \(workers=0\): workers: got 0"),
        ("policy=bsb", "Did you mean 'bsp'"),
        ("data.fold=[2, 2]", r"data.fold: got .* expected \[i, K\]"),
    ],
)
def test_an_error_in_a_setting_names_its_point(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        points(text)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "A search needs a grid: --grid optimizer.lr=0.1,0.01, or one of hogwild-table-1"),
        (["hogwild-table-3"], "or the name of a paper's grid. Did you mean 'hogwild-table-"),
        (["batches"], "Papers' grids: hogwild-table-1, hogwild-table-2, sharding-table-2"),
        (["seed="], "expected KEY=VALUE,VALUE"),
        (["=1,2"], "expected KEY=VALUE,VALUE"),
        (["seed=[1"], "can't read the values"),
        (["seed=2020-01-01"], "can't read the values"),
        (["optimizer.lr=[0.1..0.5]"], "can't read the ends of the range"),
        (["seed=1,2,1"], "1 is in the list twice; to repeat a run"),
        (["optimizer.lr=0.001,1e-3"], "0.001 is in the list twice"),
        (["seed=1", "seed=2"], "seed is given twice"),
        (["run=a,b"], "a search names its runs itself; to repeat a run, use --grid seed=0,1,2"),
        (["optimizer.lr=log:0..1"], "a logarithmic range begins above 0; got 0"),
        (["workers=4..1"], r"expected KEY=LOW\.\.HIGH or KEY=log:LOW\.\.HIGH"),
        (["workers=..3"], r"expected KEY=LOW\.\.HIGH"),
        (["optimizer.lr=log:a..1"], r"expected KEY=LOW\.\.HIGH"),
        (["workers=1..2,3"], r"expected KEY=LOW\.\.HIGH"),
    ],
)
def test_a_grid_that_is_none_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_grid(texts)


@pytest.mark.parametrize(
    ("text", "how", "message"),
    [
        ("seed=0,1", {"seed": 1}, r"--seed 1 is for a sample: add --sample random"),
        ("seed=0,1", {"points": 5}, r"--points 5 is for a sample"),
        ("workers=1..4", {}, r"--grid workers=1\.\.4 is for a sample"),
        ("workers=1..4", {"sample": "sobol", "points": 2}, r"--sample sobol: expected random or tpe"),
        ("workers=1..4", {"sample": "tpe"}, r"how many points shall it draw\? Add --points 20"),
        ("seed=0,1", {"sample": "random", "points": 2}, r"--points 2: the grid has 2 points; draw fewer"),
        ("data.fold=[0, 5],[1, 5]", {"folds": 3}, r"--grid data\.fold and --folds 3: both choose the test part"),
        ("epochs=1,2,3", {"halving": 3}, r"--grid epochs and --halving 3: both choose the epochs"),
        ("seed=0,1", {"engine": "fast"}, r"--engine fast: expected runs or local"),
    ],
)
def test_options_that_do_not_go_together_are_refused(text: str, how: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Plan(grid=read_grid([text]), read=read, **how)


def test_rounds_have_fewer_epochs_down_to_one_epoch_or_one_point() -> None:
    plan = Plan(grid=read_grid(["seed=0,1,2,3,4,5,6,7", "workers=1,2"]), read=read, halving=4)

    assert (plan.rounds(30), plan.rounds(100)) == ([1, 7, None], [6, 25, None])
    with pytest.raises(UsageError, match=r"--halving 4: got 16 points of 3 epochs; expected at least 4 of each"):
        plan.rounds(3)


@pytest.mark.parametrize("name", paper_grids())
def test_a_papers_grid_starts_from_a_preset_that_exists(name: str) -> None:
    assert load(preset=read_paper_grid(name).preset)


def numbers_next_to(name: str) -> list[list[tuple[float, float | None]]]:
    """The paper's accuracies and epochs for the points of its grid, in their order."""
    paper = read_grid([name]).paper
    return [[(row.accuracy, row.epochs) for row in paper if row.is_about(point.configs[0])] for point in points(name)]


def test_hogwilds_tables_have_their_numbers_next_to_their_points() -> None:
    assert numbers_next_to("hogwild-table-1") == [[(0.901, 22)], [(0.919, 29)], [(0.903, 34)]]
    assert numbers_next_to("hogwild-table-2") == [[(0.73, 30)], [(0.82, 29)], [(0.91, 30)], [(0.923, 30)], [(0.89, 31)]]
    assert not any(row.is_about(Config(batch_size=64)) for row in read_grid(["hogwild-table-2"]).paper)


@pytest.mark.parametrize(("name", "model"), [("shat-table-2-resnet50", "ResNet-50"), ("shat-table-2-vgg16", "VGG-16")])
def test_shats_table_has_its_recipes_numbers_next_to_its_points(name: str, model: str) -> None:
    pytest.importorskip("matplotlib")
    from paceline_papers.reproduce.recipes.shat.table_2 import PAPER

    table = [PAPER[model][method] for method in ("ENSEMBLE", "ASP", "SHAT-Root", "SHAT")]
    wanted = [accuracy for workers in zip(*table, strict=True) for accuracy in workers]
    assert [[row[0] for row in rows] for rows in numbers_next_to(name)] == [[each] for each in wanted]


@pytest.mark.parametrize("number", [2, 4, 5])
def test_shardings_tables_have_their_recipes_numbers_next_to_their_points(number: int) -> None:
    pytest.importorskip("matplotlib")
    recipe = importlib.import_module(f"paceline_papers.reproduce.recipes.sharding.table_{number}").RECIPE

    found = [[row[0] for row in rows] for rows in numbers_next_to(f"sharding-table-{number}")]
    assert found == [[recipe.paper[row]["validation_accuracy"]] for row in recipe.rows]


def test_shats_points_are_the_presets_but_for_method_and_workers() -> None:
    found = points("shat-table-2-resnet50")[-1].configs[0].model_dump(exclude={"run", "workers"})

    assert found == load(preset="shat").model_dump(exclude={"run", "workers"})
