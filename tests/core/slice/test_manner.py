"""How to step travels with pushes: what a fold of several makes of it, what a restart keeps."""

import pytest

from paceline.core.errors import BadPush
from paceline.core.optimizers.builtin.adam import Adam
from paceline.core.optimizers.builtin.sgd import Sgd, plain_sgd
from paceline.core.optimizers.layout import Layout
from paceline.core.values import AS_SET, GroupOption, Manner, together
from tests.support.one_slice import OneSlice

LAYOUT = Layout.whole([("a", (1,)), ("b", (1,)), ("c", (1,))])
PLAIN = plain_sgd(0.1)
MOMENTUM = GroupOption(0, "momentum", (0.9,))


def three(policy: str, optimizer: object = PLAIN, **options: object) -> OneSlice:
    return OneSlice(policy, ["a", "b"], [1, 1, 1], optimizer, layout=LAYOUT, **options)


def test_a_fold_takes_the_mean_of_the_rates_and_leaves_alone_what_all_do():
    one = three("bsp")

    one.push("b", 1, 0, 0, manner=Manner((0.5,), (1, 2)))
    one.push("a", 1, 1, 0, manner=Manner((1.0,), (2,)))

    assert one.weights == pytest.approx([1 - 0.1 * 0.75 * 1, 1 - 0.1 * 0.75 * 0.5, 1.0])


def test_a_push_that_says_nothing_has_rates_of_one_and_touches_all():
    assert together([Manner((0.5, 0.2), (1,)), AS_SET]) == Manner((0.75, 0.6), ())
    assert together([AS_SET, AS_SET]) is AS_SET
    assert together([]) == AS_SET
    first, second = Manner(options=(GroupOption(0, "betas", (0.8, 1.0)),)), Manner(options=(MOMENTUM,))
    third = Manner(options=(GroupOption(0, "betas", (0.6, 0.5)),))
    assert together([first, second, third]).options == (GroupOption(0, "betas", (0.7, 0.75)), MOMENTUM)
    same = Manner((1 / 49,))
    assert together([same] * 49) == same, "to the last bit"


def test_an_empty_push_has_no_say():
    one = three("bsp")

    one.push("b", manner=Manner((7.0,)))
    one.push("a", 1, 1, 1, manner=Manner((0.5,), (2,)))

    assert one.weights == pytest.approx([0.95, 0.95, 1.0])


def test_the_next_round_knows_nothing_of_the_last_one():
    one = three("bsp")
    for worker in ("a", "b"):
        one.push(worker, 1, 1, 1, manner=Manner((0.5,), (2,)))

    for worker in ("a", "b"):
        one.push(worker, 1, 1, 1)

    assert one.weights == pytest.approx([0.85, 0.85, 0.9])


def test_what_is_left_alone_neither_decays_nor_moves_nor_forgets():
    one = three("asp", Sgd(lr=0.1, momentum=0.5, weight_decay=0.1))
    one.push("a", 1, 1, 1)
    before = one.weights

    one.push("a", 0, 1, 1, manner=Manner(untouched=(0,)))

    assert one.weights[0] == before[0]
    assert float(one.slice.state().slots[0][0]) == pytest.approx(1.1)
    one.push("a", 0, 1, 1)
    assert one.weights[0] == pytest.approx(before[0] - 0.1 * (0.5 * 1.1 + 0.1 * before[0]))


@pytest.mark.parametrize(("policy", "option"), [("kbuffered", "k"), ("rennala", "b")])
def test_a_sum_that_waits_keeps_its_manners_over_a_restart(policy, option):
    still, back = (three(policy, **{option: 3}) for _ in range(2))
    for one in (still, back):
        one.push("a", 1, 0, 0, manner=Manner((0.5,), (1, 2), (GroupOption(0, "weight_decay", (0.5,)),)))
    assert still.slice.state().gathered is not None

    back.restart()
    for one in (still, back):
        for worker in ("b", "a", "b", "a", "b"):
            one.push(worker, 1, 0, 0, manner=Manner((0.1,), (2,)))

    assert back.weights[2] == 1.0
    assert back.weights == pytest.approx(still.weights)


def test_a_snapshot_without_them_is_as_it_was_before_there_were_any():
    one = three("kbuffered", k=5)
    one.push("a", 1, 1, 1)

    assert {"missed", "manners"}.isdisjoint(one.slice.state().table)


def test_an_option_counts_for_its_step_alone():
    one = three("asp", Sgd(lr=0.1, momentum=0.5, weight_decay=0.0))
    one.push("a", 1, 1, 1)

    one.push("a", 1, 1, 1, manner=Manner(options=(MOMENTUM, GroupOption(0, "weight_decay", (0.1,)))))
    two = 1 - 0.1 - 0.1 * (0.9 * 1 + 1 + 0.1 * 0.9)
    assert one.weights == pytest.approx([two] * 3)
    one.push("a", 1, 1, 1)
    assert one.weights == pytest.approx([two - 0.1 * (0.5 * 1.99 + 1)] * 3)


def test_a_momentum_that_was_zero_is_remembered_from_its_first_step_and_over_a_restart():
    one = three("asp", PLAIN)
    one.push("a", 1, 1, 1)

    for _ in range(2):
        one.push("a", 1, 1, 1, manner=Manner(options=(MOMENTUM,)))
        one.restart()

    assert one.weights == pytest.approx([1 - 0.1 * (1 + 1 + 1.9)] * 3)


def test_steps_of_adam_count_for_each_tensor_by_itself():
    one, other = three("asp", Adam(lr=0.1)), three("asp", Adam(lr=0.1))
    for _ in range(5):
        one.push("a", 1, 1, 1, manner=Manner(untouched=(0,)))
    one.restart()
    one.push("a", 3, 1, 1)
    other.push("a", 3, 1, 1)

    assert one.weights[0] == other.weights[0]


@pytest.mark.parametrize(
    ("manner", "told"),
    [
        (Manner((1.0, 2.0)), "expected 1, one for each group"),
        (Manner(untouched=(3,)), "the model has 3, counted from 0"),
        (Manner(options=(GroupOption(1, "momentum", (0.5,)),)), "No group 1 of the optimizer has an option 'momentum'"),
        (Manner(options=(GroupOption(0, "betas", (0.5, 0.5)),)), "No group 0 of the optimizer has an option 'betas'"),
        (Manner(options=(GroupOption(0, "lr", (0.5,)),)), "option 'lr' that may change"),
        (Manner(options=(GroupOption(0, "momentum", (1.5,)),)), "optimizer.momentum: got 1.5; .* less than 1"),
        (Manner(options=(GroupOption(0, "momentum", ()),)), r"optimizer.momentum: got \(\)"),
        (Manner(options=(GroupOption(0, "weight_decay", (1e6,)),)), r"product is 100000; expected at most 1"),
        (Manner((1e5,), options=(GroupOption(0, "weight_decay", (0.1,)),)), r"product is 1000; expected at most 1"),
    ],
)
def test_what_can_not_be_right_is_refused_and_changes_nothing(manner, told):
    one = three("asp")

    with pytest.raises(BadPush, match=told):
        one.push("a", 1, 1, 1, manner=manner)

    assert (one.weights, one.slice.clocks.entry("a").clock) == ([1, 1, 1], 0)
