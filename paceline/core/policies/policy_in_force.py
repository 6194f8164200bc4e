"""The policy in force: the run's first one, or the one of the newest change of policy."""

from collections.abc import Collection

from paceline.core.errors import Behind
from paceline.core.policies.policy import Policy, build_policy
from paceline.core.settings.config import Options
from paceline.core.values import Switch


class PolicyInForce:
    """Tracks the policy of a slice, a worker or the evaluator. Each hears of a change many times and applies it once. Not
    thread-safe."""

    def __init__(self, policy: Policy, change: Switch | None = None) -> None:
        """`policy`: the run's first; `change`: the last one made before this process begins."""
        self.policy = policy
        self.made: Switch | None = None
        """The change that brought the policy; None: it is the run's first."""
        if change is not None:
            self.adopt(change)

    @property
    def number(self) -> int:
        """Changes so far."""
        return 0 if self.made is None else self.made.number

    @property
    def may_change(self) -> bool:
        """Whether it is the run's first one, which chooses another if that is better."""
        return self.made is None and bool(self.policy.alternatives)

    def is_new(self, change: Switch) -> bool:
        """Whether this process has not made the change yet."""
        return self.made is None or change.number > self.made.number

    def check_level(self, versions: Collection[int]) -> None:
        """Behind where, in rounds, a worker has weights of different versions. It computes a round again that some slices have
        closed, and the others of its round have gone on there meanwhile: its next gradient would be that of no round."""
        if self.policy.rounds and len(set(versions)) > 1:
            raise Behind(
                f"The servers gave out weights of rounds {', '.join(map(str, sorted(set(versions))))}; a gradient needs those "
                "of one round."
            )

    def adopt(self, change: Switch) -> bool:
        """Applies the change's policy from now on; False if that one, or a newer one, is already in force."""
        if not self.is_new(change):
            return False
        self.policy = build_policy(Options(**change.policy))
        self.made = change
        return True
