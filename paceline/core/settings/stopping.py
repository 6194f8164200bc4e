"""When a run ends early, by its scores."""

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
