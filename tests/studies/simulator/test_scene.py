"""What surrounds a simulated training: how it is written, and what is wrong with it."""

from itertools import islice
from typing import Any

import pytest
from pydantic import ValidationError

from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline.studies.simulator.scene import Scene, Stragglers, goings


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
        (
            {"links": {"worker-9": "1Gbit"}},
            "got 'worker-9', but there are worker-0 to worker-3 and server-0 to server-1",
        ),
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
