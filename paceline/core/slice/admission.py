"""Decides which pushes are accepted, and which repeats are answered."""

from collections.abc import Callable

from paceline.core.errors import BadPush, ConfigError, Fenced, Gap, NotYet
from paceline.core.extension import place_of
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Policy
from paceline.core.slice.state import Phase
from paceline.core.values import Outcome, Push, Switch, Verdict


class Admission:
    """Accepts a push from a member that holds its seat, with its next clock, in the slice's form. A refused push changes
    nothing. Not thread-safe."""

    def __init__(self, term: int, length: int, clocks: Clocks, check_form: Callable[[Push], None]) -> None:
        """`check_form`: raises BadPush if an update is dense and should be sparse, or the reverse."""
        self._term = term
        self._length = length
        self._clocks = clocks
        self._check_form = check_form

    def check(self, push: Push, phase: Phase) -> None:
        """NotYet: repeat the push after the next view or recovery. Fenced, Gap, BadPush: the push is useless as it is."""
        clocks = self._clocks
        view = clocks.view
        if push.view > view.number or phase is not Phase.SERVING:
            raise NotYet(f"The slice is {phase} at view {view.number}; the push needs view {push.view}.")
        self._check_seat(push.worker, push.incarnation)
        self._check_form(push)
        seat = view.seats[push.worker]
        clock = clocks.entry(push.worker).clock
        if len(push.update) != self._length:
            raise BadPush(f"{push.worker} pushed {len(push.update):,} values to a slice of {self._length:,}.")
        if push.clock > clock + 1:
            raise Gap(f"{push.worker} pushed clock {push.clock}, expected {clock + 1}. Say Resume first.")
        if seat.last is not None and push.clock > seat.last:
            raise BadPush(
                f"{push.worker} pushed clock {push.clock}, but its last one is {seat.last}: the run is stopping."
            )
        if seat.switch_clock is not None and push.clock > seat.switch_clock:
            raise NotYet(
                f"{push.worker} pushed clock {push.clock}, beyond its switch clock {seat.switch_clock}; the policy changes "
                "once all members have reached theirs."
            )
        base = push.base
        if base.term == self._term and base.version > clocks.version:
            raise BadPush(
                f"{push.worker} claims weights of {tuple(base)}; the slice is at {(self._term, clocks.version)}."
            )

    def check_repeat(self, worker: str, incarnation: int, clock: int, phase: Phase) -> None:
        """Checks a push that its worker says was counted before; Gap if it never came."""
        clocks = self._clocks
        entry = clocks.entry(worker)
        is_unseen = clocks.seat(worker) is None and incarnation > entry.incarnation
        if phase is not Phase.SERVING or not clocks.view.number or is_unseen:
            raise NotYet(f"The slice is {phase} at view {clocks.view.number}, which {worker} is not in yet.")
        self._check_seat(worker, incarnation)
        if clock > entry.clock:
            raise Gap(
                f"Clock {clock} of {worker} never came; the slice has its clock {entry.clock}. Send the push again."
            )

    def check_resume(self, worker: str, incarnation: int) -> None:
        """Checks a worker that asks for its clock; it may come before its view does."""
        if incarnation < self._clocks.entry(worker).incarnation:
            raise self._fenced(worker, incarnation)

    def verdict(self, push: Push, policy: Policy, made: Switch | None) -> Verdict:
        """What becomes of an accepted push, by the policy; one from before `made`, the last change of policy, is of no use to
        it. ConfigError if the push should wait in a sum and the policy has none."""
        if push.dropped:
            return Verdict(Outcome.DROPPED, "dropped_before")
        if made is not None and push.clock + self._clocks.view.seats[push.worker].handicap <= made.version:
            return Verdict(Outcome.DROPPED, "old_policy")
        verdict = policy.admit(push, self._clocks)
        if verdict.outcome is Outcome.BUFFERED and not policy.has_sum:
            kind = type(policy)
            raise ConfigError(
                f"{place_of(kind.admit)}: admit() of policy {kind.__name__} says BUFFERED, but the policy has no sum that the "
                f"push could wait in, and it would be lost. Set `gathers = True` in class {kind.__name__}."
            )
        return verdict

    def _check_seat(self, worker: str, incarnation: int) -> None:
        seat = self._clocks.seat(worker)
        if seat is None or incarnation < seat.incarnation:
            raise self._fenced(worker, incarnation)
        if incarnation > seat.incarnation:
            raise NotYet(f"Incarnation {incarnation} of {worker} is not in view {self._clocks.view.number} yet.")

    def _fenced(self, worker: str, incarnation: int) -> Fenced:
        seat = self._clocks.seat(worker)
        why = "it was expelled" if seat is None else f"incarnation {seat.incarnation} has its seat"
        return Fenced(f"{worker} (incarnation {incarnation}) does not count any more: {why}. Join again.")
