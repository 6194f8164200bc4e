"""The policy that is in force: the run's first one, or what the newest change of policy has brought."""

from paceline.core.settings.config import Options
from paceline.core.sync.policy import Policy, build_policy
from paceline.core.values import Switch


class PolicyInForce:
    """What a slice, a worker or the evaluator goes by. Each is told of a change many times, and takes it over once. Not
    thread-safe."""

    def __init__(self, policy: Policy, change: Switch | None = None) -> None:
        """`policy`: the run's first; `change`: the one that has been made when this process begins."""
        self.policy = policy
        self.made: Switch | None = None
        """The change that brought the policy; None: it is the run's first."""
        if change is not None:
            self.adopt(change)

    @property
    def number(self) -> int:
        """Changes so far."""
        return 0 if self.made is None else self.made.number

    def is_new(self, change: Switch) -> bool:
        """Whether this process has not made the change yet."""
        return self.made is None or change.number > self.made.number

    def adopt(self, change: Switch) -> bool:
        """Goes by the policy that the change brings from now on; False where that, or a newer one, is in force already."""
        if not self.is_new(change):
            return False
        self.policy = build_policy(Options(**change.policy))
        self.made = change
        return True
