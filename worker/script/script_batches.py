"""The mini-batches of a script's worker as its training loop sees them: the script draws them, one after the other."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from paceline.core.chief.leases import NOTHING
from paceline.core.policies.policy import Policy
from paceline.core.values import Position
from paceline.worker.script.mini_batches import MiniBatches
from paceline.worker.training.step_result import Step
from paceline.worker.training.training_state import Batches
from paceline.worker.training.way import Item, Items


@dataclass(kw_only=True)
class ScriptBatches(Batches):
    """Passes by what has no rows; for all others the script computes a gradient."""

    mini_batches: MiniBatches
    place: int
    """This worker's among all."""
    ends_by_itself: Callable[[], bool]
    """Whether the script ends where nothing is left."""

    def of(self, clock: int, policy: Policy, speed: float) -> Items:
        upcoming = self.mini_batches.upcoming()
        return Items(self._items(clock, policy, policy.local_steps(speed)), upcoming.has)

    def _items(self, clock: int, policy: Policy, steps: int) -> Iterator[Item]:
        first = (clock - 1) * policy.most_steps + 1
        for number in range(first, first + steps):
            at, seed = self.mini_batches.upcoming(), (self.place, number)
            if at.stream != NOTHING:
                self.epoch = at.row // self.streams.steps
                if not self.streams.examples(at.stream, at.row):
                    self.mini_batches.pass_by()
                yield Item(at.stream, at.row, seed)
            elif self.ends_by_itself():
                yield Item(self.place, 0, seed)  # any that has rows: the script is asked, and ends
            else:
                self.mini_batches.pass_by()
                self.idle(policy)

    def position(self, step: Step | None) -> Position | None:
        """Examples that train nothing don't count."""
        found = None if step is None else step.position
        if step is None or found is None:
            return Position(self.mini_batches.counts.done, 0)
        return found if step.finite and step.examples else found._replace(examples=0)
