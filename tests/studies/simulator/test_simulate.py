"""`paceline simulate`: what it takes, what it refuses, and what it says."""

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.cli.__main__ import app
from paceline.studies.simulator.simulate import shown
from paceline.studies.simulator.timing import WorkerTimes

SIZED = ["--weights", "1000", "--examples", "4000"]
"""No data is read, and torch is not needed."""

WHOLE = (
    "--speeds 1x,2x --step 5ms --jitter 0 --stragglers 10x@5%:2 --away worker-1@1s:1s --link 1Gbit,1ms "
    "--link worker-0=10Mbit --unshared --server-time 1ms,2ms"
)


def said(*words: str) -> str:
    found = CliRunner().invoke(app, ["simulate", *words], env={"COLUMNS": "200"})
    assert found.exit_code == 0, found.output
    return found.output


def refused(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["simulate", *words], env={"COLUMNS": "200"})
    return found.exit_code, " ".join(found.output.split())


def facts(*words: str) -> dict[str, Any]:
    return dict(json.loads(said(*words, "--json")))


def test_a_task_is_simulated_with_gradients_where_nobody_says_more() -> None:
    text = said("digits", "--policy", "ssp:3", "--epochs", "2")

    assert "real gradients" in text
    assert re.search(r"test accuracy 0\.[5-9]", text)
    assert all(f"worker-{rank}" in text for rank in range(4))


def test_a_size_is_enough_for_timing() -> None:
    found = facts("digits", "-w", "2", "-s", "1", "--policy", "bsp", "--speeds", "HE0", "--step", "10ms", *SIZED)

    assert found["policy"] == {"name": "bsp"}
    assert found["measures"] == {}
    assert found["scene"]["speeds"] == "HE0"
    slow = found["workers"][1]
    assert slow["compute"] / slow["clock"] == pytest.approx(0.02, rel=0.05)
    assert found["throughput"] == pytest.approx(found["examples"] / found["seconds"])


def test_all_of_a_scene_can_be_said() -> None:
    found = facts("digits", "-w", "2", "--seed", "3", *WHOLE.split(), *SIZED)

    assert found["seed"] == 3
    assert found["scene"] == {
        "step": 0.005,
        "jitter": 0.0,
        "speeds": "1x,2x",
        "stragglers": "10x@5%:2",
        "away": ["worker-1@1s:1s"],
        "link": "1Gbit,1ms",
        "links": {"worker-0": "10Mbit"},
        "shared": False,
        "service": 0.001,
        "service_per_million": 0.002,
    }


def test_one_seed_is_one_simulation() -> None:
    first, again, other = (facts("digits", "--seed", seed, *SIZED) for seed in ("1", "1", "2"))

    assert first == again
    assert first["seconds"] != other["seconds"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--speeds HE9", "got 'HE9' as speeds"),
        ("--speeds 1x,0x,1x,1x", "has no speed"),
        ("--link 10", "write one above 0, like 500kbit, 10Mbit or 1Gbit"),
        ("--link 10Mbit,5", "write it with its unit"),
        ("--away worker-1@1s:1", "write it with its unit"),
        ("--step 0", "greater than 0"),
        ("--server-time fast", "a duration looks like"),
    ],
)
def test_an_option_that_can_not_be_read_is_refused_before_anything_starts(words: str, why: str) -> None:
    code, text = refused("digits", *words.split(), *SIZED)

    assert code == 64
    assert why in text


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--speeds 1x,2x", "got 2 of them (1x,2x) for 4 workers"),
        ("--link worker-9=10Mbit", "got 'worker-9', but there are worker-0 to worker-3"),
        ("--away worker-4@1s:1s", "got worker-4, but there are worker-0 to worker-3"),
        ("--set overlap=true --policy asp", "a push during the next gradient"),
        ("--set faults=kill\\ server-0@3s", "a process that is killed or frozen"),
        ("--policy broadcast -s 0", "messages that depend on the gradients"),
        ("--policy adpsgd -s 0 --away worker-1@1s:1s", "without servers (policy adpsgd) nobody can be away"),
    ],
)
def test_what_can_not_be_simulated_is_refused_before_anything_starts(words: str, why: str) -> None:
    split = [word.replace("\\ ", " ") for word in re.findall(r"(?:\\ |\S)+", words)]
    code, text = refused("digits", *split, *SIZED)

    assert code == 78
    assert why in text


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--set data.access=all", "workers that all read all the data"),
        ("--set data.shards=8", "several shards for a worker"),
        ("--set optimizer.maximize=true", "climbing"),
        ("--set optimizer.groups=[{parameters:x,lr:0.1}]", "groups of parameters"),
    ],
)
def test_what_no_simulated_worker_computes_is_refused_with_gradients(words: str, why: str) -> None:
    code, text = refused("digits", *words.replace(":x", ": x").replace(":0", ": 0").split(" ", 1), "--gradients")

    assert code == 78
    assert why in text


def test_a_linear_model_over_sparse_rows_is_refused() -> None:
    code, text = refused("svm", *SIZED)

    assert code == 78
    assert "can't have a linear model over sparse rows" in text


def test_weights_and_examples_go_together() -> None:
    code, text = refused("digits", "--weights", "1000")

    assert code == 64
    assert "give both" in text


def test_of_many_workers_three_are_shown() -> None:
    workers = [WorkerTimes(f"worker-{rank}", rank, 1.0, 0.0, 0.0, 0.0, 0.0) for rank in range(17)]

    assert [name for name, _ in shown(workers[:16])] == [f"worker-{rank}" for rank in range(16)]
    assert [name for name, _ in shown(workers)] == [
        "worker-16 (most steps)",
        "worker-8 (middle)",
        "worker-0 (fewest steps)",
    ]
