"""When the pushes that a slice has gathered fold together."""

from paceline.core.policies.clocks import Clocks
from paceline.core.slice.rounds import Rounds
from paceline.core.values import Seat, View
from tests.support.slice_parts import a_push, clocks_with, counted, dense_folding, half_of

TWO = {"a": Seat(1, 0), "b": Seat(1, 0)}


def rounds_of(policy: str, clocks: Clocks, **options: object) -> Rounds:
    half = half_of(policy, **options)
    return Rounds(clocks, half, dense_folding(clocks, half))


def gather(rounds: Rounds, clocks: Clocks, worker: str, clock: int = 1) -> None:
    rounds.add(counted(clocks, a_push(worker, clock)), 0)
    rounds.close_due()


def test_a_round_closes_with_its_last_member():
    clocks = clocks_with(**TWO)
    rounds = rounds_of("bsp", clocks)
    gather(rounds, clocks, "a")
    assert (rounds.is_open, clocks.version) == (True, 0)

    gather(rounds, clocks, "b")

    assert (rounds.is_open, clocks.version) == (False, 1)


def test_a_round_closes_when_the_member_that_it_waits_for_has_left():
    clocks = clocks_with(**TWO)
    rounds = rounds_of("bsp", clocks)
    gather(rounds, clocks, "a")

    clocks.take_view(View(2, {"a": Seat(1, 0)}))
    rounds.close_due()

    assert clocks.version == 1


def test_a_held_round_stays_open_and_a_later_hold_does_not_loosen_it():
    clocks = clocks_with(a=Seat(1, 0))
    rounds = rounds_of("bsp", clocks)
    rounds.keep_open(1)
    rounds.keep_open(2)
    gather(rounds, clocks, "a")
    assert (rounds.open_from, rounds.stays_open, clocks.version) == (1, True, 0)

    rounds.keep_open(None)
    rounds.close_due()

    assert clocks.version == 1


def test_a_round_waits_for_workers_in_order_and_holds_the_pushes_of_others():
    clocks = clocks_with(**TWO)
    rounds = rounds_of("bsp", clocks)
    assert rounds.next_in_order() == "a"

    gather(rounds, clocks, "b")

    assert (rounds.next_in_order(), rounds.needs("b"), rounds.needs("a")) == ("a", True, False)


def test_a_sum_outside_of_rounds_closes_when_it_is_large_enough_or_nobody_adds_to_it_any_more():
    clocks = clocks_with(a=Seat(1, 0))
    rounds = rounds_of("kbuffered", clocks, k=2)
    gather(rounds, clocks, "a", 1)
    assert (clocks.version, clocks.buffered) == (0, 1)
    gather(rounds, clocks, "a", 2)
    assert (clocks.version, clocks.buffered) == (1, 0)

    clocks.take_view(View(2, {"a": Seat(1, 0, last=3)}))
    gather(rounds, clocks, "a", 3)

    assert (clocks.version, clocks.buffered) == (2, 0)


def test_a_policy_that_folds_each_push_by_itself_has_no_rounds():
    clocks = clocks_with(a=Seat(1, 0))
    rounds = rounds_of("asp", clocks)
    gather(rounds, clocks, "a")

    assert (rounds.is_open, rounds.needs("a"), rounds.next_in_order(), clocks.version) == (False, False, None, 0)
