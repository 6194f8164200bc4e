"""SHAT-Root: SHAT with sqrt n in place of ln n."""

from typing import Literal

from pydantic import Field

from paceline.core.policies.builtin.shat import Shat


class ShatRoot(Shat):
    """a = clip(1 - 1 / (s sqrt n), alpha_min, 1) [SHAT eq. 4, its variant]."""

    variant: Literal["log", "root"] = Field("root", description="Denominator: sqrt n, or ln n (SHAT).")
