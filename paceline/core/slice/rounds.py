"""Decides when pushes fold together: a round is complete, or a sum is large enough."""

from paceline.core.policies.clocks import Clocks
from paceline.core.slice.folding import Folding
from paceline.core.slice.server_half import ServerHalf
from paceline.core.values import Push


class Rounds:
    """Gathers pushes in the folding's sum until the policy folds it. Does nothing for policies that fold each push by
    itself, since they have no sum. Not thread-safe."""

    def __init__(self, clocks: Clocks, half: ServerHalf, folding: Folding) -> None:
        self._clocks = clocks
        self._half = half
        self._folding = folding
        self.open_from: int | None = None
        """No round at or above this one closes while it is set: something is on its way to the other servers."""

    @property
    def is_open(self) -> bool:
        """Whether some counted pushes are not folded yet."""
        gathered = self._folding.sum
        return gathered is not None and gathered.open_examples > 0

    @property
    def stays_open(self) -> bool:
        """Whether the open round has to wait for the other servers."""
        return self.open_from is not None and self._clocks.version + 1 >= self.open_from

    def keep_open(self, first: int | None) -> None:
        """Keeps rounds from `first` on open until called with a later one, or with None."""
        self.open_from = first

    def add(self, push: Push, staleness: int) -> None:
        """Gathers a push."""
        gathered = self._folding.sum
        if gathered is not None:
            if self._half.policy.gathers:  # a snapshot holds this sum
                self._half.copies.finish()
            gathered.add(push, self._half.policy.weight(staleness))
            self._clocks.buffered = gathered.pushes

    def close_due(self) -> None:
        """Folds complete rounds, and sums that are large enough or that no worker will add to."""
        gathered = self._folding.sum
        if gathered is None:
            return
        clocks = self._clocks
        policy = self._half.policy
        if policy.rounds:
            if clocks.members:
                gathered.advance(clocks.in_order(), self._has_pushed)
                while policy.is_due(clocks) and not self.stays_open:
                    self.close()
        elif policy.is_due(clocks) or (gathered.pushes and all(map(clocks.is_done, clocks.members))):
            self.close()

    def close(self) -> None:
        """Folds the gathered pushes now."""
        self._folding.close()
        self._clocks.buffered = 0
        self._clocks.close_round()

    def next_in_order(self) -> str | None:
        """The worker whose push a round's sum waits for; None without rounds."""
        gathered = self._folding.sum
        return None if gathered is None else gathered.next_in_order(self._clocks.in_order(), self._has_pushed)

    def needs(self, worker: str) -> bool:
        """Whether the values that this worker pushed last are still needed."""
        gathered = self._folding.sum
        return gathered is not None and gathered.needs(worker)

    def _has_pushed(self, worker: str) -> bool:
        """Whether the open round waits for nothing more from the member."""
        return self._clocks.progress(worker) > self._clocks.version or self._clocks.is_done(worker)
