"""Whole runs in forked processes: what the recipes of codecs and the benchmark of links train in."""

from typing import Any

import pytest

from paceline.core.errors import TryAgain
from paceline.core.settings.config import Config
from paceline.tasks.task import load_config
from paceline_papers.reproduce.processes import run
from paceline_papers.reproduce.recipes.ours.codecs import config_of


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


@pytest.mark.nightly  # real processes, whose codecs have their properties tested by day
@pytest.mark.parametrize(
    ("codec", "epochs"),
    [({"push": "powersgd"}, 3), ({"push": "topk", "momentum": 0.9, "warmup_epochs": 2}, 5)],
    ids=["powersgd", "dgc, past its warm-up"],
)
def test_a_run_of_the_digits_with_servers_learns(codec: dict[str, Any], epochs: int) -> None:
    assert run(config_of(codec, workers=2, epochs=epochs)).outcome.metrics["test_accuracy"] > 0.85


def test_a_process_that_fails_ends_the_run_with_its_name() -> None:
    with pytest.raises(TryAgain, match="worker-0 ended early; its own message is above"):
        run(digits("bsp").model_copy(update={"batch_size": 100_000}))
