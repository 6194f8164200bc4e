"""Runs of a recipe at the same time: they are the same, are kept when they are finished, and end with their command."""

import multiprocessing
import time
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline_papers.reproduce import making, side_by_side
from paceline_papers.reproduce.artefacts import Artefact, wanted
from paceline_papers.reproduce.making import Making
from paceline_papers.reproduce.recipe import Around, Figures
from paceline_papers.reproduce.recipes.sharding import fig_7


def in_own_folder(around: Around, row: str, seed: int) -> Figures:
    if row == "refused":
        raise ConfigError("No such row.")
    return {"folder": str(around.folder), "row": row, "seed": seed}


def test_runs_side_by_side_are_those_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "cores", lambda: 2)
    apart = Artefact("sharding/fig-7", replace(fig_7.RECIPE, side_by_side=True))
    one, other = (
        Making(wanted("sharding/fig-7")[0], tmp_path / "one", seeds=2),
        Making(apart, tmp_path / "two", seeds=2),
    )

    assert sorted(other.train()) == sorted(one.train())
    assert other.kept.figures == one.kept.figures


def after_the_other(around: Around, row: str, seed: int) -> Figures:
    """The first row ends only when its caller has kept the second one."""
    while row == "first" and not (around.folder.parent / "kept").exists():
        time.sleep(0.01)
    return {"row": row}


def test_a_finished_run_is_kept_while_an_earlier_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "cores", lambda: 2)
    monkeypatch.setattr(side_by_side, "cores", lambda: 2)
    found = side_by_side.train_side_by_side(after_the_other, [("first", 0), ("second", 0)], tmp_path)

    assert next(found)[0] == ("second", 0)
    (tmp_path / "kept").touch()
    assert [key for key, _, _ in found] == [("first", 0)]


def in_a_process_of_its_own(around: Around, row: str, seed: int) -> Figures:
    process = multiprocessing.get_context("forkserver").Process(target=int)
    process.start()
    process.join()
    return {"code": process.exitcode}


def test_runs_side_by_side_may_start_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "cores", lambda: 2)
    recipe = replace(fig_7.RECIPE, side_by_side=True, run=in_a_process_of_its_own, rows=["first", "second"])
    made = Making(Artefact("sharding/fig-7", recipe), tmp_path, seeds=1)

    list(made.train())

    assert [figures["code"] for figures in made.kept.figures.values()] == [0, 0]


def test_an_error_of_a_run_ends_all_and_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "cores", lambda: 2)
    recipe = replace(fig_7.RECIPE, side_by_side=True, run=in_own_folder, rows=["trained", "refused"])
    made = Making(Artefact("sharding/fig-7", recipe), tmp_path, seeds=2)

    with pytest.raises(ConfigError, match="No such row"):
        list(made.train())

    assert ("refused", 0) in made.missing
    assert not any(Path(figures["folder"]).exists() for figures in made.kept.figures.values())
