"""What surrounds a simulated training: how it is written, and what is wrong with it; runs under other policies."""

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from pydantic import ValidationError

from paceline.core.chief.worker_time import WorkerTime
from paceline.core.errors import ConfigError, UsageError
from paceline.core.explain.evidence import Evidence, ServerTime
from paceline.core.settings.config import Config, Options
from paceline.launch.status.predictions import Predicted, in_words
from paceline_studies.simulator.other_policies import other_policies, scene_of
from paceline_studies.simulator.scene import Scene, Stragglers, goings


@pytest.mark.parametrize(
    ("speeds", "factors"),
    [
        ("HO", [1, 1, 1, 1]),
        ("HE0", [1, 1, 1, 2]),
        ("he1", [1, 1, 1, 10]),
        ("HE2", [1, 1, 1, 100]),
        ("1x,2x,1.5x,10x", [1, 2, 1.5, 10]),
        ([1, 2, 1, 4], [1, 2, 1, 4]),
        ("random", [1, 1, 1, 1]),
    ],
)
def test_speeds_are_a_preset_or_a_list(speeds: Any, factors: list[float]) -> None:
    assert Scene(speeds=speeds).factors(4, seed=0) == factors


@pytest.mark.parametrize(
    ("speeds", "least", "most"), [("lognormal:0.3", 0.2, 5), ("uniform:1,2", 1, 2), ("exponential:0.5", 1, 20)]
)
def test_speeds_may_be_drawn_by_the_seed(speeds: str, least: float, most: float) -> None:
    scene = Scene(speeds=speeds)
    found = scene.factors(1000, seed=3)

    assert least <= min(found) < max(found) <= most
    assert found == scene.factors(1000, seed=3) != scene.factors(1000, seed=4)


def test_random_stragglers_are_a_preset_too() -> None:
    assert Scene(speeds="random").at_times == [Stragglers(10.0, 0.05)]
    assert Scene(stragglers="4x@1%:20").at_times == [Stragglers(4.0, 0.01, 20)]


def test_who_is_away_is_named_or_drawn() -> None:
    named = Scene(away="worker-1@30s:5s; worker-1@10s:20s; worker-2@1s")

    assert list(goings(named, 1, seed=0)) == [(10, 30), (30, 35)]
    assert list(goings(named, 2, seed=0)) == [(1, float("inf"))]
    assert list(goings(named, 0, seed=0)) == []

    often = Scene(away="1/10m:30s")
    first = list(islice(goings(often, 0, seed=0), 2000))
    assert first == list(islice(goings(often, 0, seed=0), 2000)) != list(islice(goings(often, 1, seed=0), 2000))
    assert all(end - begin == pytest.approx(30) for begin, end in first)
    assert first[-1][1] / 2000 == pytest.approx(630, rel=0.1)


def test_a_scene_can_be_written_as_json() -> None:
    scene = Scene(speeds="HE1", away="worker-1@30s:5s", links={"worker-0": "10Mbit,50ms"})

    assert Scene.model_validate_json(scene.model_dump_json()) == scene


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"speeds": "HE9"}, "got 'HE9' as speeds; expected one of HO, HE0, HE1, HE2, RANDOM"),
        ({"speeds": "1x,0x"}, "has no speed; give a factor above 0"),
        ({"speeds": "gamma:1"}, "got 'gamma:1' as speeds"),
        ({"speeds": "uniform:2,1"}, "uniform takes 2 numbers in rising order"),
        ({"speeds": "lognormal:1,2"}, "lognormal takes 1 number"),
        ({"step": 0}, "greater than 0"),
        ({"step": "fast"}, "a duration looks like"),
        ({"jitter": -1}, "greater than or equal to 0"),
        ({"link": "10,1ms"}, "got '10' as a bandwidth; write one above 0, like 500kbit"),
        ({"link": "10Mbit,50"}, "got '50' as a time; write it with its unit"),
        ({"link": "0Mbit"}, "write one above 0"),
        ({"links": {"worker-0": "fast"}}, "got 'fast' as a bandwidth"),
        ({"stragglers": "10x"}, "got '10x' as stragglers"),
        ({"stragglers": "10x@5%:0"}, "as stragglers"),
        ({"stragglers": "fast@5%"}, "can't read"),
        ({"away": "2@10s:20s"}, "write worker-2@10s:20s"),
        ({"away": "worker-2@10:20s"}, "write it with its unit"),
        ({"away": "worker-2@10s:0s"}, "lasts 0 s"),
        ({"away": "1/10m"}, "how often and for how long"),
        ({"away": "1/0s:30s"}, "above 0"),
        ({"pace": 1}, "Extra inputs"),
    ],
)
def test_a_wrong_scene_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError) as found:
        Scene(**settings)

    assert why in str(found.value)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"away": "worker-4@10s:20s"}, "got worker-4, but there are worker-0 to worker-3"),
        ({"links": {"worker-9": "1Gbit"}}, "'worker-9', but there are worker-0 to worker-3 and server-0"),
        ({"links": {"server-2": "1Gbit"}}, "got 'server-2'"),
        ({"speeds": "1x,10x"}, "got 2 of them (1x,10x) for 4 workers"),
    ],
)
def test_a_scene_names_nobody_who_is_not_there(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as found:
        Scene(**settings).check(Config(workers=4, servers=2))

    assert why in str(found.value)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"speeds": "HE9"}, "--speeds: got 'HE9' as speeds"),
        ({"links": {"worker-0": "fast"}}, "--link: got 'fast' as a bandwidth"),
        ({"service": "fast"}, "--server-time: got 'fast'; a duration looks like"),
        ({"step": 0, "jitter": -1}, "--step: got 0; input should be greater than 0. --jitter: got -1; "),
    ],
)
def test_a_command_names_the_option_that_is_wrong(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as found:
        Scene.read(**settings)

    assert str(found.value).startswith(why)


STEPS = 160
CONFIG = Config(workers=4, servers=2, policy=Options(name="bsp"), batch_size=64, epochs=8, slow={"3": "5x"})


def measured(slow: float = 0.1) -> Evidence:
    """Lock-step: a step of 25 ms, one of `slow` seconds on worker-3; 4 ms for an exchange."""
    workers = tuple(
        WorkerTime(f"worker-{rank}", STEPS, STEPS * (slow if rank == 3 else 0.025), 0.0, STEPS * 0.004)
        for rank in range(4)
    )
    servers = tuple(ServerTime(f"server-{each}", 20.0, 0.64, 640, 9600) for each in range(2))
    return Evidence(CONFIG, seconds=20.0, workers=workers, servers=servers, age=20.0, members=4)


def test_a_loose_policy_does_not_wait_for_a_slow_worker_and_a_bound_only_puts_it_off() -> None:
    seconds = 8 * 20 * (0.1 + 0.004)
    found = {each.policy: each.seconds for each in other_policies(measured(), 1280, 8.0, seconds)}
    assert set(found) == {"asp", "backup:1", "ssp:3"}
    # three workers push each 29 ms and one each 104: 113 pushes a second, of 640
    assert found["asp"] == pytest.approx(640 / (3 / 0.029 + 1 / 0.104), rel=0.1)
    assert found["ssp:3"] == pytest.approx(seconds, rel=0.1)
    assert found["backup:1"] < seconds / 2


def test_equal_workers_gain_little() -> None:
    seconds = 8 * 20 * 0.029
    found = {each.policy: each.seconds for each in other_policies(measured(slow=0.025), 1280, 8.0, seconds)}
    assert found["asp"] == pytest.approx(seconds, rel=0.2)


def test_a_run_that_cannot_be_simulated_has_no_prediction() -> None:
    evidence = measured()
    assert not other_policies(replace(evidence, workers=evidence.workers[:3]), 1280, 8.0, 20.0)
    assert not other_policies(replace(evidence, servers=()), 1280, 8.0, 20.0)
    peers = Config(workers=4, servers=0, policy=Options(name="dpsgd"))
    assert not other_policies(replace(evidence, config=peers), 1280, 8.0, 20.0)


@pytest.mark.parametrize(("cpu", "is_short"), [(0.014, True), (0.015, False), (0.0, False)])
def test_it_says_where_cores_are_short(cpu: float, is_short: bool) -> None:
    evidence = measured()
    evidence = replace(evidence, workers=tuple(replace(each, cpu=STEPS * cpu) for each in evidence.workers))
    line = in_words([Predicted("asp", 9.0)], evidence)
    assert line.startswith("By simulation of these figures the same epochs take: asp about 9 s; bsp has taken 20 s.")
    assert ("Processes wait for CPU cores" in line) is is_short


def test_the_scene_has_each_workers_step_and_way() -> None:
    scene = scene_of(measured())
    assert scene.step == pytest.approx(0.025)
    assert scene.speeds == "1.000000,1.000000,1.000000,4.000000"
    assert scene.links["worker-0"] == "1000Gbit,1.500000ms"
