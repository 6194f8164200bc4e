"""Which phase may follow which, and which of them count as training time."""

import pytest

from paceline.core.chief.phases import Phases, RunPhase

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
