"""Changes a slice's policy during a run (docs/understand/rounds.md#changes-of-policy)."""

from paceline.core.policies.clocks import Clocks
from paceline.core.slice.folding import Folding
from paceline.core.slice.recovery import Recovery
from paceline.core.slice.rounds import Rounds
from paceline.core.slice.server_half import ServerHalf
from paceline.core.slice.state import SliceState
from paceline.core.values import Switch, View


class PolicySwitch:
    """A view names the change and a switch clock for each member. Once all members have reached theirs, the new policy
    begins, with all members level and the same version on all slices. A change that goes back to older weights
    (paceline/core/chief/rollback.py) also waits for these. Not thread-safe."""

    def __init__(self, clocks: Clocks, half: ServerHalf, rounds: Rounds, folding: Folding, recovery: Recovery) -> None:
        self._clocks = clocks
        self._half = half
        self._rounds = rounds
        self._folding = folding
        self._recovery = recovery
        self._held: tuple[int, SliceState | None] = (0, None)
        """The change whose weights are here, and these; None: none can be had, and the present ones stay."""

    def hold(self, number: int, state: SliceState | None) -> None:
        """Takes the snapshot that the change with this number goes back to, or that there is none."""
        self._held = number, state

    @property
    def lacks(self) -> Switch | None:
        """A change that waits for older weights."""
        view = self._clocks.view
        return next((each for each in (view.made, view.switch) if each is not None and self._lacks(each)), None)

    @property
    def is_late(self) -> bool:
        """Whether the others have made a change while this server was away, and its older weights are not here yet: those that
        are here are of no use to anybody."""
        made = self._clocks.view.made
        return made is not None and self._lacks(made)

    def _lacks(self, change: Switch) -> bool:
        return bool(change.back) and self._half.is_new(change) and self._held[0] < change.number

    def take_view(self, view: View) -> None:
        """Takes a view. If the view is older than a change that the slice has made, reads it as one after the change."""
        has_begun = view.switch is not None and not self._half.is_new(view.switch)
        self._clocks.take_view(view.begun() if has_begun else view)
        self._half.rate.members(len(view.seats))

    def make_due(self) -> None:
        """Begins the policies that the view names: at once if the others changed while this server was away, otherwise as soon
        as every member has done its last clock under the old policy."""
        view, half = self._clocks.view, self._half
        if view.made is not None and half.is_new(view.made):
            self._make(view.made)
        newest = view.switch
        if newest is not None and half.is_new(newest) and (newest == view.made or self._are_done(view)):
            self._make(newest)

    def _are_done(self, view: View) -> bool:
        return all(seat.switch_clock is None or self._clocks.is_done(worker) for worker, seat in view.seats.items())

    def _make(self, change: Switch) -> None:
        """False while a round that is not folded yet has to stay open."""
        clocks, half, rounds = self._clocks, self._half, self._rounds
        if self._lacks(change):
            return
        if rounds.is_open:  # a round that stays open, or a snapshot's partial sum
            if half.policy.rounds and rounds.stays_open:
                return
            rounds.close()
        half.adopt(change)
        self._folding.begin()
        clocks.buffered = 0
        self.take_view(clocks.view)
        clocks.forget_pushes()
        clocks.version = max(clocks.version, change.version, clocks.slowest() if half.policy.rounds else 0)
        self._folding.renumber()
        number, state = self._held
        if number == change.number and state is not None:
            self._recovery.go_back(state)
            half.rate.members(len(clocks.view.seats))
        self._held = self._held[0], None
