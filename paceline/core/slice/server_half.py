"""The server's half of the policy that is in force, and all that hangs on it."""

from paceline.core.settings.config import Options, ScheduleConfig
from paceline.core.slice.rate import Rate
from paceline.core.steps.effective import Pool, effective, scheduled
from paceline.core.steps.optimizer import Optimizer
from paceline.core.sync.policy import Policy, build_policy
from paceline.core.values import Switch, Vector


class ServerHalf:
    """What a slice goes by under the present policy: the optimizer, what that remembers, the learning rate. Not
    thread-safe."""

    policy: Policy
    optimizer: Optimizer
    """What the slice folds with; its rate is `rate`'s affair."""
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
        self._length = length
        self._asked = asked
        self._schedule = schedule
        self._epochs = epochs
        self._pool = pool
        self.made: Switch | None = None
        """The change that brought the policy; None: it is the run's first."""
        self.slots: list[Vector] = []
        """What the optimizer remembers. It stays where the next policy's optimizer has as many."""
        self.steps = 0
        """Optimizer steps taken."""
        self._begin(policy)

    def adopt(self, change: Switch) -> None:
        """Goes by another policy from now on."""
        self._begin(build_policy(Options(**change.policy)))
        self.made = change

    def is_new(self, change: Switch) -> bool:
        """Whether the slice has not made this change of policy yet."""
        return self.made is None or change.number > self.made.number

    def _begin(self, policy: Policy) -> None:
        asked = self._asked
        self.policy = policy
        self.optimizer = policy.server_optimizer(effective(self._pool, asked, policy))
        if len(self.slots) != self.optimizer.slots:
            self.slots = self.optimizer.new_slots(self._length)
        self.rate = Rate(scheduled(self._schedule, self._epochs, self._pool, asked, policy), asked.lr)
