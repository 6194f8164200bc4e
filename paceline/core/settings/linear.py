"""The settings of a linear model over sparse rows."""

from typing import Annotated, Literal

from pydantic import Field

from paceline.core.extension import Section
from paceline.core.linear.objective import Objective
from paceline.core.linear.stopping import Stopping

FITTED_PUSH = 256
"""Examples of a push of fitted steps, all workers together."""
FEW, MANY = 4, 16
"""Up to the first number of workers a task's epochs are enough for fitted steps; beyond the second they grow no more
(measured to 16)."""
ClassWeight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SvmConfig(Section):
    """A linear model over sparse rows, where `updates` is sparse [Hogwild]."""

    objective: Objective = Objective()
    positive: str | None = Field(
        None,
        coerce_numbers_to_str=True,
        description="The class or topic that is +1, all others -1; default: CCAT of RCV1, the larger of two labels.",
    )
    batches: int | None = Field(
        None,
        ge=1,
        description="Mini-batches in one push, K; default: see docs/choose/linear-models.md.",
    )
    pull: Literal["changed", "wanted"] = Field(
        "changed",
        description="What a reply brings: all weights that have changed, or only those of the next push's batches.",
    )
    steps: Literal["plain", "fitted"] = Field(
        "plain",
        description="plain: as in [Hogwild]; fitted: the rate fits any rows and workers (see "
        "docs/choose/linear-models.md).",
    )
    intercept: bool = Field(False, description="Whether the model has one; pulled towards zero as a weight is.")
    class_weights: Literal["balanced"] | dict[str, ClassWeight] | None = Field(
        None,
        description="What an error costs by class: {'3': 5} (others: 1), or balanced: N / (classes x examples of the "
        "class).",
    )
    validation: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="Share of each shard that its worker keeps for validation (ratio); default: 0.1 with a stopping "
        "rule, or 0.",
    )
    stopping: Stopping | None = Field(None, description="Ends training early, by the validation loss after each epoch.")
    stop: Literal["own", "all"] = Field(
        "own", description="Who stops early: each worker by its own loss, or all together by the mean of theirs."
    )
    average_from: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="Score and write the mean of the versions since this epoch; default: see average_last.",
    )
    average_last: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Score and write the mean of the versions of this last share of the run (ratio); default: no mean.",
    )

    @property
    def held_out(self) -> float:
        """Share of each shard that its worker keeps (ratio)."""
        if self.validation is None:
            return 0.0 if self.stopping is None else 0.1
        return self.validation

    def slowdown(self, workers: int) -> float:
        """Factor on the epochs of up to four workers that this many need: many small moves converge more slowly
        [ours, measured: docs/choose/linear-models.md]."""
        return max(FEW, min(workers, MANY)) / FEW if self.steps == "fitted" else 1.0

    def judges(self, epoch: int, epochs: int) -> bool:
        """Whether a stopping rule looks at the loss at the end of this epoch (from 0) of `epochs`."""
        return self.stopping is not None and self.stopping.looks_at(epoch, epochs, self.steps == "fitted")

    def own_batches(self, workers: int, batch_size: int, each: bool) -> int:
        """The mini-batches of a push if `batches` does not set them. `each`: a push of plain steps or gradients is of one,
        since workers wait for one another, or since servers step."""
        if self.steps == "fitted":
            return max(1, FITTED_PUSH // (workers * batch_size))
        return 1 if each else max(1, min(16, 32 // workers))

    def mean_from(self, epochs: int) -> float | None:
        """The first of `epochs` epochs whose versions the mean takes in; None if there is no mean."""
        if self.average_from is not None or self.average_last is None:
            return self.average_from
        return epochs * (1 - self.average_last)
