"""What points gave as rows: which one is the best one and by what, the tables, and a point's figures from its runs."""

import csv
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from paceline.core.chief.warnings import RunWarning
from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import open_run
from paceline_studies.search.folder import Measured, measured
from paceline_studies.search.results import NOT_RUN, Results, Row, figures_of, measure_by


def row(number: int, *scores: dict[str, float], error: str | None = None, judged_by: str = "", **more: Any) -> Row:
    runs = [Measured(each, 10.0, 2.0, judged_by, [], None) for each in scores]
    values = more.pop("values", {"seed": number})
    return {"point": number, "values": values, "error": error, **(figures_of(runs) if runs else {}), **more}


def scored(number: int, *accuracies: float, **more: Any) -> Row:
    return row(number, *({"test_accuracy": each, "test_loss": 1 - each} for each in accuracies), **more)


def best(*rows: Row, **how: Any) -> int | None:
    found = Results(rows, **how).best
    return found and found["point"]


def test_the_best_point_is_the_first_of_those_with_the_highest_accuracy() -> None:
    assert best(scored(1, 0.5), scored(2, 0.9), row(3, error="it burst"), scored(4, 0.9)) == 2
    assert best(row(1, error=NOT_RUN), row(2, error="it burst")) is None


def test_of_points_with_the_same_accuracy_the_one_with_the_smaller_loss_is_better() -> None:
    losses = (2.0, 1.0, float("nan"))
    rows = [row(number, {"test_accuracy": 0.9, "test_loss": loss}) for number, loss in enumerate(losses)]

    assert best(*rows, row(3, {"test_accuracy": 0.9})) == 1


def test_where_there_is_no_accuracy_the_lowest_loss_is_the_best() -> None:
    rows = [row(number, {"test_loss": loss}) for number, loss in enumerate((3.0, 1.0, float("nan")))]

    assert (Results(rows).measure, best(*rows)) == ("test_loss", 1)
    assert [Results(rows).worth(each) for each in rows] == [-3.0, -1.0, -float("inf")]


def test_a_point_of_a_later_round_is_better_than_one_that_was_stopped() -> None:
    assert best(scored(1, 0.9), scored(2, 0.8, round=1)) == 2


def test_the_best_point_is_chosen_by_validation_whatever_the_test_scores_are() -> None:
    names = ("validation_accuracy", "test_accuracy", "validation_loss")
    scores = [(0.9, 0.5, 0.7), (0.8, 0.99, 0.1), (0.9, 0.6, 0.3)]
    found = Results([row(n, dict(zip(names, each, strict=True))) for n, each in enumerate(scores)])

    assert found.conclusion == "best: point 2 (seed=2), validation accuracy 0.9000, test accuracy 0.6000"
    assert "chosen by its validation accuracy; test scores choose nothing" in found.markdown()
    assert found.cells()[0][2:4] == ["validation accuracy", "test accuracy"]


def test_without_a_validation_part_the_table_says_that_points_are_compared_by_the_test_data() -> None:
    found = Results([scored(1, 0.5), row(2, {"validation_accuracy": 0.9, "test_accuracy": 0.4})])

    assert (found.measure, found.best) == ("test_accuracy", found.rows[0])
    assert "No validation part was kept" in found.markdown()


@pytest.mark.parametrize(("measure", "wanted"), [("max f1", 1), ("min f1", 2), ("min loss", 0), ("", 2)])
def test_points_are_compared_by_what_the_runs_go_by(measure: str, wanted: int) -> None:
    names = ("test_f1", "test_loss", "test_accuracy")
    scores = [(0.5, 0.2, 0.1), (0.9, 0.3, 0.2), (0.1, 0.4, 0.3)]
    rows = [row(n, dict(zip(names, each, strict=True)), judged_by=measure) for n, each in enumerate(scores)]

    assert best(*rows) == wanted
    assert best(*rows, by=measure_by("f1")) == 1
    with pytest.raises(ConfigError, match=r"--by is 'max f2', but what is measured is: .*f1, loss"):
        Results(rows, by=measure_by("f2")).check()


def test_folds_give_mean_and_standard_deviation_of_the_parts_that_were_left_out() -> None:
    kept = {"validation_accuracy": 0.4, "test_accuracy": 0.8}
    found = Results([scored(1, 0.7, 0.9), scored(2, 0.75, 0.75), row(3, kept, kept)], folds=2)

    assert found.rows[0]["deviations"]["test_accuracy"] == pytest.approx(0.02**0.5)  # 2 x .1 squared, over n - 1 = 1
    assert "| 1* | 1 | 0.8000 | 0.1414 | 10.0 | 2.0 |" in found.markdown()
    assert "mean over the folds" in found.how_chosen


def test_the_tables_have_a_papers_numbers_and_why_points_have_no_result() -> None:
    rows = [
        scored(1, 0.85, paper_accuracy=0.919, paper_epochs=29),
        row(2, error="it burst\nat once"),
        row(3, error=NOT_RUN),
    ]
    lines = Results(rows).markdown().splitlines()

    assert lines[0] == "| point | seed | test accuracy | paper | epochs trained | paper's epochs | seconds |"
    assert lines[2] == "| 1* | 1 | 0.8500 | 0.9190 | 10.0 | 29 | 2.0 |"
    assert [line[:20] for line in lines[3:5]] == ["| 2 | 2 | failed | -", "| 3 | 3 | not run | "]
    assert "Point 2 failed: it burst" in lines


def test_a_key_called_epochs_and_the_epochs_trained_are_two_columns() -> None:
    (found,) = csv.DictReader(Results([scored(1, 0.5, values={"epochs": 20})]).csv().splitlines())

    assert (found["epochs"], found["epochs_trained"], found["test_accuracy"], found["best"]) == (
        "20",
        "10.0",
        "0.5",
        "true",
    )


def test_figures_are_those_of_the_last_round_and_examples_of_all() -> None:
    first, last = (
        Measured({"test_accuracy": score}, epochs, 1.0, "", [], 100) for score, epochs in ((0.5, 1), (0.7, 4))
    )
    found = figures_of([last], [first])

    assert (found["test_accuracy"], found["round"], found["examples_trained"]) == (0.7, 1, 500)


def test_what_went_wrong_in_a_point_comes_below_the_table_once(tmp_path: Path) -> None:
    warning = RunWarning("majority_class", "nothing is learned", "--set optimizer.lr=0.01", ["optimizer.lr=0.01"], 1.0)
    folder, _ = open_run(Config(run="one"), runs=tmp_path)
    folder.write_facts(finished=True, warnings=[asdict(warning), asdict(replace(warning, kind="dropped", passed=True))])
    run = measured(folder)
    assert run is not None
    found = Results([{"point": 1, "values": {}, "error": None, **figures_of([run, run])}])

    line = "Point 1: warning: nothing is learned. Try --set optimizer.lr=0.01."
    assert found.notes == [line]
    assert found.markdown().count(line) == 1
    assert found.plain()["points"][0]["warnings"] == [asdict(warning)]
