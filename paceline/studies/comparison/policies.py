"""Policies on one task as runs: one for each policy and seed."""

import re
from collections.abc import Callable, Sequence

from paceline.base.intervals import FEWEST
from paceline.core.errors import UsageError
from paceline.core.settings.config import Config
from paceline.launch.folder.series import series
from paceline.studies.search.scheduler import Point

POLICY = "policy"
OF_A_RUN = ("policy", "topology", "servers", "seed", "run")
"""Settings in which the runs of a comparison differ."""


def read_policies(text: str) -> list[str]:
    """'bsp,ssp:3' as a list. UsageError where it names less than two, or one twice."""
    found = [each.strip() for each in text.split(",") if each.strip()]
    twice = next((each for each in found if found.count(each) > 1), None)
    if twice is not None:
        raise UsageError(f"--policies {text}: {twice} is in the list twice; --seeds says how often each is trained.")
    if len(found) < 2:
        raise UsageError(f"--policies {text}: expected two or more, separated by commas, like bsp,ssp:3,asp.")
    return found


def points_of(policies: Sequence[str], seeds: int, read: Callable[[str], Config]) -> list[Point]:
    """The runs; those of a seed come one after the other, so that there are soon some to compare. `read`: the settings under
    a policy. UsageError: no seeds; ConfigError: wrong settings."""
    if seeds < 1:
        raise UsageError(
            f"--seeds {seeds}: expected 1 or more; from {FEWEST} on runs can tell a difference from noise."
        )
    runs = [series(read(policy).model_copy(update={"run": _slug(policy)}), seeds) for policy in policies]
    pairs = [pair for each in zip(*runs, strict=True) for pair in zip(policies, each, strict=True)]
    return [
        Point(number, {POLICY: policy, "seed": config.seed}, [config])
        for number, (policy, config) in enumerate(pairs, 1)
    ]


def _slug(policy: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", policy.lower()).strip("-")
