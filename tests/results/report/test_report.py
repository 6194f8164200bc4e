"""The report on a run: all that its folder tells is on the page, and nothing that it does not tell."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from paceline.core.errors import ConfigError, DiskError
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.results.report import pictures, sections
from paceline.results.report.course import MOST, Course
from paceline.results.report.report import write_report
from paceline.sharder.sharding import make_shards
from tests.support.nights import fewer
from tests.support.pages import FROM_ELSEWHERE

Words = Callable[[RunFolder], str]
SPENT = {"compute_seconds": 2.0, "data_seconds": 0.5, "push_seconds": 1.0, "pull_seconds": 0.25, "wait_seconds": 4.0}
FIGURES = {**SPENT, "sent_bytes": 2048.0, "received_bytes": 4096.0, "staleness": 2.0, "staleness_max": 3.0}
FIGURES |= {"staleness_mean": 1.5, "alpha": 1.0, "lr": 0.025, "loss": 0.5, "step_seconds": 0.01, "steps": 80.0}
LAUNCH = {"began": 1.8e9, "command": "paceline run digits <b>", "paceline": "0.1.0", "python": "3.11.7"}
LAUNCH |= {"torch": "2.10", "system": "Linux", "cores": 2, "memory": 2**33}


def score(epoch: int, validation: float, test: float, final: bool = False) -> dict[str, Any]:
    metrics = {"validation_accuracy": validation, "test_accuracy": test, "validation_loss": 0.2, "test_loss": 0.1}
    facts = {"measure": "max accuracy", "examples": {"validation": 270, "test": 270}, "final": final}
    return {"epoch": epoch, "seconds": 4.0 * epoch, "versions": [epoch], "metrics": metrics, **facts}


def line(seconds: float, figures: Mapping[str, float] = FIGURES, **changed: Any) -> dict[str, Any]:
    """A status as metrics.jsonl has it."""
    one = {"worker": "worker-0", "clock": 10, "phase": "compute", "figures": figures, "member": True, "incarnation": 1}
    seats = {"workers": [one, {**one, "worker": "worker-1"}], "servers": [{"server": 0, "term": 1}]}
    now = {"phase": "training", "seconds": seconds, "epoch": seconds / 4, "examples": 1000}
    more = {"examples_per_second": 500.0, "scores": [], "warnings": [], "policy": '{"name": "ssp", "bound": 3}'}
    return {**now, **seats, **more, **changed}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards") / "shards"
    make_shards(Config.model_validate({"task": "digits", "workers": 2}), folder)
    return folder


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Words:
    """What the page of a run says, without its pictures, which take nearly all the time."""
    for module in (pictures, sections):
        monkeypatch.setattr(module, "svg", lambda figure: '<svg viewBox="0 0 9 9"></svg>')
    return lambda run: read(write_report(run).path.read_text())


@pytest.fixture
def run(tmp_path: Path, shards: Path) -> RunFolder:
    """A finished one with scores, shards and a model."""
    ways = {"policy": {"name": "ssp", "bound": 3}, "optimizer": {"name": "sgd", "lr": 0.25}}
    asked = {"run": "one", "task": "digits", "workers": 2, "servers": 1, **ways}
    folder, _ = open_run(Config.model_validate(asked), runs=tmp_path)
    scores = [score(1, 0.9, 0.8), score(2, 0.95, 0.85), score(3, 0.93, 0.99, final=True)]
    write_lines(folder, line(1.0), line(8.0, scores=scores[:1]), line(12.0, scores=scores))
    folder.models.mkdir()
    save_file({"layer.weight": np.zeros((10, 64), np.float32)}, folder.models / "last.safetensors")
    folder.shards.symlink_to(shards)
    facts = {"finished": True, "exit_code": 0, "seconds": 12.0, "measure": "max accuracy", "launches": [LAUNCH]}
    folder.write_facts(**facts, metrics=scores[-1]["metrics"])
    return folder


def write_lines(folder: RunFolder, *lines: Mapping[str, Any]) -> None:
    folder.metrics.write_text("".join(json.dumps(each) + "\n" for each in lines))


def read(html: str) -> str:
    """The words that a reader sees."""
    plain = re.sub(r"<svg.*?</svg>|<style>.*?</style>", " ", html, flags=re.DOTALL)
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", plain)))


def test_the_page_of_a_finished_run_has_everything_and_needs_nothing_from_elsewhere(run: RunFolder) -> None:
    written = write_report(run)

    html = written.path.read_text()
    assert written.path == run.path / "report.html"
    assert written.lines == [f"The report is {written.path}."]
    assert not FROM_ELSEWHERE.search(re.sub(r'base64,[^"]*', "", html))
    assert html.count("<svg ") == 9  # 2 x 2 scores, time, staleness, speed, rate, shards
    said = read(html)
    for part in (
        "The run finished: test accuracy 0.9900 after 12.0 s",
        "The best validation accuracy is 0.9500, after epoch 2 (8.0 s)",
        "worker-0 10 2.0 0.5 1.0 0.2 4.0 10.0",
        "worker-1 1.5 3 1",
        "worker-0 2.0 KiB 4.0 KiB 205 B 410 B",
        "layer.weight 10 x 64 640",
        "1,257 training examples to 2 shards",
        "the last step's rate was 0.025",
        "optimizer.lr 0.25",
        "paceline run digits <b>",
        "Python 3.11.7, torch 2.10",
        "2 cores, 8 GiB",
    ):
        assert part in said


def test_the_best_version_is_the_one_with_the_best_validation_score_whatever_the_test_score_is(
    words: Words, run: RunFolder
) -> None:
    said = words(run)

    assert "best version, epoch 2 validation 270 0.2000 0.9500" in said
    assert "test scores are reported and choose nothing" in said
    (best,) = re.findall(r'<tr class="best">(.*?)</tr>', write_report(run).path.read_text(), flags=re.DOTALL)
    assert read(best).split()[:2] == ["2", "8.0"]


def test_a_run_that_has_not_ended_is_judged_by_the_measure_of_its_scores(words: Words, run: RunFolder) -> None:
    run.write_facts(finished=False, exit_code=None, measure="", metrics={})
    scores = [
        {**score(epoch, 0.5, 0.5), "measure": "min loss", "metrics": {"validation_loss": loss, "test_accuracy": 0.5}}
        for epoch, loss in ((1, 0.25), (2, 0.5))
    ]
    write_lines(run, line(8.0, scores=scores))

    assert "The best validation loss is 0.2500, after epoch 1" in words(run)


def test_where_the_mean_of_the_workers_models_is_kept_its_scores_are_the_runs(words: Words, run: RunFolder) -> None:
    scores = [score(1, 0.9, 0.8), score(2, 0.2, 0.3, final=True)]
    for each, (validation, test) in zip(scores, ((0.5, 0.55), (0.75, 0.7)), strict=True):
        each["metrics"] |= {"mean_validation_accuracy": validation, "mean_test_accuracy": test}
    write_lines(run, line(8.0, scores=scores))

    said = words(run)

    assert "The best validation accuracy of the mean of the workers' models is 0.7500, after epoch 2" in said
    assert "final version, epoch 2 validation 270 0.7500" in said
    assert "These are the scores of the mean of the workers' models, which is what is kept." in said
    assert "mean test accuracy" in said
    assert "would mostly give 0.6" in said, "around .7, and not .3"


def test_figures_that_an_old_run_lacks_are_said_to_lack_and_no_zeros(words: Words, run: RunFolder) -> None:
    old = {name: FIGURES[name] for name in ("wait_seconds", "staleness", "staleness_mean", "alpha", "step_seconds")}
    write_lines(run, line(1.0, old), line(12.0, old))
    run.write_facts(launches=[])

    said = words(run)

    assert "tell how long they waited, and not what computation, data, pushes and pulls took" in said
    assert "do not count the bytes" in said
    assert "launched by an older Paceline" in said


def test_time_and_bytes_of_a_workers_processes_are_added(words: Words, run: RunFolder) -> None:
    back = {**FIGURES, "compute_seconds": 1.5, "sent_bytes": 1024.0}
    again = line(12.0)
    again["workers"][0] |= {"figures": back, "incarnation": 2}
    write_lines(run, line(4.0), again)

    said = words(run)

    assert "worker-0 10 3.5" in said
    assert "worker-0 3.0 KiB" in said
    assert "12.0 worker-0 was started again" in said


def test_faults_and_what_was_lost_are_on_the_page(words: Words, run: RunFolder) -> None:
    fault = {"fault": "kill server-0@5s", "at": 5.0, "lasted": 0.4, "waited": None}
    run.write_facts(faults=[fault], lost={"answered": 4808, "pushes": 0}, recovery={"servers": 1, "replayed": 28})

    said = words(run)

    assert "Lost: nothing; the servers' last snapshots have all 4,808 acknowledged pushes." in said
    assert "kill server-0@5s 5.0 0.4 -" in said
    assert "1 start of a server from its snapshot, 28 pushes sent again" in said


FAULTS = [{"fault": "kill server-0@5s", "at": 5.0}]


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"faults": FAULTS, "lost": {"answered": 10, "pushes": 3}}, "Lost: 3 of 10 acknowledged pushes are not in the"),
        ({"finished": False, "exit_code": None}, "The run was broken off.* with: paceline run .*/one/config.yaml"),
        ({"exit_code": 73, "finished": False, "reason": "full disk"}, r"did not finish \(exit code 73\): full disk\."),
    ],
    ids=["lost", "broken off", "failed"],
)
def test_a_run_that_did_not_end_well_has_a_page_that_says_so(words: Words, run: RunFolder, facts, told: str) -> None:
    run.write_facts(**facts)

    assert re.search(told, words(run))


@pytest.mark.usefixtures("words")
def test_alpha_is_drawn_where_it_changes(run: RunFolder) -> None:
    write_lines(run, line(1.0), line(12.0, {**FIGURES, "alpha": 0.4}))

    html = write_report(run).path.read_text()

    assert "alpha of each worker over time" in html
    assert "alpha is 1 all the time" not in html


def test_many_workers_are_drawn_as_a_band_and_listed(words: Words, run: RunFolder) -> None:
    many = line(12.0)
    many["workers"] = [{**many["workers"][0], "worker": f"worker-{number}"} for number in range(50)]
    write_lines(run, {**many, "seconds": 1.0}, many)

    said = words(run)

    assert "The 32 of 50 workers that took most time" in said
    assert "worker-49 10 2.0" in said


@fewer(2)
@given(st.integers(1, 4 * MOST))
def test_a_long_run_is_thinned_out_evenly_and_keeps_its_first_and_newest_point(lines: int) -> None:
    course = Course()
    for second in range(lines):
        course.add(line(float(second)))

    seconds = [point.seconds for point in course.points]

    assert min(lines, MOST // 2) <= len(seconds) <= MOST + 1
    assert (seconds[0], seconds[-1]) == (0, lines - 1)
    assert len({second - before for before, second in pairwise(seconds[:-1])}) <= 1


@pytest.mark.usefixtures("words")
def test_a_run_that_goes_on_has_a_page_that_says_so(run: RunFolder) -> None:
    earlier = {"seconds": 3.0, "warnings": [{"kind": "x", "said": "it is late", "advice": "a", "epoch": 1.0}]}
    run.write_facts(finished=False, exit_code=None, **earlier)
    with run.locked():
        written = write_report(run)

    assert "The run has not ended yet. The page shows its first 12.0 s" in written.lines[0]
    assert "it is late" not in read(written.path.read_text())
    assert "has not ended yet" in read(written.path.read_text())


def test_a_run_that_has_not_begun_has_a_page(words: Words, tmp_path: Path) -> None:
    folder, _ = open_run(Config.model_validate({"run": "one", "task": "digits"}), runs=tmp_path)

    said = words(folder)

    assert "No version of the model was scored" in said
    assert "metrics.jsonl has nothing yet" in said


DAMAGES: dict[str, tuple[Callable[[RunFolder], object], str]] = {
    "run.json": (lambda run: (run.path / "run.json").write_text("{"), "run.json is damaged, so how the run ended"),
    "a line": (
        lambda run: run.metrics.write_text(run.metrics.read_text() + '{"seconds": 1}\nhalf a li\n'),
        "metrics.jsonl is damaged: 2 of its lines can't be read",
    ),
    "model": (
        lambda run: (run.models / "last.safetensors").write_bytes(b"nothing"),
        "last.safetensors is damaged: .* Use best.safetensors",
    ),
    "shards": (lambda run: (move_shards(run) / "manifest.json").write_text("{}"), "manifest.json is damaged"),
}


def move_shards(run: RunFolder) -> Path:
    run.shards.unlink()
    run.shards.mkdir()
    return run.shards


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_said_and_the_rest_is_shown(run: RunFolder, damage: str) -> None:
    spoil, told = DAMAGES[damage]
    spoil(run)

    written = write_report(run)

    assert re.search(told, "\n".join(written.lines))
    said = read(written.path.read_text())
    assert re.search(told, said)
    assert "The best validation accuracy is 0.9500" in said


def test_settings_that_can_not_be_read_are_refused(run: RunFolder) -> None:
    run.config.write_text("policy: [")

    with pytest.raises(ConfigError, match=r"config\.yaml is not YAML"):
        write_report(run)


@pytest.mark.usefixtures("words")
def test_a_page_goes_where_it_is_asked_to_go(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    assert write_report(run, tmp_path / "new" / "page.html").path.is_file()
    assert write_report(run, tmp_path / "folder").path == tmp_path / "folder" / "report.html"


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize("place", ["file/page.html", "file/below/page.html"])
def test_a_place_that_can_not_be_written_is_said(run: RunFolder, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(DiskError, match=r"Can't write the report to .*page\.html: .*Give another file with -o"):
        write_report(run, tmp_path / place)


def test_without_matplotlib_the_command_says_what_to_install(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for module in ("report.sections", "report.pictures", "plot_style"):
        monkeypatch.delitem(sys.modules, f"paceline.{module}", raising=False)

    with pytest.raises(ConfigError, match=r"The report needs matplotlib.*pip install 'paceline\[report\]'"):
        write_report(run)
