"""Which pushes a slice lets in."""

import inspect
from typing import ClassVar

import numpy as np
import pytest

from paceline.core.errors import ConfigError
from paceline.core.policies.builtin.asp import Asp
from paceline.core.policies.clocks import Clocks
from paceline.core.slice.admission import Admission
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.values import Base, Outcome, Push, Seat, Switch, Verdict, View
from tests.support.one_slice import OneSlice
from tests.support.slice_parts import PLAIN, a_push, clocks_with, half_of

TERM = 2


def admission(**seats: Seat) -> Admission:
    """Of a slice of two values in its second life, at version 0."""
    return Admission(TERM, 2, clocks_with(**seats), lambda push: None)


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
