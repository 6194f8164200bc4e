"""One process's mini-batch, rate and momentum, carried out by n workers (core/effective.py)."""

import numpy as np
import pytest

from paceline.core.config import Config, Options
from paceline.core.effective import effective, pool_of, told
from paceline.core.model_slice import ModelSlice
from paceline.core.optimizer import build_optimizer
from paceline.core.policy import PACKAGE, PEERS, build_policy
from paceline.core.registry import names
from paceline.core.values import Base, Dense, Push, Seat, View
from paceline.settings import load

SERVED, UNSERVED = names(PACKAGE), names(PEERS)


def carried_out(policy: str, workers: int = 4, **settings: object) -> tuple[int, float, float | None]:
    """What each worker takes, at which rate and with which momentum, for mini-batch 32, rate .1, momentum .9."""
    options = {"name": policy} if isinstance(policy, str) else policy
    servers = 2 if options["name"] in SERVED else 0
    config = load(overrides={"policy": options, "workers": workers, "servers": servers, **settings})
    asked, made, pool = build_optimizer(config.optimizer), build_policy(config.policy), pool_of(config)
    rate = asked.lr if pool is None else asked.lr * pool.scale(asked, made)(workers)
    return config.worker_batch, rate, getattr(effective(pool, asked, made), "momentum", None)


def slice_of(config: Config) -> ModelSlice:
    """A slice of one weight."""
    optimizer = build_optimizer(config.optimizer)
    return ModelSlice(1, build_policy(config.policy), optimizer, 1, config.schedule, 10.0, pool_of(config))


@pytest.mark.parametrize("policy", [*SERVED, *UNSERVED])
def test_one_worker_trains_as_one_process_does(policy):
    if policy in ("backup", "broadcast"):
        return  # one is never enough for backup; broadcast has plain steps only
    assert carried_out(policy, workers=1) == (32, pytest.approx(0.1), pytest.approx(0.9))


@pytest.mark.parametrize("workers", [2, 4, 8, 16])
@pytest.mark.parametrize("policy", ["bsp", "local_sgd", "diloco", "easgd", "everyone", "allreduce", "dpsgd", "adpsgd"])
def test_where_nothing_overlaps_the_rate_and_momentum_of_one_process_stay(policy, workers):
    assert carried_out(policy, workers) == (32 // workers, pytest.approx(0.1), pytest.approx(0.9))


@pytest.mark.parametrize(
    ("workers", "expected"),
    [(2, (16, 0.1, 0.8)), (4, (8, 0.1, 0.6)), (8, (4, 0.1, 0.2)), (10, (3, 0.09375, 0.0)), (16, (2, 0.0625, 0.0))],
)
@pytest.mark.parametrize("policy", ["ssp", "dssp", "asp", "delay_threshold"])
def test_pushes_that_overlap_pay_with_momentum_first_and_then_with_the_rate(policy, workers, expected):
    """Every gradient moves the weights as far in the end: rate / (1 - momentum) is that of one process, times its share."""
    found = carried_out(policy, workers)

    assert found == (expected[0], pytest.approx(expected[1]), pytest.approx(expected[2]))


@pytest.mark.parametrize(
    ("policy", "rate", "momentum"),
    [
        ("shat", 0.25, 0.0),  # own steps are plain: a / (1 - m) / n
        ("ensemble", 0.25, 0.0),
        ("broadcast", 0.25, 0.0),
        ({"name": "kbuffered", "k": 2}, 0.05, 0.9),
        ({"name": "rennala", "b": 2}, 0.05, 0.9),  # fresh gradients only: nothing overlaps
        ("backup", 0.075, 0.9),
        ("staleness_aware", 0.075, 0.9),  # divided by its staleness, 3 among 4 equal workers
        ("dc_asgd", 0.025, 0.9),  # its correction is for what others have done meanwhile
        ("dana", 0.025, 0.9),  # each worker's momentum is its own
    ],
)
def test_each_policy_says_how_its_steps_come_about(policy, rate, momentum):
    assert carried_out(policy) == (8, pytest.approx(rate), pytest.approx(momentum))


def test_the_servers_leave_the_momentum_to_a_codec_that_keeps_it_at_the_workers():
    codec = {"push": "topk", "error_feedback": True, "momentum": 0.9}

    assert carried_out("asp", codec=codec) == (8, pytest.approx(0.025), 0.0)


def test_computing_ahead_doubles_what_overlaps():
    assert carried_out("asp", overlap=True) == (8, pytest.approx(0.1 * 10 / 4 * 0.8), pytest.approx(0.2))


@pytest.mark.parametrize("policy", ["bsp", "ssp", "asp", "kbuffered"])
@pytest.mark.parametrize("batch", ["global", "worker", "speed"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop", "adagrad"])
def test_an_adaptive_rate_is_never_multiplied(policy, batch, optimizer):
    examples, rate, _ = carried_out(policy, workers=8, batch=batch, optimizer={"name": optimizer, "lr": 0.003})

    assert (examples, rate) == (32 if batch == "worker" else 4, pytest.approx(0.003))


def test_larger_mini_batches_with_more_workers_are_one_setting():
    """Goyal et al. 2017: n times the mini-batch at n times the rate."""
    assert carried_out("bsp", batch="worker") == (32, pytest.approx(0.4), pytest.approx(0.9))


@pytest.mark.parametrize("scale", ["none", "linear", "inverse"])
def test_any_other_scale_takes_rate_and_momentum_as_they_are(scale):
    config = Config(policy=Options(name="asp"), schedule={"lr_scale": scale})

    assert pool_of(config) is None
    assert f"schedule.lr_scale: {scale}" in told(config, build_policy(config.policy))


def test_the_slice_steps_with_what_is_left_of_the_momentum_and_follows_who_is_live():
    """Two of four workers: lock-step on half of the examples at half of the rate."""
    config = load(overrides={"policy": {"name": "bsp"}, "workers": 4, "optimizer": {"momentum": 0, "weight_decay": 0}})
    one = slice_of(config)
    one.initialise(np.zeros(1, np.float32), b"first")
    one.view(View(1, {"a": Seat(1, 0), "b": Seat(1, 0)}, 64))

    for worker in "ab":
        one.push(Push(worker, 1, 1, Dense(np.ones(1, np.float32)), 8, Base(1, 0), 1, 0.0))

    assert one.pull().values == pytest.approx([-0.05])


def test_a_momentum_that_overlap_leaves_nothing_of_keeps_its_slot_for_a_later_policy():
    config = load(overrides={"policy": {"name": "asp"}, "workers": 16, "batch_size": 32})
    one = slice_of(config)

    assert (one.optimizer.momentum, one.slots) == (0.0, 1)


def test_the_first_lines_of_a_run_say_what_was_asked_for_and_what_is_done():
    config = load(overrides={"policy": {"name": "ssp"}})

    assert told(config, build_policy(config.policy)) == (
        "for one process: mini-batch 32, sgd, rate 0.1, momentum 0.9 -> here: 4 workers x 8, sgd, rate 0.1, momentum 0.6"
    )


def test_what_plain_steps_leave_out_is_said():
    config = load(overrides={"policy": {"name": "broadcast"}, "servers": 0})

    assert told(config, build_policy(config.policy)).endswith("rate 0.25, momentum 0, no weight decay")
