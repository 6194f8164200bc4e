"""The parts of a search: its folder, its processes within a budget of cores, its results and its pictures."""

import csv
import math
import os
import signal
import threading
from contextlib import closing
from dataclasses import asdict, replace

import pytest
from rich.console import Console

from paceline.core.errors import ConfigError, DataError, DiskError
from paceline.core.run.warnings import RunWarning
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import open_run
from paceline.launch.forks.forker import Forker, Loads
from paceline.launch.this_machine.child_environment import child_environment
from paceline.launch.this_machine.cpu_cores import own_cores
from paceline.launch.this_machine.signals import Signals
from paceline.sharder.sharding import make_shards
from paceline.studies.search.going import Going
from paceline.studies.search.grid import Grid, Published
from paceline.studies.search.jobs import Job, run_jobs
from paceline.studies.search.results import NOT_RUN, Measured, Results, Row, measured
from paceline.studies.search.search_folder import SearchFolder, content_of, open_search

WHAT = {"grid": {"seed": [0, 1]}, "folds": None, "settings": {"epochs": 1}}


def row(number, *accuracies, error=None, paper=None, **values):
    runs = [Measured({"test_accuracy": accuracy, "test_loss": 1 - accuracy}, 10.0, 2.0) for accuracy in accuracies]
    return Row(number, values or {"seed": number}, runs, error, paper)


def job(folder, name, script, cores=1, forker=None):
    (folder / f"{name}.py").write_text(script)
    return Job(name, [str(folder / f"{name}.py")], folder / f"{name}.log", cores, forker)


def test_a_search_goes_on_only_with_the_code_that_it_began_with(tmp_path):
    task, policy = tmp_path / "mine.py", tmp_path / "own.py"
    for file in (task, policy):
        file.write_text("first = 1\n")
    config = Config.model_validate({"task": str(task), "policy": {"name": str(policy)}})

    def begin(without=()):
        with open_search(SearchFolder(tmp_path / "out"), content_of([config], without), False):
            pass

    begin()
    begin()
    policy.write_text("second = 2\n")
    with pytest.raises(ConfigError, match=r"content\..*own\.py: '[0-9a-f]{8}' before, '[0-9a-f]{8}' now"):
        begin()
    assert list(content_of([config], ["policy"])["content"]) == [str(task)]
    assert content_of([Config()]) == {}


@pytest.mark.parametrize(
    ("visible", "device", "seen"),
    [
        ("0,1,2", "auto", ["0,1,2", "2,0,1", "1,2,0"]),
        ("7", "auto", [None] * 3),
        ("", "auto", [None] * 3),
        ("0,1,2", "cuda:1", [None] * 3),
    ],
)
def test_points_side_by_side_begin_at_another_gpu_each(tmp_path, monkeypatch, visible, device, seen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with Going(SearchFolder(tmp_path), 3, 8, device, Console(), None) as going:
        jobs = [going._job(Config(run=f"point-{number}", workers=2)) for number in range(3)]

    before = child_environment(1)["CUDA_VISIBLE_DEVICES"]
    assert [job.child.environment["CUDA_VISIBLE_DEVICES"] for job in jobs] == [each or before for each in seen]


def test_the_cost_of_a_search_is_that_of_a_full_point_though_others_failed():
    trained = Measured({"test_accuracy": 0.9, "test_loss": 0.1}, 2.0, 1.0, train_examples=100)
    rows = [Row(1, {"seed": 1}, [trained], in_full=10.0), Row(2, {"seed": 2}, [], "no disk", in_full=10.0)]

    assert Results(rows, full=4).cost == "Trained 200 examples; 4 points in full have up to 4,000: 5.0 %."


def test_no_more_runs_at_a_time_than_cores_allow_but_a_large_one_runs_alone(tmp_path):
    running, together, codes = [], [], {}

    def started(which):
        running.append(which.name)
        together.append(sorted(running))

    def ended(which, code):
        running.remove(which.name)
        codes[which.name] = code

    sizes = {"a": 2, "b": 2, "c": 2, "large": 9, "d": 4}
    jobs = [job(tmp_path, name, f"raise SystemExit({name == 'c'})", cores) for name, cores in sizes.items()]

    assert run_jobs(jobs, 4, ended, started) is None
    assert codes == {"a": 0, "b": 0, "c": 1, "large": 0, "d": 0}
    assert together[1] == ["a", "b"]
    assert all(len(names) <= 2 for names in together)
    assert ["large"] in together
    assert ["d"] in together


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes can't be kept to cores here")
@pytest.mark.parametrize("is_forked", [False, True])
def test_a_run_is_kept_to_its_cores(tmp_path, is_forked):
    before = own_cores()
    with closing(Forker(Loads(("json",)), child_environment(1))) as forker:
        one = job(
            tmp_path, "one", "import os; print(sorted(os.sched_getaffinity(0)))", forker=forker if is_forked else None
        )

        run_jobs([one], 1, lambda *_: None)

    assert (tmp_path / "one.log").read_text() == f"[{min(before)}]\n"
    assert own_cores() == before


def test_ctrl_c_ends_what_runs_and_starts_nothing_more(tmp_path):
    jobs = [job(tmp_path, "long", "import time; time.sleep(100)"), job(tmp_path, "next", "pass")]

    code = run_jobs(jobs, 1, lambda *_: None, lambda _: os.kill(os.getpid(), signal.SIGINT))

    assert code == 130
    assert jobs[0].child.code == -signal.SIGTERM
    assert jobs[1].child.pid is None


def test_ctrl_c_is_heard_while_what_runs_are_forked_from_still_loads(tmp_path, monkeypatch):
    class Pressed(Signals):
        """Once signals are noted: before that Ctrl-C would end the test."""

        def __enter__(self):
            entered = super().__enter__()
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            return entered

    monkeypatch.setattr("paceline.studies.search.jobs.Signals", Pressed)
    (tmp_path / "slow.py").write_text("import time; time.sleep(100)")
    environment = child_environment(1) | {"PYTHONPATH": str(tmp_path)}
    with closing(Forker(Loads(("slow",)), environment)) as forker:
        one = job(tmp_path, "one", "pass", forker=forker)

        assert run_jobs([one], 1, lambda *_: None) == 130
    assert one.child.pid is None


def test_runs_with_other_data_have_other_shards(tmp_path):
    with open_search(SearchFolder(tmp_path / "new"), WHAT, fresh=False) as folder:
        base = Config()
        same = Config(run="other", batch_size=7, servers=1)
        others = [Config(seed=1), Config(workers=2), Config(task="xor"), Config(data={"fold": [0, 2]})]

    assert folder.shards(base) == folder.shards(same)
    assert len({folder.shards(config) for config in (base, *others)}) == 5


def test_the_shards_of_a_fold_are_not_taken_for_those_of_another(tmp_path):
    config = Config(workers=1, data={"fold": [0, 3]})
    manifest = make_shards(config, tmp_path)

    assert manifest.parts["test"].examples == 599  # a third of the digits
    assert make_shards(config, tmp_path) == manifest
    with pytest.raises(DataError, match="fold"):
        make_shards(Config(workers=1, data={"fold": [1, 3]}), tmp_path)


def test_a_second_process_is_kept_out(tmp_path):
    with (
        open_search(SearchFolder(tmp_path), WHAT, fresh=False),
        pytest.raises(ConfigError, match="is going on already"),
        open_search(SearchFolder(tmp_path), WHAT, fresh=False),
    ):
        pass


def test_fresh_empties_the_folder_of_another_search(tmp_path):
    with open_search(SearchFolder(tmp_path), WHAT, fresh=False) as folder:
        folder.points.mkdir()
        (tmp_path / "results.md").touch()
    other = WHAT | {"folds": 5}

    with (
        pytest.raises(ConfigError, match="folds: None before, 5 now"),
        open_search(SearchFolder(tmp_path), other, fresh=False),
    ):
        pass
    with open_search(SearchFolder(tmp_path), other, fresh=True):
        assert not folder.points.exists()
        assert not (tmp_path / "results.md").exists()


def test_a_folder_that_is_none_of_a_search_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").touch()

    with (
        pytest.raises(ConfigError, match="is not the folder of a search"),
        open_search(SearchFolder(tmp_path), WHAT, fresh=True),
    ):
        pass
    assert (tmp_path / "mine.txt").exists()


def test_a_damaged_manifest_is_told(tmp_path):
    with open_search(SearchFolder(tmp_path), WHAT, fresh=False) as folder:
        folder.manifest.write_text("{")

    with (
        pytest.raises(ConfigError, match=r"Can't read .*search\.json"),
        open_search(SearchFolder(tmp_path), WHAT, fresh=False),
    ):
        pass


def test_a_folder_that_can_not_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()

    place = SearchFolder(tmp_path / "file/x")
    with pytest.raises(DiskError, match="Can't use the search folder"), open_search(place, WHAT, False):
        pass


def test_the_best_point_is_the_first_of_those_with_the_highest_accuracy():
    results = Results([row(1, 0.5), row(2, 0.9), row(3, error="it burst"), row(4, 0.9)])

    assert results.best is results.rows[1]
    assert [point["best"] for point in results.plain()["points"]] == [False, True, False, False]


def test_of_points_with_the_same_accuracy_the_one_with_the_smaller_loss_is_better():
    losses = (2.0, 1.0, float("nan"), None)
    scores = [{"test_accuracy": 0.9} | ({} if loss is None else {"test_loss": loss}) for loss in losses]
    rows = [Row(number, {"seed": number}, [Measured(each, 1, 1)]) for number, each in enumerate(scores)]

    assert [row.number for row in Results(rows).ranked] == [1, 0, 2, 3]


def test_what_a_search_makes_small_is_infinite_without_a_finite_score():
    scores = (0.9, float("nan"), float("inf"))
    rows = [Row(number, {}, [Measured({"test_accuracy": score}, 1, 1)]) for number, score in enumerate(scores)]

    assert Results([*rows, row(3, error="it burst")]).losses == [-0.9, math.inf, math.inf, math.inf]


def test_where_there_is_no_accuracy_the_lowest_loss_is_the_best():
    losses = (3.0, 1.0, float("nan"))
    rows = [Row(number, {"seed": number}, [Measured({"test_loss": loss}, 1, 1)]) for number, loss in enumerate(losses)]
    results = Results(rows)

    assert results.measure == "test_loss"
    assert results.best is rows[1]


def test_the_best_point_is_chosen_by_validation_whatever_the_test_scores_are():
    scores = [(0.9, 0.5, 0.7), (0.8, 0.99, 0.1), (0.9, 0.6, 0.3)]  # validation, test, validation loss
    rows = [
        Row(number, {"seed": number}, [Measured(dict(zip(NAMES, values, strict=True)), 1, 1)])
        for number, values in enumerate(scores)
    ]

    results = Results(rows)

    assert (results.measure, results.best) == ("validation_accuracy", rows[2])
    assert results.losses == [-0.9, -0.8, -0.9]
    assert "chosen by its validation accuracy; test scores choose nothing" in results.markdown()
    assert results.cells()[0][2:4] == ["validation accuracy", "test accuracy"]
    assert results.plain()["points"][1]["test_accuracy"] == 0.99


NAMES = ("validation_accuracy", "test_accuracy", "validation_loss")


def test_without_a_validation_part_it_is_said_that_points_are_compared_by_the_test_data():
    results = Results([row(1, 0.5), row(2, 0.9)])

    assert results.measure == "test_accuracy"
    assert "No validation part was kept" in results.markdown()


def test_with_folds_points_are_compared_by_the_parts_that_were_left_out():
    run = Measured({"validation_accuracy": 0.4, "test_accuracy": 0.8}, 1, 1)

    results = Results([Row(1, {"seed": 1}, [run, run])], folds=2)

    assert results.measure == "test_accuracy"
    assert "mean over the folds" in results.how_chosen


@pytest.mark.parametrize(("measure", "best"), [("max f1", 1), ("min f1", 2), ("min loss", 0), ("", 2)])
def test_points_are_compared_by_what_the_runs_go_by(measure, best):
    found = [(0.5, 0.2, 0.1), (0.9, 0.3, 0.2), (0.1, 0.4, 0.3)]
    names = ("test_f1", "test_loss", "test_accuracy")
    rows = [
        Row(number, {"seed": number}, [Measured(dict(zip(names, values, strict=True)), 1, 1, measure)])
        for number, values in enumerate(found)
    ]
    results = Results(rows)

    assert results.best is rows[best]
    if "f1" in measure:
        assert results.is_larger_better == (measure == "max f1")
        assert "test f1" in results.markdown()
        assert next(csv.DictReader(results.csv().splitlines()))["test_f1"] == "0.5"


def test_while_nothing_is_scored_there_is_no_best_point():
    assert Results([row(1, error=NOT_RUN), row(2, error="it burst")]).best is None


def test_folds_give_mean_and_standard_deviation():
    results = Results([row(1, 0.7, 0.9), row(2, 0.75, 0.75)], folds=2)

    assert results.rows[0].mean("test_accuracy") == pytest.approx(0.8)
    assert results.rows[0].deviation("test_accuracy") == pytest.approx(0.02**0.5)  # 2 x .1 squared, over n - 1 = 1
    assert "| 1* | 1 | 0.8000 | 0.1414 | 10.0 | 2.0 |" in results.markdown()


def test_the_papers_numbers_have_columns_of_their_own():
    paper = Published(at={}, accuracy=0.919, epochs=29)
    found = Results([row(1, 0.85, paper=paper), row(2, 0.8)]).markdown().splitlines()

    assert found[0] == "| point | seed | test accuracy | paper | epochs trained | paper | seconds |"
    assert found[2:4] == ["| 1* | 1 | 0.8500 | 0.9190 | 10.0 | 29 | 2.0 |", "| 2 | 2 | 0.8000 | - | 10.0 | - | 2.0 |"]


def test_points_without_a_result_say_why():
    results = Results([row(1, error="it burst\nat once"), row(2, error=NOT_RUN), row(3, 0.5)])

    assert "| 1 | 1 | failed |" in results.markdown()
    assert "| 2 | 2 | not run |" in results.markdown()
    assert "Point 1 failed: it burst" in results.markdown()


def test_a_key_called_epochs_and_the_epochs_trained_are_two_columns():
    (found,) = csv.DictReader(Results([row(1, 0.5, epochs=20)]).csv().splitlines())

    assert (found["epochs"], found["epochs_trained"], found["test_accuracy"]) == ("20", "10.0", "0.5")


@pytest.mark.parametrize("folds", [None, 3])
def test_two_keys_make_a_heat_map_one_a_line_and_three_no_picture(folds):
    pytest.importorskip("matplotlib")
    from paceline.studies.search.pictures import draw

    for values, drawn in (
        ({"seed": [0], "workers": [1]}, False),
        ({"seed": [0, 1], "workers": [1]}, True),
        ({"seed": [0, 1], "workers": [1, 2, 3]}, True),
        ({"seed": [0, 1], "workers": [1, 2], "servers": [1, 2]}, False),
    ):
        grid = Grid(values)
        points = list(grid.points())
        rows = [row(number, number / 9, number / 8, **point) for number, point in enumerate(points, 1)]
        rows[-1] = row(len(points), error="it burst", **points[-1]) if len(points) > 1 else rows[-1]
        found = draw(grid, Results(rows, folds))

        assert (found is not None and found.png.startswith(b"\x89PNG")) == drawn


def test_nothing_is_drawn_while_nothing_is_scored():
    pytest.importorskip("matplotlib")
    from paceline.studies.search.pictures import draw

    assert draw(Grid({"seed": [1, 2]}), Results([row(1, error="it burst"), row(2, error=NOT_RUN)])) is None


def test_what_went_wrong_in_a_point_stands_below_the_table_once(tmp_path):
    warning = RunWarning("majority_class", "nothing is learned", "--set optimizer.lr=0.01", ["optimizer.lr=0.01"], 1.0)
    passed = replace(warning, kind="dropped", passed=True)
    folder, _ = open_run(Config(run="one"), runs=tmp_path)
    facts = {"finished": True, "warnings": [asdict(warning), asdict(passed)]}
    folder.write_facts(**facts)
    run = measured(folder)
    results = Results([Row(1, {"seed": 1}, [run, run]), Row(2, {"seed": 2}, [Measured({"test_loss": 1.0}, 1, 1)])])

    line = "Point 1: warning: nothing is learned. Try --set optimizer.lr=0.01."
    assert results.warnings() == [line]
    assert results.markdown().count(line) == 1
    assert results.plain()["points"][0]["warnings"] == [asdict(warning)]
    assert results.csv().splitlines()[2].endswith(",[]")
