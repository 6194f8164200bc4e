"""What is left of workers' time where they come and go, in virtual time: newcomers come more often than a round, or a step, is
long."""

import pytest

from benchmarks.churn import goodput
from paceline_studies.simulator.scene import Scene

ONE_IN_THREE = {"away": "1/2m:1m", "jitter": 0.05}
"""Each worker, for a minute every two: of 64, one comes back every three seconds."""


@pytest.mark.parametrize(
    ("policy", "least"), [("asp", 0.95), ("ssp:3", 0.7), ("bsp", 0.8), ("local_sgd:4", 0.75), ("local_sgd:16", 0.5)]
)
def test_newcomers_that_come_more_often_than_a_round_lasts_stop_nobody(policy: str, least: float) -> None:
    assert goodput(policy, 64, Scene(step=4.0, **ONE_IN_THREE), 100, 2) > least


def test_where_nobody_goes_little_is_lost() -> None:
    assert goodput("asp", 8, Scene(step=4.0, jitter=0.0), 100) == pytest.approx(1, abs=0.01)
