"""Whole runs in forked processes: what the recipes of codecs and the benchmark of links train in."""

import pytest

from paceline.core.errors import TryAgain
from paceline.core.settings.config import Config
from paceline.tasks.task import load_config
from paceline_papers.reproduce.processes import run


def digits(policy: str) -> Config:
    own = {"task": "digits", "policy": policy, "workers": 2, "servers": 2 if policy == "bsp" else 0, "epochs": 1}
    return load_config(overrides=own)


@pytest.mark.nightly  # by day test_exchanges.py has such processes
@pytest.mark.parametrize("policy", ["bsp", "adpsgd"])
def test_a_run_in_processes_trains_on_loopback_too(policy: str) -> None:
    found = run(digits(policy))
    assert len(found.workers) == 2
    assert found.outcome.history[-1].final
    assert all(worked.steps > 0 and 0 < worked.idle < worked.seconds for worked in found.workers)
    assert [worked.traffic for worked in found.workers] == [None, None]


def test_a_process_that_fails_ends_the_run_with_its_name() -> None:
    with pytest.raises(TryAgain, match="worker-0 ended early; its own message is above"):
        run(digits("bsp").model_copy(update={"batch_size": 100_000}))
