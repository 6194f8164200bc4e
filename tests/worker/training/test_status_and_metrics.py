"""What a worker says of itself."""

import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from paceline.core.errors import DataError
from paceline.v1 import parameter_service_pb2 as pb

progress_module = pytest.importorskip("paceline.worker.training.status_and_metrics")
Step = pytest.importorskip("paceline.worker.training.model_and_gradient").Step


class Told:
    """A Progress, and what it has said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.progress: Any = progress_module.Progress(
            CollectorRegistry(), lambda event, **facts: self.said.append(event)
        )
        self.clock = 0

    def steps(self, count: int, finite: bool) -> None:
        for _ in range(count):
            self.clock += 1
            self.progress.stepped(self.clock, 0, Step(None, 1.0, 8, finite), [pb.PullHead()], 1.0)


def test_many_steps_in_a_row_without_a_finite_gradient_are_told_with_what_to_do() -> None:
    told = Told()
    told.steps(9, finite=False)
    assert told.said == []
    told.steps(291, finite=False)
    assert [line.split()[0] for line in told.said] == ["10", "100", "200", "300"]
    assert "steps in a row had no finite gradient, so nothing is learned; lower the rate" in told.said[0]


def test_a_worker_without_finite_gradients_names_columns_of_large_numbers() -> None:
    told = Told()
    told.progress.large_inputs = lambda: ["inputs[:, 3] (up to 1.7e+09)"]
    told.steps(10, finite=False)
    assert told.said[0].endswith("try inputs of about -1 to 1: scale or leave out inputs[:, 3] (up to 1.7e+09)")


def test_steps_in_which_a_script_looks_for_a_scale_are_no_warning() -> None:
    told = Told()
    for _ in range(19):
        told.clock += 1
        told.progress.stepped(told.clock, 0, Step(None, 1.0, 8, False, searches=True), [pb.PullHead()], 1.0)

    assert told.said == []
    assert "unusable_longest" not in told.progress.state()[3]


def test_a_worker_that_has_not_learned_for_a_thousand_steps_ends_with_an_error() -> None:
    told = Told()
    told.steps(999, finite=False)

    with pytest.raises(DataError, match=r"1000 steps in a row .* never end"):
        told.steps(1, finite=False)


def test_steps_before_the_run_went_back_to_older_weights_do_not_end_a_worker() -> None:
    told = Told()
    told.steps(999, finite=False)

    told.progress.went_back()
    told.steps(999, finite=False)

    with pytest.raises(DataError, match=r"1000 steps in a row"):
        told.steps(1, finite=False)


def test_single_steps_without_a_finite_gradient_are_not_told() -> None:
    told = Told()
    for _ in range(30):
        told.steps(9, finite=False)
        told.steps(1, finite=True)
    assert told.said == []


def test_speed_is_the_share_of_the_fastest_workers_rate_and_1_until_both_are_known() -> None:
    progress = Told().progress
    assert progress.speed == 1
    progress.computed(100, 2.0)
    assert progress.speed == 1
    progress.fastest = 200.0
    assert progress.speed == 0.25
    progress.computed(100, 0.5)  # 0.9 * 50 + 0.1 * 200 = 65 a second
    assert progress.speed == pytest.approx(0.325)
    progress.fastest = 10.0
    assert progress.speed == 1


def test_a_worker_whose_pushes_are_all_dropped_is_told_so() -> None:
    told = Told()
    dropped = pb.PullHead(outcome=pb.OUTCOME_DROPPED, reason="too_stale", lr=0.5)
    for clock in range(1, 101):
        told.progress.stepped(clock, 0, Step(None, 1.0, 8, True), [pb.PullHead(), dropped], 1.0)

    assert "the last 100 pushes were all dropped" in told.said[0]
    assert told.progress.state()[3]["dropped"] == 100


def test_single_dropped_pushes_are_counted_but_not_told() -> None:
    told = Told()
    for clock in range(1, 301):
        outcome = pb.OUTCOME_DROPPED if clock % 3 else pb.OUTCOME_FOLDED
        told.progress.stepped(clock, 0, Step(None, 1.0, 8, True), [pb.PullHead(outcome=outcome)], 1.0)

    assert told.said == []
    assert told.progress.state()[3]["dropped"] == 200


@pytest.mark.parametrize(
    ("outcomes", "is_used"),
    [(["FOLDED", "FOLDED"], True), (["FOLDED", "DROPPED"], True), (["DROPPED", "DROPPED"], False)],
)
def test_examples_a_second_are_those_that_some_server_has_used(
    outcomes: list[str], is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, heads = Told(), [pb.PullHead(outcome=f"OUTCOME_{outcome}") for outcome in outcomes]
    now = time.monotonic()
    told.progress.stepped(1, 0, Step(None, 1.0, 8, True), heads, 1.0)
    monkeypatch.setattr(time, "monotonic", lambda: now + 4.0)

    assert (told.progress.state()[3]["examples_per_second"] > 0) is is_used


def test_three_steps_without_a_finite_gradient_wake_the_heartbeat_and_stand_in_its_figures() -> None:
    told = Told()
    told.steps(2, finite=False)
    assert not told.progress.alarm.is_set()
    told.steps(1, finite=False)
    assert told.progress.alarm.is_set()
    assert told.progress.state()[3]["unusable_row"] == 3

    told.steps(1, finite=True)
    figures = told.progress.state()[3]
    assert (figures["unusable_row"], figures["unusable_longest"]) == (0, 3)


@pytest.mark.parametrize(
    ("losses", "sizes", "longest"),
    [
        ([2.0, 2.1, 1.9] + [5000.0] * 3 + [1.0], [1.0] * 7, 3),
        ([2.0, 1e9, 1e9, 1e9], [1.0] * 4, 3),
        ([float("nan")] * 5, [1.0, 1.0, 1e7, 1e7, 1e7], 3),
        ([1e-7] * 3 + [1e-2] * 9, [1e-9] * 3 + [1e-3] * 9, 0),
        ([2.0, 400.0, 30.0, 2.0], [1.0, 1000.0, 10.0, 1.0], 0),
    ],
    ids=["loss", "from the second step on", "gradient of a loop that tells no loss", "small beginnings", "a bad start"],
)
def test_losses_and_gradients_that_explode_are_counted(losses: list[float], sizes: list[float], longest: int) -> None:
    told = Told()
    for clock, (loss, size) in enumerate(zip(losses, sizes, strict=True)):
        told.progress.stepped(clock, 0, Step(None, loss, 8, True, size), [pb.PullHead()], 1.0)
    assert told.progress.state()[3].get("exploding_longest", 0) == longest


class Clock:
    """Virtual time in place of a worker's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress_module, "time", self)
        self.progress: Any = progress_module.Progress(CollectorRegistry())

    def monotonic(self) -> float:
        return self.now

    process_time = monotonic

    def step(self, exchange: float, pulled: float | None, waited: float = 0.0, loaded: float = 0.0) -> None:
        """1 s of data and 2 s of computation, of which some is `loaded`, then an exchange."""
        self.progress.enter("data")
        self.now += 1
        self.progress.enter("compute")
        self.now += 2
        self.progress.loaded(loaded)
        self.progress.computed(8, 2.0)
        self.progress.enter("exchange")
        self.now += exchange
        self.progress.stepped(1, 0, Step(None, 1.0, 8, True), [pb.PullHead(waited=waited)], 1.0, pulled)

    def spent(self) -> dict[str, float]:
        """Where the time went once the next step has begun."""
        self.progress.enter("data")
        figures = self.progress.state()[3]
        return {name: value for name, value in figures.items() if name in SPENT}


SPENT = ("data_seconds", "compute_seconds", "push_seconds", "pull_seconds", "exchange_seconds", "wait_seconds")


def test_a_worker_says_where_its_time_went(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    clock.step(exchange=5.0, waited=3.0, pulled=0.5)
    clock.step(exchange=5.0, waited=3.0, pulled=0.5)
    assert clock.spent() == {
        "data_seconds": 2.0,
        "compute_seconds": 4.0,
        "push_seconds": 3.0,
        "pull_seconds": 1.0,
        "wait_seconds": 6.0,
    }


def test_an_exchange_that_is_one_message_is_not_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    clock.step(exchange=5.0, waited=3.0, pulled=None)
    found = clock.spent()
    assert (found["exchange_seconds"], "push_seconds" in found) == (2.0, False)


def test_no_part_of_an_exchange_is_longer_than_the_worker_stood_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    clock.step(exchange=1.0, waited=3.0, pulled=0.5)  # the reply waited while the next mini-batch was computed
    found = clock.spent()
    assert (found["push_seconds"], found["pull_seconds"]) == (0.0, 0.0)


def test_loading_inside_of_a_computation_counts_as_data(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    clock.step(exchange=1.0, pulled=None, loaded=1.5)
    found = clock.spent()
    assert (found["data_seconds"], found["compute_seconds"]) == (2.5, 0.5)
    assert clock.progress.state()[3]["step_seconds"] == 0.5
