"""Timing alone: the servers' policies in virtual time, without weights and gradients."""

from typing import Any

import pytest

from paceline.core.errors import ConfigError
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config, Options
from paceline_studies.simulator.problem import Problem, problem_of
from paceline_studies.simulator.scene import Scene
from paceline_studies.simulator.timing import Timed, timed, timing_of
from paceline_studies.simulator.training import training_of

STILL = {"step": 0.01, "jitter": 0.0, "link": "1Gbit,0ms", "service": 0.0, "service_per_million": 0.0}
"""Steps of 10 ms, and nothing else that takes time but the bytes on the link."""


def config_of(policy: str = "asp", workers: int = 4, **more: Any) -> Config:
    name, *option = policy.split(":")
    options = {build_policy(Options(name=name)).shorthand: int(option[0])} if option else {}
    settings = {"servers": 1, "batch": "worker", "batch_size": 10, "epochs": 2, **more}
    return Config.model_validate({"workers": workers, "policy": {"name": name, **options}, **settings})


def time_of(policy: str = "asp", scene: dict[str, Any] | None = None, **more: Any) -> Timed:
    config = config_of(policy, **more)
    return timed(config, Scene(**{**STILL, **(scene or {})}), values=1000, examples=500 * config.workers)


def test_equal_workers_take_their_steps_side_by_side() -> None:
    found = time_of()

    assert found.examples >= 4000
    assert found.pushes == pytest.approx(400, abs=4)
    assert found.seconds == pytest.approx(100 * 0.01, rel=0.02)
    assert found.throughput == pytest.approx(4000, rel=0.02)
    assert [worker.wait for worker in found.workers] == [0] * 4
    assert found.staleness.mean == pytest.approx(3, abs=0.1)


def test_under_bsp_all_wait_for_the_slow_one() -> None:
    found = time_of("bsp", {"speeds": "HE1"})
    *others, slow = found.workers

    assert found.seconds == pytest.approx(100 * 0.1, rel=0.05)
    assert all(worker.wait == pytest.approx(100 * 0.09, rel=0.05) for worker in others)
    assert slow.wait < 0.01
    assert (found.staleness.mean, found.staleness.max) == (0, 0)


def test_under_asp_a_slow_worker_holds_nobody_up() -> None:
    found = time_of("asp", {"speeds": "HE1"})
    *others, slow = found.workers

    assert 400 / 310 < found.seconds < 400 / 310 + 0.12  # the slow one makes its last step
    assert {round(worker.clock / slow.clock) for worker in others} <= {9, 10}
    assert slow.staleness > 20


def test_under_ssp_nobody_is_further_ahead_than_the_bound() -> None:
    training = timing_of(config_of("ssp:3"), Scene(**STILL, speeds="HE1"), 1000, 2000)
    training.advance()

    assert training.most_ahead == 4


def test_the_time_of_a_worker_is_all_accounted_for() -> None:
    found = time_of("ssp:1", {"speeds": "1x,2x,1x,1x", "link": "10Mbit,1ms", "service": 0.001})

    for worker in found.workers:
        spent = worker.compute + worker.push + worker.wait + worker.pull
        assert spent <= found.seconds + 1e-9
        assert spent == pytest.approx(found.seconds, rel=0.05)


def test_a_message_takes_as_long_as_its_bytes_on_the_link() -> None:
    """1,000 values are 32 kbit: 32 ms each way on 1 Mbit/s."""
    (worker,) = time_of("asp", {"link": "1Mbit,5ms"}, workers=1).workers

    assert worker.push / worker.clock == pytest.approx(0.032 + 0.005, rel=0.02)
    assert worker.pull / worker.clock == pytest.approx(0.032 + 0.005, rel=0.02)


def test_workers_share_a_servers_link_and_a_worker_has_its_own() -> None:
    scene = {"link": "1Gbit", "links": {"server-0": "1Mbit"}}
    shared, apart = (time_of("asp", {**scene, "shared": is_shared}) for is_shared in (True, False))

    assert shared.pushes / shared.seconds == pytest.approx(1 / 0.032, rel=0.1)
    assert apart.pushes / apart.seconds == pytest.approx(4 / (0.01 + 2 * 0.032), rel=0.1)


def test_a_busy_server_lets_pushes_queue() -> None:
    found = time_of("asp", {"service": 0.02})

    assert found.pushes / found.seconds == pytest.approx(1 / 0.02, rel=0.05)


def test_several_servers_share_the_values() -> None:
    one, four = (time_of("asp", {"service_per_million": 50.0}, servers=servers) for servers in (1, 4))

    assert one.seconds > 2.5 * four.seconds


def test_a_link_fault_of_the_run_counts() -> None:
    free, slow = (time_of("bsp", faults=faults) for faults in ((), ("link worker-1=1Mbit",)))

    assert slow.seconds > 5 * free.seconds


def test_what_slow_says_is_a_pause_as_in_a_real_run() -> None:
    found = time_of("bsp", slow="he1", nominal_step=0.02)

    assert found.seconds / found.workers[0].clock == pytest.approx(0.01 + 9 * 0.02, rel=0.01)


@pytest.mark.parametrize("policy", ["asp", "bsp", "ssp:3", "backup", "kbuffered"])
def test_a_worker_goes_away_and_comes_back(policy: str) -> None:
    stayed, left = (time_of(policy, {"away": away}) for away in ((), ("worker-2@0.1s:0.3s",)))

    assert left.workers[2].clock < stayed.workers[2].clock
    assert left.examples >= 4000
    assert stayed.seconds < left.seconds < 1.2 * stayed.seconds


@pytest.mark.parametrize(("policy", "most"), [("asp", 0.0), ("bsp", 0.01), ("local_sgd:8", 0.08)])
def test_a_worker_that_comes_back_waits_for_the_open_round_at_most(policy: str, most: float) -> None:
    found = time_of(policy, {"away": "worker-2@0.325s:0.4s"})

    assert found.workers[2].wait == pytest.approx(most / 2, abs=most / 2)


@pytest.mark.parametrize("servers", [1, 3])
def test_what_workers_do_until_they_leave_is_all_counted(servers: int) -> None:
    """A worker that leaves may wait for a slower one, for the round to begin with, or compute."""
    scene = {"away": "1/1s:0.5s", "speeds": "1x,1x,1x,4x"}
    found = time_of("local_sgd:8", scene, servers=servers, epochs=40)

    spent = [each.compute + each.push + each.wait + each.pull for each in found.workers]
    present = found.seconds - 0.5 * found.seconds / 1.5
    assert sum(spent) == pytest.approx(4 * present, rel=0.2)
    assert sum(each.wait for each in found.workers[:3]) > 0.3 * sum(spent[:3])


def test_examples_a_second_are_those_in_the_model() -> None:
    found = time_of("backup")

    assert found.dropped / found.examples == pytest.approx(1 / 4, abs=0.02)  # one push of four is left out
    assert found.throughput * found.seconds == pytest.approx(found.examples - found.dropped)


@pytest.mark.parametrize("policy", ["asp", "bsp"])
def test_a_worker_may_leave_for_good(policy: str) -> None:
    found = time_of(policy, {"away": "worker-2@0.1s"})

    assert found.workers[2].clock <= 11
    assert found.examples >= 4000


def test_where_all_leave_for_good_there_is_an_error() -> None:
    with pytest.raises(ConfigError, match="nobody is left who could go on"):
        time_of("asp", {"away": "; ".join(f"worker-{rank}@0.1s" for rank in range(4))})


@pytest.mark.parametrize("policy", ["adpsgd", "dpsgd", "allreduce", "gosgd", "sgp"])
def test_there_may_be_no_servers(policy: str) -> None:
    found = time_of(policy, servers=0)

    assert found.examples >= 4000
    assert found.seconds < 2 * 100 * 0.01


def test_one_seed_is_one_timing() -> None:
    scene = {"jitter": 0.3, "stragglers": "5x@10%", "away": "1/500ms:50ms"}
    first, again, other = (time_of("ssp", scene, seed=seed) for seed in (1, 1, 2))

    assert first == again != other


def test_policies_see_the_same_steps() -> None:
    """The time that a worker's k-th step takes depends on the seed alone."""
    asp, bsp = (time_of(policy, {"jitter": 0.5}, budget="per_worker") for policy in ("asp", "bsp"))

    assert [worker.clock for worker in asp.workers] == [worker.clock for worker in bsp.workers]
    assert [worker.compute for worker in asp.workers] == pytest.approx([worker.compute for worker in bsp.workers])


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return problem_of(config_of(), tmp_path_factory.mktemp("shards"))


@pytest.mark.parametrize(("policy", "servers"), [("asp", 2), ("bsp", 1), ("ssp:1", 2), ("shat", 1), ("adpsgd", 0)])
def test_timing_alone_takes_as_long_as_with_gradients(digits: Problem, policy: str, servers: int) -> None:
    config = config_of(policy, servers=servers, epochs=1)
    scene = Scene(speeds="1x,1x,1x,3x", link="100Mbit,0.5ms")

    training = training_of(config, digits, scene=scene)
    trained = training.run()
    alone = timed(config, scene, digits.values, digits.examples)

    assert (alone.seconds, alone.examples, alone.pushes) == (trained.time, trained.examples, trained.pushes)
    assert alone.staleness.mean == trained.staleness


@pytest.mark.parametrize(
    ("values", "examples", "why"),
    [
        (0, 100, "Got a model of 0 weights"),
        (10, 3, "3 training examples for 4 workers"),
        (10, 20, "no worker has more than 5"),
    ],
)
def test_a_model_without_weights_or_too_few_examples_are_refused(values: int, examples: int, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        timed(config_of(), Scene(), values, examples)


def test_a_run_of_which_each_trains_its_own_ends_without_who_stays_away() -> None:
    found = time_of("asp", {"away": "worker-2@0.1s"}, budget="per_worker")

    assert found.seconds < 60


def test_without_servers_nobody_can_be_away() -> None:
    with pytest.raises(ConfigError, match="nobody can be away"):
        time_of("adpsgd", {"away": "worker-1@1s:1s"}, servers=0)


def test_layers_are_dealt_to_servers_as_the_plan_says() -> None:
    config, scene = config_of(servers=2, plan={"slices": "layerwise"}), Scene(**STILL)
    large, small = ("0.weight", (9, 1000)), ("1.weight", (1, 1000))

    found = timing_of(config, scene, values=10_000, examples=2000, shapes=[large, small])
    alone = timing_of(config, scene, values=10_000, examples=2000)

    assert found._lengths == (9000, 1000)
    assert alone._lengths == (10_000, 0)
