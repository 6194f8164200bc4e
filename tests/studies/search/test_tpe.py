"""`--sample tpe`: what it chooses, that it goes on where it was ended, and what it refuses."""

import json
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline.launch.settings.read_config import read_config
from paceline.settings.flags import Flags
from paceline.studies.search.grid import Grid, read_grid
from paceline.studies.search.sampling import sampled
from paceline.studies.search.search import search
from paceline.studies.search.search_folder import SearchFolder
from paceline.studies.search.tpe import Known, chosen
from paceline_papers.rcv1_like import rcv1_like, write_svmlight
from tests.support.nights import some

pytest.importorskip("optuna")

BOWL = ("optimizer.lr=log:1e-4..1", "optimizer.momentum=0.0..0.99", "policy=bsp,ssp:3,asp", "batch_size=16,32,64,128")
C = "svm.objective.c=log:1e-6..10"


def bowl(point: dict[str, Any]) -> float:
    """Smallest, 0, at a rate of .01, momentum .7, ssp:3, mini-batches of 32."""
    return (
        math.log10(point["optimizer.lr"] / 0.01) ** 2
        + 4 * (point["optimizer.momentum"] - 0.7) ** 2
        + {"bsp": 0.3, "ssp:3": 0, "asp": 0.6}[point["policy"]]
        + 0.2 * abs(math.log2(point["batch_size"] / 32))
    )


def allow(point: dict[str, Any]) -> bool:
    return True


def tried(grid: Grid, count: int, seed: int, batch: int = 1) -> list[Known]:
    """Points chosen by what they have in the bowl."""
    known: list[Known] = []
    while len(known) < count:
        known += [(point, bowl(point)) for point in chosen(grid, seed, known, batch, allow)]
    return known


@pytest.mark.parametrize("batch", some([1, 4], [4]))
def test_it_finds_better_points_than_as_many_at_random(batch: int) -> None:
    grid, seeds = read_grid(BOWL), range(8)
    drawn = [sampled(grid, "random", 40, seed).drawn or () for seed in seeds]
    at_random = [min(map(bowl, points)) for points in drawn]
    found = [min(score for _, score in tried(grid, 40, seed, batch)) for seed in seeds]

    assert statistics.fmean(found) < 0.8 * statistics.fmean(at_random)
    assert sum(one < other for one, other in zip(found, at_random, strict=True)) > len(seeds) / 2


def test_the_same_seed_and_results_choose_the_same_points() -> None:
    grid = read_grid(BOWL)
    known = tried(grid, 15, 1)

    assert known == tried(grid, 15, 1)
    assert known != tried(grid, 15, 2)
    assert chosen(grid, 1, known[:12], 1, allow) == [known[12][0]]


def test_no_point_is_chosen_twice_and_none_that_settings_forbid() -> None:
    grid = read_grid(["workers=1,2,4", "batch_size=16,32", "seed=0,1"])
    known: list[Known] = []
    for _ in range(4):
        known += [(point, 0.0) for point in chosen(grid, 0, known, 3, lambda point: point["seed"] == 0)]

    found = [point for point, _ in known]
    assert len(found) == 6
    assert all(found.count(point) == 1 and point["seed"] == 0 for point in found)


def test_points_that_failed_are_the_worst() -> None:
    grid = read_grid(["optimizer.lr=0.0..1"])
    known = [({"optimizer.lr": k / 20}, math.inf if k > 10 else 1.0) for k in range(20)]

    found = chosen(grid, 0, known, 20, allow)

    assert statistics.fmean(point["optimizer.lr"] for point in found) < 0.5


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = rcv1_like(300, 100, features=500)
    assert made.test is not None
    write_svmlight(made.train, tmp_path / "small")
    write_svmlight(made.test, tmp_path / "small.t")
    return tmp_path / "small"


def go(data: Path, *grid: str, points: int = 12, out: str = "out", **how: Any) -> tuple[int, list[dict[str, Any]]]:
    def read(point: Sequence[str]) -> Config:
        return read_config("svm", Flags(data=str(data), epochs=2, sets=list(point)))

    found = sampled(read_grid(grid), "tpe", points, 0)
    code = search(found, read, how.pop("folds", None), 1, data.parent / out, False, False, engine="local", **how)
    return code, SearchFolder(data.parent / out).chosen()


def test_a_search_that_was_ended_goes_on_and_chooses_what_it_would_have_chosen(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from paceline.studies.search import points_in_process

    train, trained = points_in_process.train_point, list[str]()

    def ends(config: Config, folder: Any) -> None:
        if len(trained) == 11:
            trained.append("Ctrl-C")
            raise KeyboardInterrupt
        trained.append(str(config.run))
        train(config, folder)

    whole = go(data, C, out="whole")
    monkeypatch.setattr(points_in_process, "train_point", ends)
    first, second = go(data, C), go(data, C)

    assert (first[0], len(first[1])) == (130, 12)
    assert second == whole
    assert trained[11:] == ["Ctrl-C", "point-12"]
    assert "11 of 12 runs are finished already" in capsys.readouterr().out


def test_more_points_go_on_from_those_that_are_there(data: Path) -> None:
    few = go(data, C, points=3)
    more = go(data, C, points=5)

    assert more[1][:3] == few[1]
    assert len(more[1]) == 5
    assert "\n5," in (data.parent / "out/results.csv").read_text()


@pytest.mark.parametrize("refused", [[3], [2, 3]])
def test_a_combination_that_settings_refuse_is_not_chosen(
    data: Path, refused: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    def read(point: Sequence[str]) -> Config:
        if "batch_size=16" in point and any(f"workers={workers}" in point for workers in refused):
            raise ConfigError("not together")
        return read_config("svm", Flags(data=str(data), epochs=1, sets=list(point)))

    grid = sampled(read_grid(["batch_size=8,16", "workers=1,2,3"]), "tpe", 5, 0)

    assert search(grid, read, None, 1, data.parent / "out", False, False, engine="local") == 0
    chosen = SearchFolder(data.parent / "out").chosen()
    assert not any({"batch_size": 16, "workers": workers} in chosen for workers in refused)
    assert len(json.loads((data.parent / "out/results.json").read_text())["points"]) == len(chosen) == 6 - len(refused)
    assert ("there are only 4 different points" in capsys.readouterr().out) is (len(refused) == 2)


def test_settings_that_are_wrong_at_the_end_of_a_range_are_told_before_anything_starts(data: Path) -> None:
    with pytest.raises(ConfigError, match=r"point 1 \(batch_size=3, workers=0"):
        go(data, "batch_size=3..9", "workers=0..4")
    assert not (data.parent / "out").exists()


def test_halving_does_not_go_together_with_it(data: Path) -> None:
    with pytest.raises(UsageError, match=r"--sample tpe and --halving 3: .*use --sample random"):
        go(data, C, halving=3)


def test_points_that_can_not_be_read_are_told(data: Path) -> None:
    go(data, C, points=2)
    (data.parent / "out/chosen.json").write_text("[3]")

    with pytest.raises(ConfigError, match=r"Can't read .*chosen\.json.*--fresh"):
        go(data, C, points=2)


def test_what_it_needs_is_named_where_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)

    with pytest.raises(ConfigError, match=r"--sample needs optuna, .*pip install 'paceline\[search\]'"):
        sampled(read_grid([C]), "tpe", 5, 0)
