"""What other policies would have given: as the simulator itself says of a run whose figures are known."""

from dataclasses import replace

import pytest

from paceline.core.explain.evidence import Evidence, ServerTime, WorkerTime
from paceline.core.settings.config import Config, Options
from paceline.studies.simulator.other_policies import Predicted, other_policies, scene_of, told

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
    assert told([], "bsp", 20.0, evidence) == ""


@pytest.mark.parametrize(("cpu", "is_short"), [(0.014, True), (0.015, False), (0.0, False)])
def test_it_says_where_cores_are_short(cpu: float, is_short: bool) -> None:
    evidence = measured()
    evidence = replace(evidence, workers=tuple(replace(each, cpu=STEPS * cpu) for each in evidence.workers))
    line = told([Predicted("asp", 9.0)], "bsp", 20.0, evidence)
    assert line.startswith("By simulation of these figures the same epochs take: asp about 9 s; bsp has taken 20 s.")
    assert ("Processes wait for CPU cores" in line) is is_short


def test_the_scene_has_each_workers_step_and_way() -> None:
    scene = scene_of(measured())
    assert scene.step == pytest.approx(0.025)
    assert scene.speeds == "1.000000,1.000000,1.000000,4.000000"
    assert scene.links["worker-0"] == "1000Gbit,1.500000ms"
