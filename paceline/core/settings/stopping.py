"""When a run ends early, by its scores, and what it does when training diverges."""

from typing import Literal

from pydantic import Field

from paceline.core.extension import Section


class StoppingConfig(Section):
    """Ends a run early by the measure that chooses its best model, on validation data (without any: on training data)."""

    rule: Literal["window", "delta", "target"] = Field(
        "window",
        description="window: no better score for a while; delta: two scores in a row are close; target: good enough.",
    )
    patience: int = Field(5, ge=1, description="Scores in a row without a better one, for window.")
    min_delta: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="What a score must be better by to count as better, for window."
    )
    delta: float = Field(
        1e-3, gt=0, allow_inf_nan=False, description="Two scores that differ by less than this are close, for delta."
    )
    target: float | None = Field(None, allow_inf_nan=False, description="The score that is good enough, for target.")


class DivergenceConfig(Section):
    """Goes back to older weights when training diverges, and goes on at a lower rate (see docs/failures/warnings.md)."""

    rollbacks: int = Field(
        3,
        ge=0,
        le=100,
        description="Times that a run goes back before it gives up; 0: it ends where no gradient is finite.",
    )
    factor: float = Field(
        0.5, gt=0, le=1, description="What the learning rate is multiplied by each time that the run goes back (ratio)."
    )
    losses: bool = Field(
        False,
        description="Whether a run also goes back for losses and gradients that explode, not only where none is finite.",
    )
