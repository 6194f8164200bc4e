"""Grids: what a command line names becomes points with checked configs; the papers' grids hold their tables."""

import importlib

import pytest

from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline.launch.settings.read_config import read_config
from paceline.settings.flags import Flags
from paceline.settings.load_settings import load
from paceline.settings.presets import paper_grids
from paceline.studies.search.grid import read_grid, read_paper_grid
from paceline.studies.search.points import points_of


def read(sets):
    return read_config("digits", Flags(sets=sets))


def test_numbers_in_a_list_may_have_exponents():
    assert list(read_grid(["optimizer.lr=1e-1,1e-2,.5,digits"]).values["optimizer.lr"]) == [0.1, 0.01, 0.5, "digits"]
    with pytest.raises(UsageError, match=r"0\.001 is in the list twice"):
        read_grid(["optimizer.lr=0.001,1e-3"])


def test_every_combination_is_a_point_and_the_last_key_varies_fastest():
    grid = read_grid(["optimizer.lr=0.1,0.01", "batch_size=16,32,64"])

    assert grid.varied == ["optimizer.lr", "batch_size"]
    assert [tuple(point.values()) for point in grid.points()] == [
        (0.1, 16),
        (0.1, 32),
        (0.1, 64),
        (0.01, 16),
        (0.01, 32),
        (0.01, 64),
    ]


def test_values_are_read_as_yaml_so_that_lists_and_texts_may_be_among_them():
    assert read_grid(["schedule.milestones=[1, 2],[3]"]).values == {"schedule.milestones": [[1, 2], [3]]}
    assert read_grid(["precision=float32,bf16"]).values == {"precision": ["float32", "bf16"]}
    assert read_grid(["clip.norm=null,1.5"]).values == {"clip.norm": [None, 1.5]}


def test_a_point_is_a_config_with_a_name_of_its_own():
    points = points_of(read_grid(["optimizer.lr=0.1,0.01", "seed=7"]), read, None)

    assert [point.number for point in points] == [1, 2]
    assert [config.run for point in points for config in point.configs] == ["point-1", "point-2"]
    assert [point.configs[0].optimizer.options["lr"] for point in points] == [0.1, 0.01]
    assert [point.configs[0].seed for point in points] == [7, 7]


def test_policies_are_written_as_for_run():
    points = points_of(read_grid(["policy=bsp,ssp:5"]), read, None)

    assert [point.configs[0].policy.model_dump() for point in points] == [{"name": "bsp"}, {"name": "ssp", "bound": 5}]


def test_with_folds_a_point_is_tested_on_each_part():
    (point,) = points_of(read_grid(["batch_size=8"]), read, 3)

    assert [config.data.fold for config in point.configs] == [(0, 3), (1, 3), (2, 3)]
    assert [config.run for config in point.configs] == ["point-1-fold-0", "point-1-fold-1", "point-1-fold-2"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("optimizr.lr=1,2", r"point 1 \(optimizr.lr=1\): optimizr: there is no such setting. Did you mean 'optimizer'"),
        ("optimizer.lrr=1", "Did you mean 'lr'"),
        ("workers=1,0", r"point 2 \(workers=0\): workers: got 0"),
        ("policy=bsb", "Did you mean 'bsp'"),
    ],
)
def test_a_wrong_setting_is_told_with_its_point_before_anything_is_started(text, told):
    with pytest.raises(ConfigError, match=told):
        points_of(read_grid([text]), read, None)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ([], "A search needs a grid: --grid optimizer.lr=0.1,0.01, or one of hogwild-table-1"),
        (["hogwild-table-3"], "or the name of a paper's grid. Did you mean 'hogwild-table-"),
        (["batches"], "Papers' grids: hogwild-table-1, hogwild-table-2, sharding-table-2"),
        (["seed="], "expected KEY=VALUE,VALUE"),
        (["=1,2"], "expected KEY=VALUE,VALUE"),
        (["seed=[1"], "can't read the values"),
        (["seed=2020-01-01"], "can't read the values"),
        (["seed=2020-13-01"], "can't read the values"),
        (["optimizer.lr=[0.1..0.5]"], "can't read the ends of the range"),
        (["seed=1,2,1"], "1 is in the list twice; to repeat a run"),
        (["seed=1", "seed=2"], "seed is given twice"),
        (["run=a,b"], "a search names its runs itself; to repeat a run, use --grid seed=0,1,2"),
    ],
)
def test_a_grid_that_is_none_is_refused(texts, told):
    with pytest.raises(UsageError, match=told):
        read_grid(texts)


def test_folds_are_not_chosen_twice():
    with pytest.raises(UsageError, match=r"--grid data\.fold and --folds 3: both choose the test part"):
        points_of(read_grid(["data.fold=[0, 5],[1, 5]"]), read, 3)


@pytest.mark.parametrize("fold", ["[2, 2]", "[-1, 2]", "[0, 1]"])
def test_a_fold_that_is_no_part_is_refused(fold):
    with pytest.raises(ConfigError, match=r"data.fold: got .* expected \[i, K\]"):
        read([f"data.fold={fold}"])


def test_table_1_has_the_papers_numbers_beside_its_points():
    grid = read_grid(["hogwild-table-1"])
    points = points_of(grid, lambda sets: read_config(None, Flags(sets=sets, preset=grid.preset)), None)

    found = [next(row for row in grid.paper if row.is_about(point.configs[0])) for point in points]

    assert [
        (point.values["optimizer.lr"], row.accuracy, row.epochs) for point, row in zip(points, found, strict=True)
    ] == [
        (0.01, 0.901, 22),
        (0.005, 0.919, 29),
        (0.001, 0.903, 34),
    ]
    assert {point.configs[0].batch_size for point in points} == {16}


def test_table_2_has_the_papers_numbers_beside_its_points():
    grid = read_grid(["hogwild-table-2"])
    points = points_of(grid, lambda sets: read_config(None, Flags(sets=sets, preset=grid.preset)), None)

    found = [next(row for row in grid.paper if row.is_about(point.configs[0])) for point in points]

    assert [
        (point.values["batch_size"], row.accuracy, row.epochs) for point, row in zip(points, found, strict=True)
    ] == [
        (1, 0.73, 30),
        (2, 0.82, 29),
        (8, 0.91, 30),
        (16, 0.923, 30),
        (32, 0.89, 31),
    ]


@pytest.mark.parametrize("name", paper_grids())
def test_a_papers_grid_starts_from_a_preset_that_exists(name):
    assert load(preset=read_paper_grid(name).preset)


def numbers_beside(name):
    """The paper's accuracies next to the points of its grid, in their order."""
    grid = read_grid([name])
    points = points_of(grid, lambda sets: read_config(None, Flags(sets=sets, preset=grid.preset)), None)
    return [[row.accuracy for row in grid.paper if row.is_about(point.configs[0])] for point in points]


@pytest.mark.parametrize(("name", "model"), [("shat-table-2-resnet50", "ResNet-50"), ("shat-table-2-vgg16", "VGG-16")])
def test_shats_table_has_its_recipes_numbers_beside_its_points(name, model):
    pytest.importorskip("matplotlib")
    from paceline_papers.reproduce.recipes.shat.table_2 import PAPER

    table = [PAPER[model][method] for method in ("ENSEMBLE", "ASP", "SHAT-Root", "SHAT")]

    assert numbers_beside(name) == [[accuracy] for workers in zip(*table, strict=True) for accuracy in workers]


@pytest.mark.parametrize("number", [2, 4, 5])
def test_shardings_tables_have_their_recipes_numbers_beside_their_points(number):
    pytest.importorskip("matplotlib")
    recipe = importlib.import_module(f"paceline_papers.reproduce.recipes.sharding.table_{number}").RECIPE

    assert numbers_beside(f"sharding-table-{number}") == [
        [recipe.paper[row]["validation_accuracy"]] for row in recipe.rows
    ]


def test_shats_points_are_the_presets_but_for_method_and_workers():
    grid = read_grid(["shat-table-2-resnet50"])
    points = points_of(grid, lambda sets: read_config(None, Flags(sets=sets, preset=grid.preset)), None)

    found = points[-1].configs[0].model_dump(exclude={"run", "workers"})

    assert found == load(preset="shat").model_dump(exclude={"run", "workers"})


def test_the_papers_numbers_stand_beside_their_own_settings_only():
    grid = read_grid(["hogwild-table-2"])

    assert not any(row.is_about(Config(batch_size=64)) for row in grid.paper)


def test_both_tables_together_are_a_heat_map_of_fifteen_points():
    grid = read_grid(["hogwild-table-1", "hogwild-table-2"])

    assert len(list(grid.points())) == 15
    assert grid.varied == ["optimizer.lr", "batch_size"]
