"""How much a run trains: what an epoch is, how many examples have been counted, and which clock is a worker's last."""

import math
from collections.abc import Collection
from typing import Any, NamedTuple

from paceline.core.errors import ConfigError, DataError
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config, Options

OWN_BATCHES = "own batches"
"""The fingerprint of data that nobody knows: scripts draw their own mini-batches, and an epoch is one step of all workers."""


def all_but(left: Collection[str], examples: int, total: int, steps: int, early: Collection[str] = ()) -> str:
    """Returns why a run is over whose workers have all finished but those that are `left`, and what of the `total` that leaves
    out.

    `steps`: of each worker, where the run counts them; `early`: who has left its loop early."""
    who = f"every worker but {', '.join(left)}" if left else "every worker"
    unit, missing = "steps" if steps else "examples", total - examples
    of = f"; {missing:,} of all workers' {total:,} {unit} were left out" if (left or early) and missing > 0 else ""
    loops = f", {', '.join(early)} by leaving its loop early" if early else ""
    return f"{who} has finished its {'steps' if steps else 'epochs'}{loops}{of}"


class Milestones(NamedTuple):
    """Trained examples of the chief's slice at which the chief looks at it; infinite: none."""

    score: float = math.inf
    """Where a score is due."""
    end: float = math.inf
    """Where the run may end: the slice counts nothing more before the chief has looked."""
    ahead: int = 0
    """How many rounds come before one that can be named as the last; each is taken to be as large as the last one."""

    def may_end(self, clocks: Clocks) -> bool:
        """Whether the slice has come to where the run may end."""
        return clocks.trained + round(self.ahead * clocks.round_examples) >= self.end


class Budget:
    """Keeps the facts of the data that all workers agree on, and counts trained examples. Not thread-safe."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.examples_per_epoch = 0
        """0 until a worker has reported it."""
        self.steps_per_epoch = 0
        self._fingerprint = ""
        """The fingerprint of the shards' data."""
        self.examples = 0
        """Counted so far, all workers together."""
        self._goal = config.epochs
        """The epochs that the run's ends are named for."""

    def agree(self, worker: str, examples: int, steps: int, fingerprint: str) -> None:
        """A worker reports its shards' total examples and steps per epoch; the first worker's values become the run's.
        DataError if another worker's differ, ConfigError if there are none."""
        before = (self.examples_per_epoch, self.steps_per_epoch, self._fingerprint)
        if self.examples_per_epoch and (examples, steps, fingerprint) != before:
            what, todo = "shards", "Point all workers at the same shards."
            if self._config.is_script:
                what = "data"
                todo = (
                    "It has another data set, another split of it, or a sampler that draws other rows; a run that is resumed "
                    "keeps its own. Seed what is drawn at random: random_split(..., generator=torch.Generator()"
                    ".manual_seed(0)), or take paceline.split; a sampler of your own must draw the same in all workers."
                )
            raise DataError(
                f"{worker} trains on other {what}: {examples:,} examples in {steps:,} steps an epoch, the run has "
                f"{self.examples_per_epoch:,} in {self.steps_per_epoch:,}. {todo}"
            )
        if not examples:
            raise ConfigError(f"{worker} has no training examples; write shards first: paceline shard.")
        self.examples_per_epoch = examples
        self.steps_per_epoch = steps
        self._fingerprint = fingerprint

    @property
    def total(self) -> int:
        """Examples that the run is to train, over all workers; 0 until the length of an epoch is known."""
        return self._config.epochs * self.examples_per_epoch

    @property
    def steps(self) -> int:
        """Steps of each worker, where these are what the run counts; otherwise 0."""
        return self._config.epochs if self._fingerprint == OWN_BATCHES else 0

    @property
    def share(self) -> float:
        """The trained part of the budget (ratio)."""
        return min(1.0, self.examples / self.total) if self.total else 0.0

    @property
    def end(self) -> float:
        """The examples that end the run; infinite if they don't."""
        return self.total if self._config.budget == "total" and self.total else math.inf

    def is_spent(self, more: int = 0) -> bool:
        """Whether all examples of the budget are trained once `more` are, if they are what ends the run."""
        return self.end <= self.examples + more

    @property
    def epochs(self) -> float:
        """Epochs counted over all workers, with a fraction for the present one."""
        return self.examples / self.examples_per_epoch if self.examples_per_epoch else 0.0

    @property
    def epoch(self) -> int:
        """Whole epochs counted over all workers."""
        return self.examples // self.examples_per_epoch if self.examples_per_epoch else 0

    @property
    def has_grown(self) -> bool:
        """Whether the run was given more epochs since its ends were named, or were to be."""
        return self._config.epochs > self._goal

    def take_goal(self) -> None:
        """From now on ends are named for the epochs in the settings."""
        self._goal = self._config.epochs

    def last_clock(self, policy: Options) -> int | None:
        """The last clock of each worker, if each has its own budget; a policy's clock may span several steps. None for a
        script, which may step several times for a mini-batch: it finishes by itself."""
        if self._config.budget != "per_worker" or self._config.is_script:
            return None
        return -(-self._config.epochs * self.steps_per_epoch // build_policy(policy).most_steps)

    def state(self) -> dict[str, Any]:
        """The state as plain JSON values; the chief's slice counts the examples."""
        return {"facts": [self.examples_per_epoch, self.steps_per_epoch, self._fingerprint], "goal": self._goal}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from `state`."""
        self._goal = state.get("goal", self._goal)
        examples, steps, fingerprint = state["facts"]
        self.examples_per_epoch = examples
        self.steps_per_epoch = steps
        self._fingerprint = fingerprint
