"""What an epoch is, how many of them are trained, which clock is a worker's last, and which phase may follow which."""

import json
from typing import Any

import pytest

from paceline.core.chief.budget import Budget
from paceline.core.chief.phases import Phases, RunPhase
from paceline.core.errors import ConfigError, DataError
from paceline.core.settings.config import Config, Options

ASP = Options(name="asp")


def agreed(**settings: Any) -> Budget:
    """Of two epochs, each of 100 examples in 10 steps."""
    budget = Budget(Config(**({"epochs": 2} | settings)))
    budget.agree("worker-0", 100, 10, "digest")
    return budget


def test_nothing_is_known_before_a_worker_has_said_what_an_epoch_is():
    budget = Budget(Config(epochs=2))

    assert (budget.total, budget.share, budget.epoch, budget.epochs) == (0, 0.0, 0, 0.0)
    assert not budget.is_spent()


@pytest.mark.parametrize(
    ("examples", "share", "epoch", "epochs", "is_spent"),
    [(0, 0.0, 0, 0.0, False), (150, 0.75, 1, 1.5, False), (200, 1.0, 2, 2.0, True), (230, 1.0, 2, 2.3, True)],
)
def test_the_share_and_the_epochs_follow_from_the_examples(examples, share, epoch, epochs, is_spent):
    budget = agreed()

    budget.examples = examples

    assert budget.total == 200
    assert (budget.share, budget.epoch, budget.epochs, budget.is_spent()) == (share, epoch, epochs, is_spent)


def test_a_budget_is_spent_by_what_is_still_to_come():
    budget = agreed()

    budget.examples = 150

    assert (budget.is_spent(49), budget.is_spent(50)) == (False, True)


def test_with_a_budget_of_each_worker_no_number_of_examples_spends_it():
    budget = agreed(budget="per_worker")

    budget.examples = 10_000

    assert not budget.is_spent()


def test_only_a_budget_of_each_worker_names_a_last_clock():
    assert agreed().last_clock(ASP) is None
    assert agreed(budget="per_worker").last_clock(ASP) == 20
    assert agreed(budget="per_worker").last_clock(Options(name="local_sgd", steps=3)) == 7, "of three steps each"


@pytest.mark.parametrize("other", [(99, 10, "digest"), (100, 9, "digest"), (100, 10, "others")])
def test_workers_with_other_data_are_refused_and_nothing_changes(other: tuple[int, int, str]):
    budget = agreed()

    with pytest.raises(DataError, match=r"worker-1 trains on other shards: .* the run has 100 in 10\."):
        budget.agree("worker-1", *other)

    budget.agree("worker-2", 100, 10, "digest")


def test_a_script_that_split_its_data_otherwise_hears_how_to_seed_the_split():
    budget = agreed(data={"source": "script"})

    with pytest.raises(DataError, match=r"worker-1 trains on other data: .* another split of it.*manual_seed\(0\)"):
        budget.agree("worker-1", 100, 10, "others")


def test_a_worker_without_examples_is_refused():
    with pytest.raises(ConfigError, match=r"worker-0 has no training examples; write shards first"):
        Budget(Config()).agree("worker-0", 0, 0, "")


def test_a_restarted_chief_remembers_what_was_agreed_on():
    again = Budget(Config(epochs=2))

    again.restore(json.loads(json.dumps(agreed().state())))

    assert (again.total, again.steps_per_epoch) == (200, 10)
    with pytest.raises(DataError):
        again.agree("worker-1", 99, 10, "digest")


ALL = list(RunPhase)


def in_phase(phase: RunPhase) -> Phases:
    phases = Phases()
    phases.restore(phases.state() | {"phase": phase}, 0.0)
    return phases


@pytest.mark.parametrize(
    ("phase", "may_follow"),
    [
        (RunPhase.WAITING, [RunPhase.TRAINING, RunPhase.FINISHED]),
        (RunPhase.TRAINING, [RunPhase.STOPPING, RunPhase.SCORING]),
        (RunPhase.STOPPING, [RunPhase.SCORING]),
        (RunPhase.SCORING, [RunPhase.FINISHED, RunPhase.WAITING]),
        (RunPhase.FINISHED, [RunPhase.WAITING]),
    ],
)
def test_a_phase_is_followed_only_by_those_that_may_and_else_stays(phase: RunPhase, may_follow: list[RunPhase]):
    for other in ALL:
        phases = in_phase(phase)
        if other in may_follow:
            phases.enter(other, 1.0)
            assert phases.phase is other
        else:
            with pytest.raises(ValueError, match=f"A run that is {phase} can't be {other} next"):
                phases.enter(other, 1.0)
            assert phases.phase is phase


def test_training_and_stopping_count_as_training_time_and_nothing_else_does():
    phases = Phases()

    phases.enter(RunPhase.TRAINING, 10.0)
    assert phases.seconds(14.0) == 4.0
    phases.enter(RunPhase.STOPPING, 15.0)
    assert phases.seconds(17.0) == 7.0
    phases.enter(RunPhase.SCORING, 18.0)

    assert phases.seconds(99.0) == 8.0


def test_a_phase_waits_from_its_begin_and_a_new_run_from_the_first_look():
    phases = Phases()

    assert (phases.waited(5.0), phases.waited(8.0)) == (0.0, 3.0)
    phases.enter(RunPhase.TRAINING, 9.0)
    assert phases.waited(11.0) == 2.0


def test_what_is_said_later_is_added_to_the_reason():
    phases = Phases()

    phases.enter(RunPhase.TRAINING, 0.0)
    assert phases.reason == ""
    phases.enter(RunPhase.STOPPING, 1.0, "asked to")
    phases.enter(RunPhase.SCORING, 2.0)
    phases.enter(RunPhase.FINISHED, 3.0, "unscored: nobody came")

    assert phases.reason == "asked to; unscored: nobody came"
