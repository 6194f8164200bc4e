"""Auto: lock-step, until a policy that waits less trains clearly faster."""

from typing import ClassVar, Literal

from pydantic import Field

from paceline.core.policies.builtin.bsp import Bsp


class Auto(Bsp):
    """Begins as `bsp`, with its bits. The chief watches what waiting costs, and changes the policy while the run trains, and
    back (core/chief/policy_choice.py): a bound helps against random delays, but a worker that is slow for good uses it up;
    own steps make exchanges rare. Ours."""

    waits_on: ClassVar[Literal["any push", "version", "slowest"]] = "version"
    alternatives: ClassVar[tuple[str, ...]] = ("ssp:3", "kbuffered", "local_sgd:8")
    shorthand: ClassVar[str | None] = "mode"
    mode: Literal["live", "exact"] = Field(
        "live", description="exact: stays in lock-step, and says what another policy would give."
    )

    @property
    def stays(self) -> bool:
        return self.mode == "exact"
