"""How many calls one caller may have at a server, on every transport."""

from contextlib import ExitStack

import pytest

from paceline.core.errors import Overloaded
from paceline.rpc.roles import ANYONE, Caller, Role
from paceline.rpc.shares import READERS, SHARE, Shares
from paceline.rpc.tokens import Claims


def caller(role: Role, name: str) -> Caller:
    return Caller(role, name, Claims("demo", role, name, 0.0, 1.0))


def calls(shares: Shares, who: Caller, count: int, held: ExitStack) -> None:
    for _ in range(count):
        held.enter_context(shares.call(who))


@pytest.mark.parametrize("role", ["worker", "evaluator", "server", "reader"])
def test_a_caller_has_its_share_and_leaves_the_others_theirs(role: Role) -> None:
    shares = Shares()
    with ExitStack() as held:
        calls(shares, caller(role, "one-1"), SHARE[role], held)
        with pytest.raises(Overloaded, match="Wait until one of them has ended"):
            calls(shares, caller(role, "one-1"), 1, held)
        calls(shares, caller(role, "one-2"), SHARE[role], held)
    with ExitStack() as held:
        calls(shares, caller(role, "one-1"), SHARE[role], held)


def test_all_readers_together_have_a_limit() -> None:
    shares = Shares()
    with ExitStack() as held:
        for number in range(READERS):
            calls(shares, caller("reader", f"reader-{number}"), 1, held)
        with pytest.raises(Overloaded, match="Readers have 256 calls"):
            calls(shares, caller("reader", "another"), 1, held)
        calls(shares, caller("evaluator", "evaluator"), 1, held)


def test_a_token_for_several_workers_has_a_share_for_each() -> None:
    with ExitStack() as held:
        calls(Shares(processes=3), caller("worker", "worker-*"), 3 * SHARE["worker"], held)
        calls(Shares(), caller("worker", "worker-*"), 100, held)


def test_a_call_that_fails_counts_no_more() -> None:
    shares = Shares()
    for _ in range(SHARE["reader"] + 1):
        with pytest.raises(ZeroDivisionError), shares.call(caller("reader", "one")):
            raise ZeroDivisionError


@pytest.mark.parametrize("who", [ANYONE, caller("admin", "")])
def test_admins_and_callers_without_tokens_are_not_counted(who: Caller) -> None:
    with ExitStack() as held:
        calls(Shares(), who, 100, held)
