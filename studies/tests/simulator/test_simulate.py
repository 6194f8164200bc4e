"""`paceline simulate`: what it takes, what it refuses, and what it says."""

import json
import re
import shlex
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.cli.__main__ import app
from paceline_studies.simulator.simulate import shown
from paceline_studies.simulator.timing import WorkerTimes

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


def test_policy_auto_changes_in_virtual_time_as_in_a_run_and_is_bsp_where_nothing_disturbs_it() -> None:
    def of(policy: str, speeds: str) -> dict[str, Any]:
        return facts("digits", "-s", "2", "--policy", policy, "--speeds", speeds, "--step", "50ms", "--epochs", "10")

    auto, bsp, slow, waiting = of("auto", "HO"), of("bsp", "HO"), of("auto", "HE1"), of("bsp", "HE1")

    assert (auto["measures"], auto["seconds"], auto["choices"]) == (bsp["measures"], bsp["seconds"], [])
    assert slow["seconds"] < waiting["seconds"] / 2
    assert slow["choices"][0].startswith("policy auto: to kbuffered: worker-3")
    assert slow["measures"]["test_accuracy"] == pytest.approx(waiting["measures"]["test_accuracy"], abs=0.03)


def test_a_worker_that_was_away_while_the_policy_changed_goes_on_under_the_new_one() -> None:
    away = ("--away", "worker-1@3s:6s")
    found = facts("digits", "-s", "2", "--policy", "auto", "--speeds", "HE1", "--step", "50ms", "--epochs", "20", *away)

    assert "to kbuffered" in found["choices"][0]
    assert found["workers"][1]["clock"] > 2 * found["workers"][3]["clock"]


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
    ("code", "words", "why"),
    [
        (64, "digits --speeds HE9", "got 'HE9' as speeds"),
        (64, "digits --speeds 1x,0x,1x,1x", "has no speed"),
        (64, "digits --link 10", "write one above 0, like 500kbit, 10Mbit or 1Gbit"),
        (64, "digits --link 10Mbit,5", "write it with its unit"),
        (64, "digits --away worker-1@1s:1", "write it with its unit"),
        (64, "digits --step 0", "greater than 0"),
        (64, "digits --server-time fast", "a duration looks like"),
        (78, "digits --speeds 1x,2x", "got 2 of them (1x,2x) for 4 workers"),
        (78, "digits --link worker-9=10Mbit", "got 'worker-9', but there are worker-0 to worker-3"),
        (78, "digits --away worker-4@1s:1s", "got worker-4, but there are worker-0 to worker-3"),
        (78, "digits --set overlap=true --policy asp", "a push during the next gradient"),
        (78, "digits --set 'faults=kill server-0@3s'", "a process that is killed or frozen"),
        (78, "digits --policy broadcast -s 0", "messages that depend on the gradients"),
        (78, "digits --policy adpsgd -s 0 --away worker-1@1s:1s", "(policy adpsgd) nobody can be away"),
        (78, "svm", "can't have a linear model over sparse rows"),
    ],
)
def test_what_can_not_be_read_or_simulated_is_refused_before_anything_starts(code: int, words: str, why: str) -> None:
    found, text = refused(*shlex.split(words), *SIZED)

    assert (found, why in text) == (code, True), text


@pytest.mark.parametrize(
    ("code", "words", "why"),
    [
        (78, "--set data.access=all --gradients", "workers that all read all the data"),
        (78, "--set data.shards=8 --gradients", "several shards for a worker"),
        (78, "--set optimizer.maximize=true --gradients", "climbing"),
        (78, "--set 'optimizer.groups=[{parameters: x, lr: 0.1}]' --gradients", "groups of parameters"),
        (64, "--weights 1000", "give both"),
    ],
)
def test_what_no_simulated_worker_computes_and_half_a_size_are_refused(code: int, words: str, why: str) -> None:
    found, text = refused("digits", *shlex.split(words))

    assert (found, why in text) == (code, True), text


def test_of_many_workers_three_are_shown() -> None:
    workers = [WorkerTimes(f"worker-{rank}", rank, 1.0, 0.0, 0.0, 0.0, 0.0) for rank in range(17)]

    assert [name for name, _ in shown(workers[:16])] == [f"worker-{rank}" for rank in range(16)]
    assert [name for name, _ in shown(workers)] == [
        "worker-16 (most steps)",
        "worker-8 (middle)",
        "worker-0 (fewest steps)",
    ]
