"""What a slice does when the policy changes in the middle of a run."""

from paceline.core.slice.policy_switch import PolicySwitch
from paceline.core.slice.recovery import Recovery
from paceline.core.slice.rounds import Rounds
from paceline.core.values import Seat, Switch, View
from tests.support.slice_parts import a_push, clocks_with, counted, dense_folding, half_of

TO_SSP, TO_BSP = Switch(1, {"name": "ssp"}, 10), Switch(2, {"name": "bsp"}, 20)


class Parts:
    """A slice's parts, with members a and b."""

    def __init__(self, policy: str) -> None:
        self.clocks = clocks_with(a=Seat(1, 0), b=Seat(1, 0))
        self.half = half_of(policy)
        self.folding = dense_folding(self.clocks, self.half)
        self.rounds = Rounds(self.clocks, self.half, self.folding)
        self.switch = PolicySwitch(
            self.clocks, self.half, self.rounds, self.folding, Recovery(self.clocks, self.half, self.folding)
        )

    def named(self, switch: Switch, made: Switch | None = None, **switch_clocks: int) -> None:
        """A view names the change, and the clock that each member reaches under the old policy."""
        seats = {worker: Seat(1, 0, switch_clock=switch_clocks.get(worker)) for worker in "ab"}
        self.switch.take_view(View(self.clocks.view.number + 1, seats, 0, switch, made))
        self.switch.make_due()


def test_the_new_policy_begins_once_everybody_has_reached_its_hold():
    one = Parts("asp")
    one.named(TO_SSP, a=1, b=1)
    counted(one.clocks, a_push("a"))
    one.switch.make_due()
    assert one.half.made is None

    counted(one.clocks, a_push("b"))
    one.switch.make_due()

    assert (one.half.made, one.clocks.version, one.folding.current().version) == (TO_SSP, 10, 10)
    assert {one.clocks.progress(worker) for worker in "ab"} == {10}
    assert {one.clocks.entry(worker).seen for worker in "ab"} == {None}


def test_a_change_that_the_other_slices_made_while_this_one_was_away_begins_at_once():
    one = Parts("asp")

    one.named(TO_BSP, made=TO_SSP, a=5, b=5)

    assert (one.half.made, one.clocks.version) == (TO_SSP, 10)


def test_a_change_is_made_once():
    one = Parts("asp")
    one.named(TO_SSP, made=TO_SSP)
    policy = one.half.policy

    one.switch.make_due()

    assert one.half.policy is policy


def test_a_view_from_before_the_change_is_read_as_one_from_after_it():
    one = Parts("asp")
    one.named(TO_SSP, made=TO_SSP)

    one.named(TO_SSP, a=3, b=4)

    assert one.clocks.view.seats == {"a": Seat(1, 7), "b": Seat(1, 6)}


def test_what_is_gathered_folds_first_unless_its_round_stays_open():
    one = Parts("bsp")
    one.rounds.keep_open(1)
    one.rounds.add(counted(one.clocks, a_push("a")), 0)
    one.named(TO_SSP, made=TO_SSP)
    assert (one.half.made, one.folding.current().values.any()) == (None, False)

    one.rounds.keep_open(None)
    one.switch.make_due()

    assert (one.half.made, one.folding.current().values.any(), one.rounds.is_open) == (TO_SSP, True, False)
