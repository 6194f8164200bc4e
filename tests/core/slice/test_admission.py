"""Which pushes a slice lets in."""

import inspect
from typing import ClassVar

import numpy as np
import pytest

from paceline.core.errors import BadPush, ConfigError, Fenced, Gap, NotYet, PacelineError
from paceline.core.policies.builtin.asp import Asp
from paceline.core.policies.clocks import Clocks
from paceline.core.slice.admission import Admission
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.state import Phase
from paceline.core.values import Base, Dense, Outcome, Push, Seat, Switch, Verdict, View
from tests.support.one_slice import OneSlice
from tests.support.slice_parts import PLAIN, a_push, clocks_with, counted, half_of

TERM = 2


def admission(**seats: Seat) -> Admission:
    """Of a slice of two values in its second life, at version 0."""
    return Admission(TERM, 2, clocks_with(**seats), lambda push: None)


def test_a_members_next_push_is_let_in():
    admission(a=Seat(1, 0)).check(a_push(), Phase.SERVING)


@pytest.mark.parametrize(
    ("seat", "push", "error", "why"),
    [
        (Seat(1, 0), a_push("b"), Fenced, "expelled"),
        (Seat(2, 0), a_push(), Fenced, "incarnation 2 has its seat"),
        (Seat(1, 0), a_push(incarnation=2), NotYet, "not in view 1 yet"),
        (Seat(1, 0), a_push(view=2), NotYet, "needs view 2"),
        (Seat(1, 0), a_push(clock=2), Gap, "expected 1"),
        (Seat(1, 0, last=0), a_push(), BadPush, "the run is stopping"),
        (Seat(1, 0, switch_clock=0), a_push(), NotYet, "beyond its switch clock 0"),
        (Seat(1, 0), a_push(update=Dense(np.ones(3, np.float32))), BadPush, "3 values to a slice of 2"),
        (Seat(1, 0), a_push(base=Base(TERM, 1)), BadPush, r"claims weights of \(2, 1\)"),
    ],
)
def test_other_pushes_are_refused_with_the_reason(seat: Seat, push: Push, error: type[PacelineError], why: str):
    with pytest.raises(error, match=why):
        admission(a=seat).check(push, Phase.SERVING)


@pytest.mark.parametrize("term", [TERM - 1, TERM + 1])
def test_weights_of_another_term_are_no_offence(term: int):
    admission(a=Seat(1, 0)).check(a_push(base=Base(term, 9)), Phase.SERVING)


def test_nothing_is_let_in_before_the_slice_serves():
    with pytest.raises(NotYet, match="The slice is empty"):
        admission(a=Seat(1, 0)).check(a_push(), Phase.EMPTY)


def test_nobody_is_shut_out_before_the_slice_knows_who_the_members_are():
    one = Admission(TERM, 2, Clocks(), lambda push: None)

    with pytest.raises(NotYet, match="at view 0"):
        one.check_repeat("a", 1, 1, Phase.SERVING)


class Forgetful(Asp):
    """A user's, which says that pushes wait, and not that they are summed."""

    def admit(self, push: Push, clocks: Clocks) -> Verdict:
        return Verdict(Outcome.BUFFERED)


class Gathering(Forgetful):
    gathers: ClassVar[bool] = True


def test_a_push_that_should_wait_in_a_sum_that_a_policy_does_not_have_is_an_error_and_not_lost():
    line = inspect.getsourcelines(Forgetful.admit)[1]
    told = rf"test_admission.py, line {line}: admit\(\) of policy Forgetful says BUFFERED, .* Set `gathers = True`"
    one = admission(a=Seat(1, 0))
    push = a_push(base=Base(TERM, 0))

    with pytest.raises(ConfigError, match=told):
        one.verdict(push, Forgetful(), None)

    assert one.verdict(push, Gathering(), None).outcome is Outcome.BUFFERED


def test_a_slice_counts_no_push_that_it_could_not_keep():
    one = ModelSlice(2, Forgetful(), PLAIN)
    one.initialise(np.zeros(2, np.float32), b"")
    one.view(View(1, {"a": Seat(1, 0)}))

    with pytest.raises(ConfigError, match="BUFFERED"):
        one.push(a_push())

    assert (one.clocks.pushes, one.clocks.entry("a").clock) == (0, 0)


def test_a_repeat_is_answered_once_its_push_was_counted_and_else_has_to_be_sent_again():
    clocks = clocks_with(a=Seat(1, 0))
    one = Admission(TERM, 2, clocks, lambda push: None)
    with pytest.raises(Gap, match="never came"):
        one.check_repeat("a", 1, 1, Phase.SERVING)
    counted(clocks, a_push(), Outcome.FOLDED)

    one.check_repeat("a", 1, 1, Phase.SERVING)


def test_a_worker_may_resume_before_its_view_has_come_but_not_after_another_has_its_seat():
    one = admission(a=Seat(2, 0))

    one.check_resume("a", 3)
    with pytest.raises(Fenced, match="Join again"):
        one.check_resume("a", 1)


def test_a_push_that_an_earlier_term_has_dropped_is_dropped_again_and_counts_as_before():
    one = OneSlice("asp", "a", (1.0,))

    (reply,) = one.push("a", dropped=True, examples=8, base=Base(0, 0))

    assert (reply.outcome, reply.reason, reply.clock) == (Outcome.DROPPED, "dropped_before", 1)
    assert (one.slice.clocks.examples, one.weights) == (8, [1.0])


def test_pushes_from_before_a_change_of_policy_count_and_are_not_used():
    policy = half_of("asp").policy
    one = admission(a=Seat(1, 7))
    made = Switch(1, {"name": "asp"}, 9)

    assert one.verdict(a_push(clock=2), policy, made) == (Outcome.DROPPED, "old_policy")
    assert one.verdict(a_push(clock=3), policy, made) == (Outcome.FOLDED, "")
