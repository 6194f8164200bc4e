"""One process's mini-batch, rate and momentum, carried out by n workers (core/optimizers/effective.py)."""

from typing import ClassVar

import numpy as np
import pytest

from paceline.core.optimizers.builtin.adagrad import Adagrad
from paceline.core.optimizers.builtin.adam import Adam
from paceline.core.optimizers.builtin.adamw import AdamW
from paceline.core.optimizers.builtin.rmsprop import RmsProp
from paceline.core.optimizers.builtin.sgd import Sgd, along_directions
from paceline.core.optimizers.effective import cautioned, effective, pool_of, settings_lines
from paceline.core.optimizers.groups import Grouping
from paceline.core.optimizers.layout import Layout, Piece
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.optimizers.worker_half import WorkerHalf
from paceline.core.policies.policy import PACKAGE, PEERS, build_policy
from paceline.core.registry import names
from paceline.core.settings.config import Config, Options
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.values import Base, Dense, Push, Seat, View
from paceline.settings.load_settings import load

SERVED, UNSERVED = names(PACKAGE), names(PEERS)
ONE_AFTER_THE_OTHER = ["bsp", "backup", "local_sgd", "diloco", "easgd", "allreduce", "dpsgd", "adpsgd", "sgp", "gosgd"]
OWN = [name for name in [*SERVED, *UNSERVED] if name not in [*ONE_AFTER_THE_OTHER, "dana"]]


def settings(policy: str | dict[str, object], workers: int = 4, **others: object) -> Config:
    options = {"name": policy} if isinstance(policy, str) else policy
    servers = 2 if options["name"] in SERVED else 0
    return load(overrides={"policy": options, "workers": workers, "servers": servers, **others})


def carried_out(config: Config) -> tuple[int, float, float | None, float | None]:
    """What each worker takes, the rate, the servers' momentum and the worker's, for mini-batch 32, rate .1, momentum .9."""
    asked, made, pool = build_optimizer(config.optimizer), build_policy(config.policy), pool_of(config)
    half = pool.half(asked, made)
    servers = getattr(effective(pool, asked, made), "momentum", None)
    worker = None if half is None else getattr(half.optimizer, "momentum", None)
    return config.worker_batch, asked.lr * pool.scale(asked, made)(config.workers), servers, worker


def slice_of(config: Config) -> ModelSlice:
    """A slice of one weight."""
    optimizer = build_optimizer(config.optimizer)
    return ModelSlice(1, build_policy(config.policy), optimizer, 1, config.schedule, 10.0, pool_of(config))


@pytest.mark.parametrize("policy", [name for name in [*SERVED, *UNSERVED] if name not in ("broadcast", "ensemble")])
def test_one_worker_trains_as_one_process_does(policy):
    assert carried_out(settings(policy, workers=1)) == (32, pytest.approx(0.1), 0.9, None)


@pytest.mark.parametrize("workers", [2, 4, 8, 16])
@pytest.mark.parametrize("policy", [name for name in ONE_AFTER_THE_OTHER if name not in ("backup", "gosgd")])
def test_where_one_step_follows_the_other_rate_and_momentum_of_one_process_stay(policy, workers):
    assert carried_out(settings(policy, workers)) == (32 // workers, pytest.approx(0.1), 0.9, None)


@pytest.mark.parametrize(("workers", "expected"), [(2, (16, 0.05)), (4, (8, 0.025)), (16, (2, 0.00625))])
@pytest.mark.parametrize("policy", ["ssp", "dssp", "asp", "delay_threshold", "shat", "downpour", "broadcast"])
def test_a_push_that_folds_by_itself_takes_its_share_of_the_rate_and_its_workers_momentum(policy, workers, expected):
    examples, rate, servers, worker = carried_out(settings(policy, workers))

    assert (examples, rate) == (expected[0], pytest.approx(expected[1]))
    assert (servers, worker) == (0.0, 0.9)


@pytest.mark.parametrize(
    ("policy", "rate"),
    [
        ({"name": "kbuffered", "k": 2}, 0.05),
        ({"name": "rennala", "b": 2}, 0.05),
        ("everyone", 0.1),
        ("backup", 0.075),
        ("staleness_aware", 0.075),  # divided by its staleness, 3 among 4 equal workers
        ({"name": "staleness_aware", "damp": "outliers"}, 0.025),
        ("dana", 0.025),
        ({"name": "easgd", "tau": 10}, 0.05),  # own steps of models that are tied seldom: by the square root
        ("gosgd", 0.05),
    ],
)
def test_the_rate_is_that_of_the_examples_in_a_step(policy, rate):
    assert carried_out(settings(policy))[:2] == (8, pytest.approx(rate))


@pytest.mark.parametrize("policy", OWN)
def test_a_momentum_of_zero_leaves_the_servers_the_whole_optimizer(policy):
    config = settings(policy, optimizer={"momentum": 0})
    asked = build_optimizer(config.optimizer)

    assert effective(pool_of(config), asked, build_policy(config.policy)) is asked


@pytest.mark.parametrize(("workers", "factor"), [(1, 1.0), (4, 0.5), (16, 0.25)])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop", "adagrad"])
def test_an_adaptive_rate_goes_by_the_root_of_the_examples(optimizer, workers, factor):
    """Malladi et al. 2022; in lock-step it stays. What a policy divides by staleness is as large among equal workers."""
    own = {"optimizer": {"name": optimizer, "lr": 0.003}}

    assert carried_out(settings("asp", workers, **own))[1] == pytest.approx(0.003 * factor)
    assert carried_out(settings("bsp", workers, **own))[1] == pytest.approx(0.003)
    assert carried_out(settings("allreduce", workers, **own))[1] == pytest.approx(0.003)
    divided = carried_out(settings("staleness_aware", workers, **own))[1] / max(1, workers - 1)
    assert divided == pytest.approx(0.003 * factor)


@pytest.mark.parametrize(("policy", "factor"), [("local_sgd", 2.0), ("adpsgd", 2.0), ("easgd", 2.0), ("gosgd", 2**0.5)])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop", "adagrad"])
def test_own_adaptive_steps_make_up_for_the_noise_of_small_mini_batches(policy, factor, optimizer):
    """Each worker divides by the noise of a quarter of the examples, which is twice as large."""
    own = {"optimizer": {"name": optimizer, "lr": 0.003}}

    assert carried_out(settings(policy, **own))[1] == pytest.approx(0.003 * factor)
    assert carried_out(settings(policy, batch="worker", **own))[1] == pytest.approx(0.003)
    assert carried_out(settings(policy, workers=1, **own))[1] == pytest.approx(0.003)


@pytest.mark.parametrize(("policy", "share"), [("backup", 0.75), ("bsp", 1), ("local_sgd", 1)])
@pytest.mark.parametrize(
    ("optimizer", "name", "asked"),
    [("adam", "betas", (0.9, 0.999)), ("adamw", "betas", (0.8, 0.0)), ("rmsprop", "alpha", (0.99,))],
)
def test_running_means_go_over_as_many_examples_as_in_one_process(policy, share, optimizer, name, asked):
    given = asked if name == "betas" else asked[0]
    config = settings(policy, optimizer={"name": optimizer, name: given})
    found = getattr(effective(pool_of(config), build_optimizer(config.optimizer), build_policy(config.policy)), name)

    assert np.atleast_1d(found) == pytest.approx([1 - (1 - each) * share for each in asked])


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop", "adagrad"])
@pytest.mark.parametrize(("policy", "factor"), [("asp", 0.5), ("ssp", 0.5), ("kbuffered", 1.0)])
def test_workers_keep_what_an_adaptive_optimizer_remembers_and_each_direction_counts_alike(policy, factor, optimizer):
    """A direction of a quarter of the examples is half as long for the same signal; four of them make one step."""
    config = settings(policy, optimizer={"name": optimizer, "lr": 0.003})
    asked, made, pool = build_optimizer(config.optimizer), build_policy(config.policy), pool_of(config)

    half = pool.half(asked, made)
    assert half is not None
    assert half.optimizer == asked
    assert effective(pool, asked, made).slots == 0
    assert pool.scale(asked, made)(4) == pytest.approx(factor)
    assert pool.scale(asked, made)(4) / made.step_pushes(4) == pytest.approx(0.5)


@pytest.mark.parametrize("policy", ["bsp", "everyone"])
def test_where_a_step_is_on_as_much_as_in_one_process_the_servers_keep_an_adaptive_optimizer(policy):
    config = settings(policy, optimizer={"name": "adam"})
    asked, made, pool = build_optimizer(config.optimizer), build_policy(config.policy), pool_of(config)

    assert pool.half(asked, made) is None
    assert effective(pool, asked, made) == asked


@pytest.mark.parametrize(
    ("policy", "examples"),
    [("asp", 0.25), ("kbuffered", 0.5), ("dana", 0.25), ("backup", 0.75), ("bsp", 1), ("local_sgd", 1), ("adpsgd", 1)],
)
def test_rate_times_decay_is_the_users_for_as_many_examples(policy, examples):
    config = settings(policy, optimizer={"name": "adamw", "lr": 0.003, "weight_decay": 0.1})
    asked, made, pool = build_optimizer(config.optimizer), build_policy(config.policy), pool_of(config)

    stepping = effective(pool, asked, made)
    if policy == "dana":
        stepping = made.server_optimizer(stepping)

    assert 0.003 * pool.scale(asked, made)(4) * stepping.weight_decay == pytest.approx(0.003 * 0.1 * examples)


@pytest.mark.parametrize("policy", ["bsp", "asp"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop", "adagrad"])
def test_an_adaptive_rate_is_never_raised(policy, optimizer):
    config = settings(policy, workers=8, batch="worker", optimizer={"name": optimizer, "lr": 0.003})

    assert carried_out(config)[:2] == (32, pytest.approx(0.003))


def test_the_rate_of_an_optimizer_made_from_sgd_goes_by_whether_it_says_that_it_is_adaptive():
    class Signs(Sgd):
        adaptive: ClassVar[bool] = True

    assert (Sgd().scaled(0.25), Signs().scaled(0.25)) == (0.25, 0.5)


def test_larger_mini_batches_with_more_workers_are_one_setting():
    """Goyal et al. 2017: n times the mini-batch at n times the rate."""
    assert carried_out(settings("bsp", batch="worker"))[:2] == (32, pytest.approx(0.4))


@pytest.mark.parametrize("scale", ["none", "linear", "inverse"])
def test_any_other_scale_takes_rate_and_momentum_as_they_are(scale):
    config = Config(policy=Options(name="asp"), schedule={"lr_scale": scale})
    asked = build_optimizer(config.optimizer)

    assert pool_of(config) is None
    assert effective(None, asked, build_policy(config.policy)) is asked
    assert f"schedule.lr_scale: {scale}" in settings_lines(config, build_policy(config.policy))[0]


def test_the_servers_leave_the_momentum_to_a_codec_that_keeps_it_at_the_workers():
    codec = {"push": "topk", "error_feedback": True, "momentum": 0.9}

    assert carried_out(settings("asp", codec=codec)) == (8, pytest.approx(0.025), 0.0, None)
    assert carried_out(settings("bsp", codec=codec)) == (8, pytest.approx(0.1), 0.0, None)


def test_lock_step_follows_who_is_live():
    """Two of four workers: half of the examples at half of the rate."""
    one = slice_of(settings("bsp", optimizer={"momentum": 0, "weight_decay": 0}))
    one.initialise(np.zeros(1, np.float32), b"first")
    one.view(View(1, {"a": Seat(1, 0), "b": Seat(1, 0)}, 64))

    for worker in "ab":
        one.push(Push(worker, 1, 1, Dense(np.ones(1, np.float32)), 8, Base(1, 0), 1, 0.0))

    assert one.pull().values == pytest.approx([-0.05])


@pytest.mark.parametrize(("policy", "slots"), [("asp", 0), ("bsp", 1)])
def test_servers_keep_memory_for_a_momentum_only_where_they_have_one(policy, slots):
    one = slice_of(settings(policy))

    assert (one.optimizer.slots, len(one._half.slots)) == (slots, slots)


def test_pushes_with_a_workers_own_momentum_move_the_weights_as_far_as_plain_sgds_in_the_end():
    """A gradient of 1, then none: v goes on with .5, .25, ..., and all pushes together are 1 / (1 - m) times it."""
    kept, weights, moved = WorkerHalf(Sgd(momentum=0.5, weight_decay=0.0)), np.zeros(1, np.float32), 0.0
    for gradient in [1.0] + [0.0] * 30:
        pushed = np.array([gradient], np.float32)
        kept.look_ahead(pushed, weights)
        moved += float(pushed[0])

    assert moved == pytest.approx(2.0)


def test_one_worker_with_its_own_momentum_and_decay_is_nesterovs_sgd():
    ours, theirs = np.ones(3, np.float32), np.ones(3, np.float32)
    kept, plain = WorkerHalf(Sgd(momentum=0.9, weight_decay=0.1)), Sgd(lr=0.1, momentum=0.0, weight_decay=0.0)
    nesterov = Sgd(lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True)
    slots = nesterov.new_slots(3)

    for step in range(1, 6):
        gradient = np.float32([1.0, -2.0, step])
        nesterov.step(theirs, theirs, gradient, 1.0, 0.1, slots, step)
        kept.look_ahead(gradient, ours)
        plain.step(ours, ours, gradient, 1.0, 0.1, [], step)

    assert ours == pytest.approx(theirs)


def test_workers_with_adams_moments_push_the_directions_of_the_worked_example():
    """Rate .01, four workers, of which two push; the servers decay their own weight, so it is as if after the step."""
    adam, weight = AdamW(lr=0.01, weight_decay=0.1 / 2), np.ones(1, np.float32)
    halves, plain, pushed, weights = [WorkerHalf(adam), WorkerHalf(adam)], along_directions(adam), [], []
    for worker, gradient in [(0, 2.0), (1, -1.0), (0, 1.0)]:
        direction = np.array([gradient], np.float32)
        halves[worker].look_ahead(direction, weight)
        plain.step(weight, weight, direction, 1.0, 0.01 / 2, [], 1)
        pushed.append(float(direction[0]))
        weights.append(float(weight[0]))

    assert pushed == pytest.approx([1.0, -1.0, 0.902217], abs=1e-6)
    assert weights == pytest.approx([0.994751, 0.999501, 0.994741], abs=4e-6)


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (RmsProp(alpha=0.75, eps=1e-8), [2.0, 1 / (0.75 * 0.25 + 0.25) ** 0.5]),
        (RmsProp(alpha=0.75, momentum=0.5), [3.0, 1.5 / (0.75 * 0.25 + 0.25) ** 0.5 + 0.5]),
        (Adagrad(), [1.0, 0.5**0.5]),
        (Adam(betas=(0.5, 0.5)), [1.0, 1.0]),
    ],
)
def test_a_direction_is_divided_by_what_the_workers_own_gradients_have_been(optimizer, expected):
    half, pushed = WorkerHalf(optimizer), []
    for _ in expected:
        direction = np.ones(1, np.float32)
        half.look_ahead(direction, np.ones(1, np.float32))
        pushed.append(float(direction[0]))

    assert pushed == pytest.approx(expected, rel=1e-5)


def test_the_bias_of_a_tensor_that_was_left_alone_is_that_of_its_own_pushes():
    grouping = Grouping.of(Adam(), Layout(("a", "b"), (Piece(0, 0, 1), Piece(1, 1, 2))))
    half, pushed = WorkerHalf(Adam()), []
    for untouched in [(1,), (1,), ()]:
        direction = np.array([1.0, 0.0 if untouched else 1.0], np.float32)
        half.look_ahead(direction, np.ones(2, np.float32), grouping, untouched)
        pushed.append(direction.tolist())

    assert pushed[-1] == pytest.approx([1.0, 1.0], rel=1e-4)
    assert pushed[0][1] == 0.0


def test_the_first_lines_of_a_run_say_what_was_asked_for_and_what_is_done():
    asked = "for one process: mini-batch 32, sgd, rate 0.1, momentum 0.9 -> here: 4 workers x 8, sgd, "

    for policy, line in (("ssp", "rate 0.025, momentum 0.9 at each worker"), ("bsp", "rate 0.1, momentum 0.9")):
        assert settings_lines(settings(policy), build_policy(Options(name=policy))) == [asked + line]
    assert settings_lines(
        settings("ssp", optimizer={"name": "adam", "lr": 0.004}), build_policy(Options(name="ssp"))
    ) == [
        "for one process: mini-batch 32, adam, rate 0.004, betas 0.9 0.999 -> here: 4 workers x 8, adam, rate 0.002, "
        "betas 0.9 0.999 at each worker"
    ]


def test_a_script_whose_mini_batch_has_no_equal_parts_is_told_that_its_epochs_have_more_steps() -> None:
    policy, others = build_policy(Options(name="bsp")), ((4, "script"), (3, "files"))

    found = settings_lines(settings("bsp", 3, data={"source": "script"}), policy)

    assert found[1:] == [
        "a mini-batch of 32 can't be dealt to 3 workers in equal parts: a step is on 30, so an epoch has 1.07 times the steps "
        "of one process. A mini-batch of 30 has as many."
    ]
    assert all(
        len(settings_lines(settings("bsp", each, data={"source": source}), policy)) == 1 for each, source in others
    )


def test_groups_of_parameters_are_in_the_first_line_with_their_rates_asked_for_and_here():
    groups = [{"parameters": "*.bias", "weight_decay": 0.0}, {"parameters": "rest"}]
    groups.insert(1, {"parameters": ["head.weight", "tail.weight"], "lr": 0.4})
    config = settings("ssp", optimizer={"name": "sgd", "lr": 0.1, "groups": groups})

    (line,) = settings_lines(config, build_policy(config.policy))

    assert line.endswith(
        "rate 0.025, momentum 0.9 at each worker; groups: *.bias with weight_decay 0.0; head.weight and 1 more "
        "with rate 0.4 -> 0.1; rest as the others"
    )


@pytest.mark.parametrize("policy", ["easgd", "gosgd"])
def test_a_policy_that_may_end_below_one_process_says_so_and_why(policy):
    config = settings(policy)
    found = build_policy(config.policy)

    assert (
        f"{policy} may end below what one process reaches with the same settings: work"
        in settings_lines(config, found)[1]
    )
    assert len(settings_lines(settings(policy, workers=1), found)) == 1


@pytest.mark.parametrize(
    ("policy", "optimizer", "workers", "why"),
    [
        ("shat", "adam", 4, ""),
        ("shat", "sgd", 4, "which lag behind those with momentum"),
        ("shat", "sgd", 2, ""),
        ({"name": "shat", "local_step": "optimizer"}, "sgd", 4, "models are mixed with older ones"),
        ("staleness_aware", "sgd", 2, "the slower of two workers"),
        ("staleness_aware", "sgd", 4, ""),
        ("delay_threshold", "adam", 4, "a much slower worker's data"),
        ("diloco", "adam", 2, "its outer steps are few"),
        ("asp", "adam", 2, ""),
        ("dana", "adam", 4, ""),
        ("kbuffered", "adamw", 8, ""),
        ("asp", "sgd", 8, ""),
        ("bsp", "adam", 8, ""),
        ("local_sgd", "adam", 8, ""),
        ("adpsgd", "adam", 8, "a much slower one"),
        ("adpsgd", "adam", 4, ""),
        ("adpsgd", "sgd", 8, ""),
    ],
)
def test_who_is_as_good_with_so_many_workers_and_this_optimizer_cautions_nobody(policy, optimizer, workers, why):
    config = settings(policy, workers, optimizer={"name": optimizer})
    found = cautioned(config, build_policy(config.policy))

    assert why in found
    assert bool(why) == bool(found)
