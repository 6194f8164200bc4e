"""The learning rate of one slice: it follows the examples counted, the members, and AdaScale's gain."""

import pytest

from paceline.core.optimizers.schedule import Schedule
from paceline.core.settings.config import ScheduleConfig
from paceline.core.slice.rate import Rate
from paceline.core.values import Seat, Switch, View
from tests.support.one_slice import OneSlice

HALVED = {"name": "step", "every": 1, "gamma": 0.5}
"""Half the rate after every epoch."""


def slice_with(policy="asp", workers="ab", per_epoch=4, weights=(0.0,), schedule=None, **options):
    config = ScheduleConfig(**({"lr_scale": "none"} | (schedule or {})))
    return OneSlice(policy, workers, weights, schedule=config, epochs=8, per_epoch=per_epoch, **options)


def rates(one, *pushes):
    """The rates in the replies to pushes of `worker` with this number of examples."""
    return [reply.lr for worker, examples in pushes for reply in one.push(worker, 1.0, examples=examples)]


def test_the_schedule_follows_the_examples_counted():
    one = slice_with(schedule=HALVED)

    found = rates(one, ("a", 2), ("b", 2), ("a", 3), ("a", 1), ("b", 4))

    assert found == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025])
    assert one.weights == pytest.approx([-0.325])


def test_every_push_of_a_round_has_the_rounds_rate():
    """Four examples are an epoch: the first push of the second one does not end it for the second push."""
    one = slice_with("bsp", schedule=HALVED)

    found = [rates(one, ("a", 3), ("b", 1)), rates(one, ("b", 3), ("a", 1))]

    assert found == [pytest.approx([0.1, 0.1]), pytest.approx([0.05, 0.05])]
    assert one.weights == pytest.approx([-0.15])


def test_members_of_an_allreduce_have_one_rate_in_a_round_whoever_reports_it_first():
    """Otherwise their models would drift apart. Four examples are an epoch; each round passes the end of one."""
    one = slice_with("allreduce", schedule=HALVED)

    found = [rates(one, *pushes) for pushes in ([("a", 3), ("b", 3)], [("b", 3), ("a", 3)], [("a", 1), ("b", 1)])]
    one.seats("a", "b", c=Seat(1, 2))  # it joined a round later than the chief took it for
    joined = one.push("c", examples=9, round=4) + one.push("b", examples=1) + one.push("a", examples=1)

    assert found == [pytest.approx([rate, rate]) for rate in (0.1, 0.05, 0.0125)]
    assert [reply.lr for reply in joined] == pytest.approx([0.0125] * 3)


def test_a_worker_that_comes_back_does_not_find_the_rates_of_rounds_long_ago():
    one = slice_with("allreduce", schedule=HALVED)
    rates(one, ("a", 4), ("b", 4), ("a", 4), ("b", 4))

    one.seats("a")
    one.seats("a", b=Seat(2, 0))
    one.push("a", examples=4)

    now = one.slice.lr
    assert [reply.lr for reply in one.push("b", incarnation=2, round=2)] == [now]
    assert now == pytest.approx(0.1 / 16)


def test_what_is_in_an_open_sum_does_not_move_the_schedule():
    one = slice_with("kbuffered", k=2, schedule=HALVED)

    found = rates(one, ("a", 3), ("b", 1), ("a", 1), ("b", 1))

    assert found == pytest.approx([0.1, 0.1, 0.05, 0.05])


def test_the_rate_is_the_first_one_until_the_size_of_an_epoch_is_known():
    one = slice_with(per_epoch=0, schedule=HALVED)

    assert rates(one, ("a", 4), ("a", 400), ("a", 4)) == pytest.approx([0.1] * 3)


def test_a_scale_in_the_schedule_wins_over_the_policys():
    one = slice_with("bsp", "abcd", schedule={"lr_scale": "sqrt"})

    assert one.slice.lr == pytest.approx(0.2)


def test_a_departure_lowers_the_rate_at_once():
    one = slice_with("asp", "abcd", schedule={"lr_scale": "linear"})
    before = rates(one, ("a", 4), ("b", 4))

    one.seats("a", "b", "c")

    assert before + rates(one, ("a", 4)) == pytest.approx([0.4, 0.4, 0.3])


def test_a_join_raises_the_rate_over_an_epoch():
    one = slice_with("asp", "ab", schedule={"lr_scale": "linear"})
    rates(one, ("a", 4), ("b", 0))
    assert one.slice.lr == pytest.approx(0.2)

    one.seats("a", "b", "c", "d")

    assert rates(one, ("a", 2), ("b", 2), ("a", 4)) == pytest.approx([0.2, 0.3, 0.4])


def test_a_change_of_policy_in_mid_ramp_ends_no_ramp():
    one = slice_with("asp", "ab", schedule={"lr_scale": "linear"})
    rates(one, ("a", 4), ("b", 0))
    one.seats("a", "b", "c", "d")
    rates(one, ("a", 2))

    seats = {worker: Seat(1, 0, switch_clock=one.slice.clocks.entry(worker).clock) for worker in "abcd"}
    one.slice.view(View(one.slice.clocks.view.number + 1, seats, 4, Switch(1, {"name": "ssp"}, 9)))

    assert one.slice.switch is not None
    assert one.slice.lr == pytest.approx(0.3)


def test_joins_before_the_first_example_need_no_ramp():
    one = slice_with("asp", "ab", schedule={"lr_scale": "linear"})

    one.seats("a", "b", "c")

    assert rates(one, ("a", 1)) == pytest.approx([0.3])


# AdaScale
ADASCALE = {"lr_scale": "adascale"}
GAIN = 2.5 / 2.25
"""Of [2, 0] and [1, 0]: variance 5 - 2 * 2.25 = .5, square 2.25 - .25 = 2."""


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("bsp", {}),
        ("bsp", {"workers": "abc"}),  # an empty update is not one of the gradients: the gain is that of two
        ("kbuffered", {"k": 2}),
        ("rennala", {"b": 2}),
    ],
)
def test_adascale_multiplies_the_step_on_a_mean_by_the_gain_of_its_gradients(policy, options):
    one = slice_with(policy, weights=(0.0, 0.0), schedule=ADASCALE, **options)

    one.push("a", 2.0, 0.0)
    one.push("b", 1.0, 0.0)
    for worker in options.get("workers", "")[2:]:
        one.push(worker)

    assert one.weights == pytest.approx([-0.1 * GAIN * 1.5, 0])


def test_adascales_sums_of_squares_start_anew_with_every_round():
    """Equal gradients in the first round: variance 0, square 1, gain 1. The averages after the second (the older kept to
    .998): variance .5, square 2 + .998."""
    one = slice_with("bsp", weights=(0.0, 0.0), per_epoch=0, schedule=ADASCALE)
    for worker in "ab":
        one.push(worker, 0.0, 1.0)
    assert one.weights == pytest.approx([0, -0.1])

    one.push("a", 2.0, 0.0)
    one.push("b", 1.0, 0.0)

    gain = (0.5 + 2.998) / (0.25 + 2.998)
    assert one.weights == pytest.approx([-0.1 * gain * 1.5, -0.1])


def test_adascales_schedule_advances_by_the_gain():
    """Two equal gradients are worth one: an epoch of 4 examples takes two rounds of 4."""
    one = slice_with("bsp", schedule=ADASCALE | HALVED)

    found = [rates(one, ("a", 2), ("b", 2))[0] for _ in range(4)]

    assert found == pytest.approx([0.1, 0.1, 0.05, 0.05])


def test_gradients_that_share_no_direction_take_adascale_through_the_schedule_at_full_speed():
    one = slice_with("bsp", weights=(0.0, 0.0), schedule=ADASCALE | HALVED)

    one.push("a", 1.0, 0.0, examples=3)
    one.push("b", 0.0, 1.0, examples=3)

    assert one.weights == pytest.approx([-0.1, -0.1])  # gain 2 on the mean [.5, .5]
    assert one.slice.lr == pytest.approx(0.05)


# snapshots
@pytest.mark.parametrize(
    "schedule", [ADASCALE | HALVED, {"lr_scale": "linear", "name": "cosine", "warmup_epochs": 1.0}], ids=str
)
def test_a_restarted_slice_has_the_rate_it_would_have_had(schedule):
    steady, restarted = (slice_with("bsp", weights=(0.0, 0.0), schedule=schedule) for _ in range(2))

    for step in range(6):
        for one in (steady, restarted):
            if step == 2:
                one.seats("a", "b", c=Seat(1, handicap=2))
            for place, worker in enumerate(sorted(one.slice.clocks.members)):
                one.push(worker, 2.0 - place, 0.1 * step)
        restarted.restart()

        assert restarted.slice.lr == steady.slice.lr
        assert restarted.weights == steady.weights


def test_a_rate_without_adascale_needs_no_squares():
    assert not Rate(Schedule(ScheduleConfig(lr_scale="linear"), 1.0), 0.1).needs_squares
    assert Rate(Schedule(ScheduleConfig(lr_scale="adascale"), 1.0), 0.1).needs_squares
