"""Calls that wait for a reply or a version: who gets it, and who must ask again."""

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from paceline.core.errors import TryAgain, VersionGone
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.policies.builtin.asp import Asp
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.values import Outcome, Reply
from paceline.server.waiting_calls import WaitingPulls, WaitingPush, WaitingPushes, wait_until

CHANGED = threading.Condition()


@pytest.fixture(autouse=True)
def _lock(monkeypatch):
    monkeypatch.setattr("paceline.server.waiting_calls._LOOK", 0.01)
    with CHANGED:
        yield


def soon() -> float:
    """For what never comes."""
    return time.monotonic() + 0.01


def late() -> float:
    """For what comes."""
    return time.monotonic() + 60


def always() -> bool:
    return True


def never() -> bool:
    return False


def meanwhile(*events: Callable[[], object]) -> Callable[[], bool]:
    """A caller that waits, and lets one of the events happen at each look at it."""
    left = list(events)

    def is_there() -> bool:
        if left:
            left.pop(0)()
        return True

    return is_there


def a_slice() -> ModelSlice:
    """With first weights."""
    model_slice = ModelSlice(1, Asp(), Sgd())
    model_slice.initialise(np.zeros(1, np.float32), b"zeros")
    return model_slice


def a_reply(worker: str) -> Reply:
    weights = a_slice().pull()
    assert weights is not None
    return Reply(worker, 1, Outcome.FOLDED, "", 1, weights, 0, None, 1, 0.1, 0.0, False, None, 1)


def test_waiting_ends_with_a_result_or_at_the_deadline():
    assert wait_until(CHANGED, lambda: 7, late(), never) == 7, "nobody looks for the caller where there is a result"
    assert wait_until(CHANGED, lambda: None, soon(), always) is None


def test_a_caller_that_has_gone_is_not_waited_for():
    with pytest.raises(TryAgain, match="The caller has gone away"):
        wait_until(CHANGED, lambda: None, late(), never)


def test_a_reply_is_handed_to_the_call_that_waits_for_it():
    pushes, call, reply = WaitingPushes(CHANGED), WaitingPush(), a_reply("a")
    pushes.expect("a", call)

    found = pushes.answer("a", call, always, late(), meanwhile(lambda: pushes.deliver(reply)))

    assert found is reply


def test_a_reply_that_nobody_waits_for_is_not_delivered():
    pushes, call = WaitingPushes(CHANGED), WaitingPush()
    pushes.expect("a", call)

    assert not pushes.deliver(a_reply("b"))
    assert pushes.answer("a", call, always, soon(), always) is None
    assert not pushes.deliver(a_reply("a")), "the call has given up"


def test_a_repeat_takes_the_place_of_the_call_before():
    pushes, call, repeat = WaitingPushes(CHANGED), WaitingPush(), WaitingPush()
    pushes.expect("a", call)

    with pytest.raises(TryAgain, match="A repeat of a's push replaced this call"):
        pushes.answer("a", call, always, late(), meanwhile(lambda: pushes.expect("a", repeat)))

    assert pushes.deliver(a_reply("a"))
    assert repeat.reply is not None


def test_a_worker_that_is_no_member_any_more_is_not_waited_for():
    pushes, call = WaitingPushes(CHANGED), WaitingPush()
    pushes.expect("a", call)

    assert pushes.answer("a", call, never, late(), always) is None


def test_a_version_that_is_there_is_pinned_at_once():
    published = WaitingPulls(CHANGED).answer(None, False, a_slice(), late(), never)

    assert published is not None
    assert published.version == 0


def test_a_version_to_come_is_pinned_when_it_comes():
    pulls, model_slice = WaitingPulls(CHANGED), a_slice()

    found = pulls.answer(0, False, None, late(), meanwhile(lambda: pulls.serve(model_slice)))

    assert found is not None
    assert pulls.answer(1, False, model_slice, soon(), always) is None


def test_a_version_that_is_gone_is_said():
    class Gone(ModelSlice):
        def pull(self, version=None, mean=False):
            raise VersionGone("Version 0 is no longer kept.")

    with pytest.raises(VersionGone):
        WaitingPulls(CHANGED).answer(0, False, Gone(1, Asp(), Sgd()), late(), always)
