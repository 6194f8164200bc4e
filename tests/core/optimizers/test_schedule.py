"""Learning rates: the papers' numbers, what changes when workers come and go, and AdaScale's gain."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.optimizers.schedule import LearningRate, Schedule
from paceline.core.settings.config import ScheduleConfig
from paceline.core.slice.rate import AdaScale

SHAPES = {"constant": {}, "step": {"every": 30}, "multistep": {"milestones": (40, 80)}, "cosine": {}}
SHAPES |= {"polynomial": {"power": 2.0}}


def schedule(epochs=100, auto=lambda live: 1.0, **options):
    return Schedule(ScheduleConfig(**options), epochs, auto)


def rate(lr_scale="linear", base=0.01, **options):
    return LearningRate(schedule(lr_scale=lr_scale, **options), base)


# shapes
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"name": "constant"}, {0: 1, 99: 1}),
        ({"name": "step", "every": 30, "gamma": 0.5}, {0: 1, 29.9: 1, 30: 0.5, 59.9: 0.5, 90: 0.125}),
        ({"name": "multistep", "milestones": (40, 80)}, {39.9: 1, 40: 0.1, 79.9: 0.1, 80: 0.01, 99: 0.01}),
        ({"name": "cosine"}, {0: 1, 50: 0.5, 100: 0}),
        ({"name": "cosine", "end": 0.2}, {0: 1, 50: 0.6, 100: 0.2}),
        ({"name": "cosine", "end": 0.2, "epochs": 50}, {0: 1, 25: 0.6, 50: 0.2, 75: 0.2}),
        ({"name": "polynomial"}, {0: 1, 25: 0.75, 100: 0}),
        ({"name": "polynomial", "power": 2, "end": 0.1}, {0: 1, 50: 0.325, 100: 0.1}),
    ],
)
def test_a_shape_gives_the_factor_of_each_epoch(options, expected):
    one = schedule(**options)

    assert [one.shape(epoch) for epoch in expected] == pytest.approx(list(expected.values()))


@pytest.mark.parametrize("name", SHAPES)
@given(st.floats(0, 200), st.floats(0, 200))
def test_a_shape_never_rises_and_stays_between_0_and_1(name, one, other):
    earlier, later = (schedule(name=name, **SHAPES[name]).shape(epoch) for epoch in sorted((one, other)))

    assert 0 <= later <= earlier <= 1


@pytest.mark.parametrize("name", sorted(set(SHAPES) - {"step"}))
def test_past_its_end_a_schedule_keeps_its_last_value(name):
    one = schedule(name=name, **SHAPES[name])

    assert one.shape(100) == one.shape(150)


# workers
@pytest.mark.parametrize(
    ("lr_scale", "expected"),
    [
        ("none", [1, 1, 1]),
        ("linear", [1, 4, 9]),
        ("sqrt", [1, 2, 3]),
        ("inverse", [1, 1 / 4, 1 / 9]),
        ("half", [1, 2, 4.5]),
        ("adascale", [1, 1, 1]),
    ],
)
def test_the_factor_for_1_4_and_9_workers(lr_scale, expected):
    assert [schedule(lr_scale=lr_scale).scale(members) for members in (1, 4, 9)] == pytest.approx(expected)


def test_auto_is_what_the_pool_of_workers_makes_of_the_rate():
    assert schedule(auto=lambda live: live / 8).scale(4) == 0.5
    assert schedule(auto=lambda live: live / 8, lr_scale="inverse").scale(4) == 0.25


def test_without_a_worker_the_rate_is_that_of_one_and_with_12_that_of_the_sharding_paper():
    assert [schedule(lr_scale=name).scale(0) for name in ("linear", "inverse", "half")] == [1, 1, 1]
    assert 0.1 * schedule(lr_scale="inverse").factor(5, members=12) == pytest.approx(0.0083333, abs=1e-7)


# warm-up
def test_the_warm_up_of_shat():
    """[SHAT]: base .01, n = 8, epoch 10 of 20 -> .045."""
    one = schedule(epochs=250, lr_scale="linear", warmup_epochs=20)

    assert [0.01 * one.factor(epoch, 8) for epoch in (0, 10, 20, 249)] == pytest.approx([0.01, 0.045, 0.08, 0.08])


@pytest.mark.parametrize(
    ("options", "factors"),
    [({"warmup_start": 0.1}, [0.1, 0.55, 1]), ({"lr_scale": "inverse", "warmup_start": 0.5}, [0.25] * 3)],
)
def test_a_warm_up_may_start_below_the_base_rate_and_never_above_where_it_leads(options, factors):
    one = schedule(warmup_epochs=10, **options)

    assert [one.factor(epoch, 4) for epoch in (0, 5, 10)] == pytest.approx(factors)


@pytest.mark.parametrize(
    ("scale", "start", "expected"),
    [
        (0.25, None, [0.0, 0.125, 0.25]),  # pushes on a quarter of the examples: from 0
        (1.0, None, [0.0, 0.5, 1.0]),
        (4.0, None, [1.0, 2.5, 4.0]),  # larger mini-batches: from the rate of one process [Goyal et al. 2017]
        (0.25, 0.2, [0.05, 0.15, 0.25]),
        (4.0, 0.2, [0.2, 2.1, 4.0]),
    ],
)
def test_a_warm_up_starts_where_the_rate_of_one_process_would(scale, start, expected):
    one = schedule(auto=lambda live: scale, warmup_epochs=10, warmup_start=start)

    assert [one.factor(epoch, 4) for epoch in (0, 5, 10)] == pytest.approx(expected)


def test_the_shape_goes_on_during_the_warm_up():
    one = schedule(name="polynomial", lr_scale="linear", warmup_epochs=20)

    assert one.factor(10, 8) == pytest.approx(4.5 * 0.9)


# workers that come and go
GROWN = ((4, 0.0), (8, 10.0))


@pytest.mark.parametrize(
    ("options", "changes", "expected"),
    [
        pytest.param({}, [(8, 3.0)], {3: 0.08}, id="the first ones are not ramped"),
        pytest.param({}, [(members, 0.0) for members in (1, 2, 3, 4)], {0: 0.04}, id="before the first example"),
        pytest.param({}, GROWN, {10: 0.04, 10.5: 0.06, 11: 0.08, 12: 0.08}, id="more raise the rate over one epoch"),
        pytest.param({}, [(8, 0.0), (4, 10.0)], {10: 0.04}, id="fewer lower it at once"),
        pytest.param(
            {}, [*GROWN, (7, 10.5)], {10.5: 0.06, 11: 0.065, 11.5: 0.07}, id="a ramp goes on from where it is"
        ),
        pytest.param({}, [*GROWN, (8, 10.5)], {11: 0.08}, id="as many again start no ramp again"),
        pytest.param(
            {"lr_scale": "inverse", "base": 1.0}, [(2, 0.0), (4, 1.0)], {1: 0.25}, id="divided, it falls at once"
        ),
        pytest.param(
            {"lr_scale": "inverse", "base": 1.0},
            [(2, 0.0), (4, 1.0), (2, 2.0)],
            {2: 0.25, 2.5: 0.375, 3: 0.5},
            id="divided, it rises slowly",
        ),
        *(
            pytest.param({"lr_scale": name}, [(1, 0.0), (9, 5.0)], {5: 0.01, 5.5: 0.01, 6: 0.01}, id=f"{name} stays")
            for name in ("none", "adascale")
        ),
        pytest.param(
            {"warmup_epochs": 20}, GROWN, {10: 0.025, 11: 0.01 * (1 + 7 * 11 / 20), 20: 0.08}, id="within the warm-up"
        ),
    ],
)
def test_the_rate_follows_workers_that_come_and_go(options, changes, expected):
    one = rate(**options)

    for members, epoch in changes:
        one.members_changed(members, epoch)

    assert [one.at(epoch) for epoch in expected] == pytest.approx(list(expected.values()))


@pytest.mark.parametrize("epoch", [5.0, 10.25, 10.75, 12.0])
def test_a_restored_rate_goes_on_alike(epoch):
    def changed(upto):
        one = rate(name="cosine", warmup_epochs=11)
        for members, when in ((4, 0.0), (8, 10.0), (6, 10.5)):
            if when <= upto:
                one.members_changed(members, when)
        return one

    one, restored = changed(epoch), rate(name="cosine", warmup_epochs=11)
    restored.restore(json.loads(json.dumps(one.state())))
    for both in (one, restored):
        both.members_changed(9, epoch + 0.1)

    assert [restored.at(epoch + step) for step in (0.1, 0.6, 2)] == [one.at(epoch + step) for step in (0.1, 0.6, 2)]


def test_a_rate_that_knows_no_workers_yet_can_be_restored_too():
    one = rate()

    one.restore(json.loads(json.dumps(rate().state())))
    one.members_changed(8, 3.0)

    assert one.at(3.0) == pytest.approx(0.08)


# AdaScale
def sums(gradients):
    """What a slice knows of a fold: the sum of the squared norms, the squared norm of the mean, the pushes."""
    mean = [sum(element) / len(gradients) for element in zip(*gradients, strict=True)]
    return sum(x * x for one in gradients for x in one), sum(x * x for x in mean), len(gradients)


@pytest.mark.parametrize(
    ("fold", "gain"),
    [
        (sums([[2, 0], [1, 0]]), 2.5 / 2.25),  # variance 5 - 2 * 2.25 = 0.5, square 2.25 - 0.25 = 2, gain 2.5 / 2.25
        (sums([[3, 4]] * 8), 1),
        (sums([[1, 0, 0], [0, 1, 0], [0, 0, 1]]), 3),
        ((0.0, 0.0, 4), 1),
    ],
    ids=["two, by hand", "equal ones gain nothing", "as many as share no direction", "gradients of zero"],
)
def test_what_gradients_gain(fold, gain):
    assert AdaScale().observe(*fold) == pytest.approx(gain)


def test_one_gradient_or_none_gains_nothing_and_tells_nothing():
    one = AdaScale()

    gains = [one.observe(25.0, 25.0, 1), one.observe(0.0, 0.0, 0)]

    assert gains == [1, 1]
    assert one.state() == AdaScale().state()


def test_the_gain_is_of_averages_over_folds():
    """Variances 0.5 and 2, squares 2 and 0: their means weighted by when they came, the later one by 1 / 0.998 more."""
    one = AdaScale()
    one.observe(*sums([[2, 0], [1, 0]]))

    gain = one.observe(*sums([[1, 1], [1, -1]]))

    variance, square = 0.998 * 0.5 + 2, 0.998 * 2
    assert gain == pytest.approx((variance + square) / (variance / 2 + square))


def test_a_fold_that_is_not_finite_is_not_remembered():
    one = AdaScale()
    before = one.observe(*sums([[2, 0], [1, 0]]))

    assert [one.observe(math.inf, 1.0, 2), one.observe(1.0, math.nan, 2)] == [before, before]


@given(st.lists(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2), min_size=1, max_size=9), min_size=1))
def test_the_gain_is_never_below_1_nor_above_the_pushes(folds):
    one = AdaScale()

    for gradients in folds:
        assert 1 <= one.observe(*sums(gradients)) <= len(gradients)


def test_a_restored_adascale_goes_on_alike():
    one, restored = AdaScale(), AdaScale()
    one.observe(*sums([[2, 0], [1, 0]]))

    restored.restore(json.loads(json.dumps(one.state())))

    assert restored.observe(*sums([[1, 1], [1, -1]])) == one.observe(*sums([[1, 1], [1, -1]]))
    assert restored.gain(4) == one.gain(4) > 1
