"""The experiment with [Hogwild]'s figures at a tiny size, with real processes."""

from pathlib import Path
from typing import Any

import pytest

from experiments.hogwild import MODES, Cell, Study, curve_of, disturbed, main, written
from experiments.hogwild_pictures import Curve, Disturbed, Pace, loss_curves, members_over_time, time_by_workers
from paceline.core.errors import UsageError
from paceline.core.settings.config import NAME

PNG = b"\x89PNG"


def test_the_experiment_trains_for_real_and_keeps_what_is_finished(tmp_path: Path, capsys: Any) -> None:
    def told() -> str:
        main(tmp_path, rows=240, tests=60, workers="2", modes="async", paces="4", epochs=2, parts="time")
        return str(capsys.readouterr().out)

    first = told()

    title, _, head, _, row, *_ = first.splitlines()
    assert title == "RCV1-like, 240 training and 60 test rows, 1 server, seeds 0 to 0"
    cells = dict(zip(*([cell.strip() for cell in line.strip("|").split("|")] for line in (head, row)), strict=True))
    assert (cells["a push"], cells["mode"], cells["workers"]) == ("4 mini-batches", "async", "2")
    assert float(cells["seconds"]) > 0
    least, most = (int(found) for found in (cells["epochs"].split(" to ") * 2)[:2])
    assert 0 <= least <= most
    assert 1 <= least + most <= 4, "between them they have 2 epochs' examples each, however fast each is"
    assert 0 < float(cells["test accuracy"]) <= 1
    for name in ("time.png", "loss.png"):
        assert (tmp_path / name).read_bytes().startswith(PNG)
    finished = [path.stat().st_mtime_ns for path in sorted(tmp_path.glob("async-*/metrics.jsonl"))]
    assert len(finished) == 1
    assert told() == first
    assert [path.stat().st_mtime_ns for path in sorted(tmp_path.glob("async-*/metrics.jsonl"))] == finished


def test_two_workers_leave_a_run_in_lock_step_and_one_joins_it(tmp_path: Path) -> None:
    study = Study(tmp_path, written(tmp_path, 320, 60))
    config = study.config("calm", "sync", 4, Pace(1, 0.15), epochs=10)

    place = disturbed(study, config, "changing")

    curve = curve_of(place)
    changes = [count for index, count in enumerate(curve.members) if index == 0 or count != curve.members[index - 1]]
    assert [changes[0], changes[-1]] == [4, 3]
    assert 2 in changes
    assert curve.examples == sorted(curve.examples)
    assert curve.examples[-1] >= 10 * 4 * (80 - 8), "the examples of the leavers' places count on"
    assert 0 < place.final_metrics()["test_accuracy"] <= 1


@pytest.mark.parametrize(
    ("option", "given", "told"),
    [
        ("modes", "sync,fast", r"--modes: got 'fast'; expected some of sync, async, hogwild"),
        ("parts", "all", r"--parts: got 'all'; expected some of time, members"),
        ("workers", "1,two", r"Got '1,two'; expected numbers with commas"),
        ("paces", "8,0", r"Got '0'; expected numbers from 1 on"),
        ("paces", "8:-1", r"Got '-1'; expected numbers from 0 on"),
        ("paces", "8:fast:2x", r"Got 'fast'; expected numbers"),
        ("paces", "8::2x@1%", r"'8::2x@1%' has nothing that could take longer"),
    ],
)
def test_an_option_that_can_not_be_read_is_refused_before_anything_is_written(
    tmp_path: Path, option: str, given: str, told: str
) -> None:
    options = {"workers": "1", "paces": "1", "modes": "sync", "parts": "time", option: given}
    with pytest.raises(UsageError, match=told):
        main(tmp_path, **options)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_every_cell_has_a_run_of_its_own_with_a_name_that_is_allowed() -> None:
    paces = [Pace(8, 0.0), Pace(8, 0.002), Pace(8, 0.0005), Pace(8, 0.002, "5x@10%"), Pace(16, 0.002, "5x@1%")]
    names = {
        Cell(pace, mode, workers).name(seed)
        for pace in paces
        for mode in MODES
        for workers in (1, 12)
        for seed in (0, 1)
    }

    assert len(names) == len(paces) * len(MODES) * 4
    assert all(NAME.fullmatch(name) for name in names)


def test_figures_are_drawn_where_workers_leave_after_different_epochs() -> None:
    losses = {"sync": [[(1.0, 1.0)] * 3] * 2, "async": [[(1.0, 1.0)], [(1.0, 1.0), (0.5, 0.6)]]}
    curve = Curve([0.0, 1.0], [4, 2], [10, 20], [(1.0, 0.5)])

    pictures = [
        time_by_workers({Pace(1, 0.0): {"sync": [(1, 3.0), (2, 2.0)]}, Pace(8, 0.1, "5x@10%"): {"async": [(1, 3.0)]}}),
        loss_curves(losses),
        members_over_time({"sync": Disturbed(curve, curve), "async": Disturbed(curve, curve)}),
    ]

    assert all(picture.startswith(PNG) for picture in pictures)
