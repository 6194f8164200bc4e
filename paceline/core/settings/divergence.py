"""What a run does when its loss explodes or is no number any more."""

from pydantic import Field

from paceline.core.extension import Section


class DivergenceConfig(Section):
    """Goes back to older weights when training diverges, and goes on at a lower rate (see docs/failures/warnings.md)."""

    rollbacks: int = Field(
        3,
        ge=0,
        le=100,
        description="Times that a run goes back before it gives up; 0: it only warns, and ends without finite gradients.",
    )
    factor: float = Field(
        0.5, gt=0, le=1, description="What the learning rate is multiplied by each time that the run goes back (ratio)."
    )
