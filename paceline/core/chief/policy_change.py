"""Changes the policy during a run: which policy trains now, and which one may follow."""

from paceline.core.chief.membership import Membership
from paceline.core.errors import ConfigError
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import build_policy
from paceline.core.setting_rules.check_rules import always_chosen, check
from paceline.core.settings.config import Config, Options


class PolicyChange:
    """Accepts a policy that may follow, and has the membership name the clocks for it
    (docs/understand/rounds.md#changes-of-policy). The view keeps the change, and `restore` reads
    the policy from it. Not thread-safe."""

    def __init__(self, config: Config, membership: Membership) -> None:
        self._config = config
        self._membership = membership
        self.policy = config.policy
        """The policy that trains now, or that begins once all members have reached the clock named for it."""

    @property
    def is_under_way(self) -> bool:
        """Whether members are on their way to the clock at which a new policy begins."""
        return self._membership.is_switching

    @property
    def goes_back(self) -> bool:
        """Whether what begins there are older weights."""
        switch = self._membership.view.switch
        return self.is_under_way and switch is not None and bool(switch.back)

    def begin(self, policy: Options, clocks: Clocks) -> None:
        """Names the clocks at which `policy` takes over. ConfigError if it conflicts with the run's other settings."""
        self.policy = self.checked(policy)
        self._membership.switch(self.policy.model_dump(), clocks)

    def roll_back(self, back: tuple[int, ...], rate: float, clocks: Clocks) -> int:
        """Names the clocks at which the present policy begins again, on older weights and at another rate (see `Switch`),
        and returns the version at which it does."""
        return self._membership.switch(self.policy.model_dump(), clocks, rate, back)

    def end(self) -> None:
        """The new policy has begun on every slice."""
        self._membership.end_switch(build_policy(self.policy).rounds)

    def restore(self) -> None:
        """Continues from the restored view."""
        switch = self._membership.view.switch
        if switch is not None:
            self.policy = Options(**switch.policy)

    def checked(self, policy: Options) -> Options:
        """The policy, its options checked; ConfigError if it can't train this run."""
        if not self._config.servers:
            raise ConfigError(
                "A run without servers keeps its policy: its workers can't change it while they train. Start a new run."
            )
        new = build_policy(policy)
        changed = self._config.model_copy(update={"policy": policy})
        check(changed, always_chosen(changed))  # all of them: a codec's or an optimizer's rule may be about the policy
        return Options(name=policy.name, **new.model_dump(by_alias=True, exclude_unset=True))
