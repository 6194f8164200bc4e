"""The benchmark harness with contenders of a few lines, the layouts, and the real peers at a tiny size."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks import contender as rules
from benchmarks import contenders, ddp, environments, exchange, report
from benchmarks.chart import draw, medians
from benchmarks.contender import Job, Vector, WrongResult, expected, play, probes, verify
from benchmarks.contenders import CONTENDERS, Contender, Entry, Shape, suite
from benchmarks.environments import NoEnvironment, python_of
from benchmarks.exchange import GRPC, LANE, STOCK, rows
from benchmarks.harness import REPOSITORY, Limits, Measured, StartFailed, command_of, measure, parse, start
from benchmarks.kernels import kernel_rows
from benchmarks.targets import TARGETS, judge
from benchmarks.training import Epoch, settings
from paceline.core.errors import UsageError
from tests.support.gone import is_gone
from tests.support.processes import eventually

HONEST = """
import json
for k, s in enumerate([9, 9, .4, .2, .3]): print(json.dumps({"iteration": k, "seconds": s}))
print(json.dumps({"cpu_seconds": 1, "minor_faults_per_gb": 7}))
"""


def entry(script: str, name: str = "fake", workers: int = 1, environment: str = "project") -> Entry:
    return Entry(Contender(name, ("-c", script), environment), Shape(1000, workers, 1))


def measured(name: str, workers: int, servers: int, *seconds: float, faults: float | None = None) -> Measured:
    costs = {} if faults is None else {"minor_faults_per_gb": [faults]}
    return Measured(Entry(Contender(name, ()), Shape(1000, workers, servers)), list(seconds), costs)


def test_the_first_two_iterations_of_every_start_are_dropped() -> None:
    (result,) = measure([entry(HONEST)], Limits(rounds=2, iterations=5))
    assert result.seconds == [0.4, 0.2, 0.3] * 2
    assert result.median == pytest.approx(0.3)
    assert result.best == 0.2
    assert result.cost("minor_faults_per_gb") == 7
    assert result.cost("cpu_seconds_per_gb") is None


def test_contenders_take_turns() -> None:
    said: list[str] = []
    measure([entry(HONEST, "a"), entry(HONEST, "b")], Limits(rounds=2, iterations=5), said.append)
    assert [line.split(": ")[1] for line in said] == ["a W1S1", "b W1S1", "a W1S1", "b W1S1"]


def test_a_contender_that_fails_is_reported_and_the_others_go_on() -> None:
    broken = entry("raise ValueError('no such thing')", "broken")
    bad, good = measure([broken, entry(HONEST)], Limits(rounds=2, iterations=5))
    assert "ValueError: no such thing" in bad.failure
    assert not bad.seconds
    assert len(good.seconds) == 6


CHILD = """
import pathlib, subprocess, sys
null = subprocess.DEVNULL
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=null, stderr=null)
pathlib.Path({note!r}).write_text(str(child.pid))
"""


def test_a_contender_that_hangs_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    note = tmp_path / "child"
    script = CHILD.format(note=str(note)) + "child.wait()"
    for limit in (3, 12, 48):  # a busy machine may need longer until the child runs
        with pytest.raises(StartFailed, match=f"ended: took longer than {limit} s"):
            start([sys.executable, "-c", script], float(limit))
        if note.exists() and note.read_text():
            break
    child = int(note.read_text())
    eventually(lambda: is_gone(child), "the child's end")


def test_a_contender_that_leaves_a_child_behind_has_it_ended(tmp_path: Path) -> None:
    note = tmp_path / "child"
    assert start([sys.executable, "-c", CHILD.format(note=str(note))], 30.0) == ""
    child = int(note.read_text())
    eventually(lambda: is_gone(child), "the child's end")


def test_nothing_starts_when_the_time_is_over() -> None:
    moments = iter([0.0, 1.0, 99.0])
    first, second = measure([entry(HONEST), entry(HONEST)], Limits(1, 5, total=10.0), clock=lambda: next(moments))
    assert first.seconds
    assert second.failure == "not started: the 10 s of --limit were over"


@pytest.mark.parametrize("limits", [{"rounds": 0}, {"iterations": 2}])
def test_a_run_that_measures_nothing_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="measure nothing"):
        Limits(**limits)


@pytest.mark.parametrize(
    "printed", ["hello", '{"iteration": 0}', '{"iteration": 0, "seconds": "fast"}', "[1]", '{"cpu_seconds": 1}', ""]
)
def test_lines_other_than_agreed_are_refused(printed: str) -> None:
    with pytest.raises(StartFailed, match="wrong output"):
        parse(printed)


def test_the_command_carries_the_shape() -> None:
    command = command_of(Path("python"), Entry(CONTENDERS["paceline-bsp"], Shape(10, 2, 4)), 6)
    assert command[:3] == ["python", "-m", "benchmarks.peers.paceline"]
    assert " ".join(command[3:7]) == "--policy bsp --codec none"
    assert " ".join(command[7:]) == "--elements 10 --workers 2 --servers 4 --iterations 6"


def test_every_target_names_rows_of_the_standard_run() -> None:
    keys = {row.key for row in suite()}
    assert {key for target in TARGETS for key in (target.above, target.below) if key} <= keys
    assert len(keys) == len(suite())


def test_a_suite_can_be_narrowed() -> None:
    assert [row.key for row in suite(only=["gloo"], shapes=["W2S1"])] == [("gloo", 2, 1)]
    assert {row.shape.workers for row in suite(contenders.LARGE, large=True)} == {1, 2, 4}


@pytest.mark.parametrize(
    ("only", "shapes", "said"),
    [
        (["glue"], [], "no contender 'glue'"),
        ([], ["2x1"], "Can't read the shape"),
        (["gloo"], ["W1S1"], "Nothing to run"),
    ],
)
def test_a_suite_with_a_typo_is_refused(only: Sequence[str], shapes: Sequence[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        suite(only=only, shapes=shapes)


def test_ratios_are_judged_against_must_and_goal() -> None:
    rows = [
        measured("paceline-asp", 1, 1, 0.2, 0.2, 0.1, faults=9000),
        measured("tutorial-grpc", 1, 1, 2.0, 2.0, 1.0),  # ratio .10: goal .12
        measured("tensorflow-ps", 1, 1, 0.22),  # ratio .91: must .95
        measured("torch-rpc", 1, 1, 0.1),  # ratio 2: must 1.3
    ]
    verdicts = {outcome.target.number: outcome for outcome in judge(rows)}
    assert verdicts["1"].value == pytest.approx(0.1)
    assert (verdicts["1"].best, verdicts["1"].verdict) == (0.1, "goal")
    assert verdicts["2"].verdict == "must"
    assert verdicts["3"].verdict == "missed"
    assert (verdicts["6"].value, verdicts["6"].verdict) == (9000, "missed")
    assert verdicts["5"].verdict == "not measured: paceline-bsp W2S1 was not in this run"


def test_a_target_without_its_peer_says_so() -> None:
    rows = [measured("paceline-asp", 1, 1, 0.2), measured("tensorflow-ps", 1, 1)]
    verdicts = {outcome.target.number: outcome.verdict for outcome in judge(rows)}
    assert verdicts["2"] == "not measured: tensorflow-ps W1S1 failed"
    assert verdicts["6"] == "not measured: it does not tell"


def test_an_environment_that_cannot_be_built_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(environments.REQUIREMENTS, "broken", ("something",))
    (tmp_path / "file").touch()
    with pytest.raises(NoEnvironment, match=r"'broken' can't be built, `-m venv .*` said: .*Not a directory"):
        python_of("broken", tmp_path / "file")


def test_an_environment_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def build(name: str, folder: Path, _: tuple[str, ...]) -> None:
        built.append(name)
        folder.mkdir(exist_ok=True)

    monkeypatch.setattr(environments, "_build", build)
    first, second = python_of("tensorflow", tmp_path), python_of("tensorflow", tmp_path)
    assert first == second == tmp_path / "tensorflow" / "bin" / "python"
    assert built == ["tensorflow"]


def test_a_peer_without_an_environment_is_a_row_with_a_reason() -> None:
    (row,) = measure([entry(HONEST, environment="nowhere")], Limits(1, 5))
    assert row.failure == "no environment: there is no 'nowhere'; known are project, tensorflow, ray, svm."


def test_the_tables_and_the_record_hold_every_row(tmp_path: Path) -> None:
    rows = [measured("paceline-asp", 1, 1, 0.2, faults=5), measured("tutorial-grpc", 1, 1)]
    rows[1].failure = "failed: a | b"
    shown, file = io.StringIO(), tmp_path / "results.md"
    report.show(Console(file=shown, width=200), "title", rows, judge(rows))
    report.record(["python", "-m", "benchmarks"], [(report.ROWS, [report.row_cells(row) for row in rows])], file)
    assert "0.200" in shown.getvalue()
    assert "8,000" in shown.getvalue()
    assert "| tutorial-grpc | W1S1 |  |  | 0 |  |  | failed: a \\| b |" in file.read_text()
    assert "`python -m benchmarks` at commit" in file.read_text()
    assert json.loads(json.dumps(report.as_json(rows, judge(rows))))["rows"][0]["seconds"] == [0.2]


PEER = ["benchmarks.peers.tutorial_grpc", "--elements=10"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["benchmarks", "--only", "glue"], 64, "^There is no contender 'glue'"),
        (["benchmarks.ddp", "--data", "/nowhere"], 65, "^There is no CIFAR-10 at /nowhere. Get the binary version"),
        *(
            ([*PEER, option], 2, "expected a whole number, 1 or more")
            for option in ("--elements=0", "--workers=-1", "--elements=many")
        ),
    ],
)
def test_a_wrong_option_or_missing_data_ends_with_its_code(words: Sequence[str], code: int, said: str) -> None:
    done = subprocess.run([sys.executable, "-m", *words], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == code
    assert re.search(said, done.stderr)


def test_the_oracle_is_momentum_sgd_with_weight_decay() -> None:
    job = Job(1, 1, 1, 2)
    (gradient,) = job.gradient().astype(float)
    first = -rules.LEARNING_RATE * gradient
    second = first - rules.LEARNING_RATE * (rules.MOMENTUM * gradient + gradient + rules.WEIGHT_DECAY * first)
    assert expected(job, 2) == pytest.approx([second], rel=1e-6)


@given(st.integers(1, 10_000), st.integers(1, 16))
def test_the_cuts_cover_every_element_once(elements: int, servers: int) -> None:
    job = Job(elements, 1, servers, 3)
    assert [index for cut in job.cuts() for index in range(elements)[cut]] == list(range(elements))


@given(st.integers(1, 100_000))
def test_the_probes_reach_both_ends(elements: int) -> None:
    places = probes(Job(elements, 1, 1, 3))
    assert (places[0], places[-1]) == (0, elements - 1)
    assert len(np.unique(places)) == min(elements, 4096)


def test_a_lost_or_misplaced_update_is_found() -> None:
    job = Job(1000, 1, 1, 3)
    right = expected(job, 3)
    verify(job, right, 3, 1e-4)
    wrong = right[::-1].copy()
    broken = right.copy()
    broken[7] = np.nan
    for weights, folds in ((right, 4), (wrong, 3), (broken, 3), (right[:-1], 3)):
        with pytest.raises(WrongResult):
            verify(job, weights, folds, 1e-4)


def serve_nothing(job: Job, server: int, announce: object) -> None:
    """A server that ends before it announces an address."""


def test_a_process_that_ends_early_is_named() -> None:
    with pytest.raises(WrongResult, match="process of server 0 ended early"):
        play(Job(10, 1, 1, 3), serve_nothing, serve_nothing, servers=1, workers=1, folds=3)  # type: ignore[arg-type]


class Idler:
    """A contender's worker that is fast because it does nothing."""

    def __init__(self, job: Job, rank: int, addresses: Sequence[str]) -> None:
        self._elements = job.elements

    def iterate(self, gradient: Vector) -> None:
        """Push nothing."""

    def weights(self) -> Vector:
        return np.zeros(self._elements, np.float32)


def test_a_contender_that_does_not_do_the_work_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WrongResult, match="lost, repeated or misplaced an update"):
        play(Job(10, 2, 1, 4), serve_nothing, Idler, servers=0, workers=2, folds=8)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("iteration") for line in lines] == [0, 1, 2, 3, None]


@pytest.mark.nightly  # they load torch or TensorFlow in every process
@pytest.mark.parametrize(
    ("name", "workers", "servers"),
    [("tutorial-grpc", 2, 2), ("torch-rpc", 1, 2), ("gloo", 2, 1), ("tensorflow-ps", 1, 2)],
)
def test_a_peer_computes_the_right_model(name: str, workers: int, servers: int) -> None:
    peer = CONTENDERS[name]
    if not (peer.environment == "project" or (REPOSITORY / ".bench" / peer.environment / "finished").is_file()):
        pytest.skip(f"the environment '{peer.environment}' is built by the first `python -m benchmarks`")
    (row,) = measure([Entry(peer, Shape(10_007, workers, servers))], Limits(rounds=1, iterations=4, start=100.0))
    assert row.failure == ""
    assert len(row.seconds) == 2


def test_the_kernels_are_measured_against_targets_7_and_8() -> None:
    pytest.importorskip("torch")
    rows = kernel_rows(1000)

    assert all(row.value > 0 for row in rows)
    assert [(row.measure[0], row.must, row.goal) for row in rows if row.must] == [
        ("7", 1.5, 1.3),  # SGD
        ("7", 1.3, 1.0),  # Adam
        ("7", 1.3, 1.0),  # AdamW
        ("8", 2.0, 1.3),  # fp16
        ("8", 2.0, 1.3),  # bf16
    ]


def trained(entry: Entry, *starts: Sequence[tuple[float, float]]) -> ddp.Training:
    return ddp.Training(entry, [[Epoch(*epoch) for epoch in start] for start in starts])


def test_the_time_to_an_accuracy_ends_with_the_first_epoch_that_reaches_it() -> None:
    result = trained(ddp.ENTRIES[0], [(10, 0.3), (20, 0.5), (30, 0.4)], [(12, 0.3), (24, 0.49), (36, 0.6)])
    assert result.measured(0.5).seconds == [20, 36]
    assert result.cells(0.5) == ["gloo-ddp", "W2S1", "28.0", "20.0", "2", "11.00", ".300 .495 .500", ""]


def test_a_contender_that_did_not_learn_enough_has_no_time() -> None:
    result = trained(ddp.ENTRIES[0], [(10, 0.3), (20, 0.5)], [(10, 0.3), (20, 0.4)])
    assert result.measured(0.5).seconds == []
    assert result.cells(0.5)[-1] == "a start reached only 0.400; give it more --epochs"
    (outcome, _) = judge([result.measured(0.5)], ddp.TARGETS)
    assert outcome.verdict == "not measured: paceline-bsp W2S1 was not in this run"


def test_time_to_accuracy_is_judged_against_gloo() -> None:
    rows = [trained(entry, [(seconds, 0.5)]) for entry, seconds in zip(ddp.ENTRIES, (10, 10.4, 12), strict=True)]
    one, two = judge([row.measured(0.5) for row in rows], ddp.TARGETS)
    assert [one.value, two.value] == pytest.approx([1.04, 1.2])
    assert [one.verdict, two.verdict] == ["must", "missed"]


@pytest.mark.parametrize("printed", ["", "hello", '{"seconds": 1}', "[1, 2]", '{"seconds": 1, "accuracy": 0.5}\n' * 2])
def test_a_training_that_does_not_tell_each_epoch_is_refused(printed: str) -> None:
    with pytest.raises(StartFailed, match="expected 1 JSON lines with seconds and accuracy"):
        ddp.parse(printed, 1)


@pytest.mark.nightly  # two trainings with torch, 28 s of CPU time, for a benchmark that nothing else starts
def test_both_sides_of_the_training_benchmark_learn_the_same(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        labels = rng.integers(0, 10, (40, 1), dtype=np.uint8)
        pixels = rng.integers(0, 30, (40, 3072), dtype=np.uint8) + 20 * labels
        (tmp_path / f"{name}.bin").write_bytes(np.hstack([labels, pixels]).tobytes())
    todo = {entry: settings(tmp_path, entry.shape.servers, 3, batch=20) for entry in (ddp.ENTRIES[0], ddp.ENTRIES[2])}

    gloo, paceline = ddp.train(todo, tmp_path, rounds=1, patience=120, say=lambda line: None)

    assert (gloo.failure, paceline.failure) == ("", "")
    assert len(gloo.starts[0]) == 3
    assert ddp.accuracies(paceline.starts[0]) == ddp.accuracies(gloo.starts[0])
    assert all(before.seconds < after.seconds for before, after in pairwise(paceline.starts[0]))


LOG = """# Benchmark results

## 2026-01-01 10:00 UTC

| contender | shape | median | min | n | CPU s/GB | faults/GB | remark |
| --- | --- | --- | --- | --- | --- | --- | --- |
| lane-asp | W2S1 | 0.159 | 0.141 | 10 | 0.72 | 17 |  |
| gloo | W2S1 | 0.253 | 0.119 | 10 | 0.65 | 678 |  |
| torch-rpc | W2S1 |  |  | 0 |  |  | ended: no port |
| gloo | W4S1 | 0.316 | 0.280 | 10 | 0.78 | 996 |  |

| # | measure (lower is better) | median | min | must | goal | reached |
| --- | --- | --- | --- | --- | --- | --- |
| 3 | fp32 W1S1 / torch RPC | 1.30 | 1.18 | 1.30 | 1.00 | must |

## 2026-01-02 10:00 UTC

| contender | shape | median |
| --- | --- | --- |
| ray | W2S1 | 0.100 |
"""


def test_the_medians_of_one_run_and_shape_are_read_and_one_that_is_not_in_the_log_is_refused() -> None:
    assert medians(LOG, "2026-01-01 10:00 UTC", "W2S1") == {"Paceline, asp": 0.159, "Gloo allreduce": 0.253}
    with pytest.raises(UsageError, match="2026-01-01 10:00 UTC, 2026-01-02 10:00 UTC"):
        medians(LOG, "yesterday", "W2S1")


def test_the_quickest_contender_is_on_top() -> None:
    axes = draw(medians(LOG, "2026-01-01 10:00 UTC", "W2S1")).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Paceline, asp", "Gloo allreduce"]


def test_all_contenders_exchange_and_are_compared() -> None:
    seconds = exchange.measure(3, 2, 100)
    assert {name: len(taken) for name, taken in seconds.items()} == {LANE: 6, GRPC: 6, STOCK: 6}
    assert [(row.must, row.goal) for row in rows(seconds)] == [(0.5, 0.33), (None, None)]


def test_a_ratio_is_of_the_medians() -> None:
    found = rows({LANE: [1.0, 9.0, 2.0], GRPC: [8.0, 8.0, 1.0], STOCK: [4.0, 1.0, 9.0]})
    assert [row.value for row in found] == [0.5, 0.25]
