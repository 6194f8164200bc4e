"""The server's half of the policy that is in force, and all that hangs on it."""

from paceline.core.settings.config import ScheduleConfig
from paceline.core.slice.rate import Rate
from paceline.core.steps.effective import Pool, effective, scheduled
from paceline.core.steps.optimizer import Optimizer
from paceline.core.sync.policy import Policy
from paceline.core.sync.policy_in_force import PolicyInForce
from paceline.core.values import Switch, Vector


class ServerHalf(PolicyInForce):
    """With the policy go the optimizer, what that remembers, and the learning rate. Not thread-safe."""

    optimizer: Optimizer
    """What the slice folds with; the rate comes from `rate`."""
    rate: Rate

    def __init__(
        self,
        length: int,
        policy: Policy,
        asked: Optimizer,
        schedule: ScheduleConfig,
        epochs: float,
        pool: Pool | None,
    ) -> None:
        """`length`: values of the slice. `asked`: the run's optimizer. The others as `ModelSlice` takes them."""
        super().__init__(policy)
        self._length = length
        self._asked = asked
        self._schedule = schedule
        self._epochs = epochs
        self._pool = pool
        self.slots: list[Vector] = []
        """What the optimizer remembers. It stays where the next policy's optimizer has as many."""
        self.steps = 0
        """Optimizer steps taken."""
        self._begin()

    def adopt(self, change: Switch) -> bool:
        is_new = super().adopt(change)
        if is_new:
            self._begin()
        return is_new

    def _begin(self) -> None:
        """All that hangs on the policy, anew."""
        asked, policy = self._asked, self.policy
        self.optimizer = policy.server_optimizer(effective(self._pool, asked, policy))
        if len(self.slots) != self.optimizer.slots:
            self.slots = self.optimizer.new_slots(self._length)
        self.rate = Rate(scheduled(self._schedule, self._epochs, self._pool, asked, policy), asked.lr)
