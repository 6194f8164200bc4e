"""The experiment with leaving and joining workers at a tiny size, with real processes."""

from pathlib import Path

import pytest

from experiments.hogwild import Study, curve_of, disturbed, main
from experiments.hogwild_pictures import Curve, Disturbed, members_over_time
from paceline.core.errors import UsageError
from paceline.reproduce.rcv1_runs import rows_like_rcv1

PNG = b"\x89PNG"


def test_two_workers_leave_a_run_in_lock_step_and_one_joins_it(tmp_path: Path) -> None:
    study = Study(tmp_path, rows_like_rcv1(tmp_path / "data", 0, 320))
    config = study.config("calm", "sync", 10, batches=1, pause=0.15)

    place = disturbed(study, config, "changing")

    curve = curve_of(place)
    changes = [count for index, count in enumerate(curve.members) if index == 0 or count != curve.members[index - 1]]
    assert [changes[0], changes[-1]] == [4, 3]
    assert 2 in changes
    assert curve.examples == sorted(curve.examples)
    assert curve.examples[-1] >= 10 * 4 * (80 - 8), "the examples of the leavers' places count on"
    assert 0 < place.final_metrics()["test_accuracy"] <= 1


def test_an_unknown_mode_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--modes: got 'fast'; expected some of sync, async, hogwild"):
        main(tmp_path, modes="sync,fast")
    assert not list(tmp_path.iterdir())


def test_the_figure_is_drawn() -> None:
    curve = Curve([0.0, 1.0], [4, 2], [10, 20], [(1.0, 0.5)])

    picture = members_over_time({"sync": Disturbed(curve, curve), "async": Disturbed(curve, curve)})

    assert picture.startswith(b"\x89PNG")
