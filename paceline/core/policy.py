"""A policy answers: when may a worker go on, how do pushes fold in, how do pulls mix back?"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from paceline.core import registry
from paceline.core.clocks import Clocks
from paceline.core.config import Options
from paceline.core.errors import ConfigError
from paceline.core.optimizer import Optimizer
from paceline.core.values import Outcome, Push, Update, Vector, Verdict

PACKAGE = "paceline.core.policies"


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """The pushes of one fold: their sum, and the factor that makes it the gradient (1 / examples of a mean)."""

    total: Vector
    scale: float
    pushes: int
    examples: int


class Policy(BaseModel, ABC):
    """One synchronisation policy, both halves. Fields are its options; one instance serves one slice or one worker.
    Not thread-safe: whoever drives the slice serialises calls."""

    model_config = ConfigDict(extra="forbid")
    shorthand: ClassVar[str | None] = None
    """The option that 'name:value' sets on the command line."""
    rounds: ClassVar[bool] = False
    """Whether pushes belong to rounds that close together: then progress is the round's number."""

    # server half, once for each slice
    def admit(self, push: Push, clocks: Clocks) -> Verdict:
        """FOLDED: fold it now. BUFFERED: keep it in the sum until `is_due`. DROPPED: don't use it."""
        return Verdict(Outcome.FOLDED)

    def observe(self, push: Push, clocks: Clocks) -> None:
        """Takes note of a push that has just been counted; the only place where a policy changes its state."""

    def is_due(self, clocks: Clocks) -> bool:
        """Whether the buffered pushes fold now."""
        return False

    def fold(
        self, weights: Vector, out: Vector, gathered: Gathered, optimizer: Optimizer, lr: float, slots: Sequence[Vector]
    ) -> None:
        """Writes the next version of the weights to `out` (which may be `weights`): one optimizer step by default."""
        optimizer.step(weights, out, gathered.total, gathered.scale, lr, slots)

    @abstractmethod
    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        """Whether the worker's reply goes out now. Asked again for waiting workers, so it changes nothing."""

    # worker half
    takes_local_step: ClassVar[bool] = False
    """Whether the worker makes its own plain step before it mixes (law 5)."""

    def outgoing(self, gradient: Update, local: Vector) -> Update:
        """What the worker pushes."""
        return gradient

    def alpha(self, others: int | None, members: int) -> float:
        """Weight of the pulled weights in the worker's local model: 1 copies, 0 leaves local alone.
        `others`: pushes by others since this worker's last one, None for its first push after a join."""
        return 1.0

    # snapshots
    def state(self) -> dict[str, Any]:
        """What a snapshot must hold beside the options: plain JSON values."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes back what `state` gave."""


def build_policy(options: Options) -> Policy:
    """The policy that the config names, its options checked."""
    return registry.build(PACKAGE, Policy, options.name, options.options, "policy")


def from_shorthand(text: str) -> dict[str, Any]:
    """'ssp:3' as {'name': 'ssp', 'bound': 3}; ConfigError where the policy has no such short form."""
    name, colon, value = text.partition(":")
    kind = registry.find(PACKAGE, Policy, name)
    if not colon:
        return {"name": name}
    if kind.shorthand is None:
        raise ConfigError(f"--policy {text}: {name} takes no value after ':'.")
    return {"name": name, kind.shorthand: value}
