"""A slice that takes sparse updates: each place counts once, replies bring what has changed, nothing else is touched."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import BadPush, ConfigError
from paceline.core.linear.sparse import Changes, decode_places, distinct, encode_places, merged, overwritten
from paceline.core.optimizers.builtin.ftrl import Ftrl
from paceline.core.settings.config import Options, ScheduleConfig
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.sparse_folding import SparseFolding
from paceline.core.values import Base, Outcome, Places, Sparse
from paceline.settings.load_settings import load
from tests.support.one_slice import OneSlice

PLAIN_SGD = Options(name="sgd", lr=0.1, momentum=0.0, weight_decay=0.0)
HALVED = ScheduleConfig(name="step", every=1, gamma=0.5, lr_scale="none")
PLACES = st.lists(st.integers(0, 200_000), unique=True, max_size=60).map(lambda some: np.array(sorted(some), np.int64))


class OneSparseSlice(OneSlice):
    folding = SparseFolding


def change(length: int = 8, **values: float) -> Sparse:
    """change(_3=0.5, _7=-1) changes places 3 and 7."""
    places = sorted(int(name[1:]) for name in values)
    return Sparse(np.array(places, np.int64), np.array([values[f"_{n}"] for n in places], np.float32), length)


def slice_of(policy: str = "asp", **options: object) -> OneSparseSlice:
    return OneSparseSlice(policy, weights=[0.0] * 8, **options)


def weights(one: OneSparseSlice) -> list[float]:
    found = one.slice.pull()
    return [round(float(value), 6) for value in found.values]


def answered(
    one: OneSparseSlice, base: Base, wanted: Places | None = None, also: tuple[int, ...] = ()
) -> dict[int, float]:
    found = one.slice.answer(base, wanted, np.array(also, np.int64), 100)
    return {int(place): round(float(value), 6) for place, value in zip(found.places, found.values, strict=True)}


@given(PLACES)
def test_places_are_read_back_as_they_were_sent(places: Places):
    np.testing.assert_array_equal(decode_places(encode_places(places), 200_001, "a"), places)


def test_places_that_are_close_take_two_bytes_and_others_four():
    assert len(encode_places(np.array([5, 70, 65_000]))) == 1 + 3 * 2
    assert len(encode_places(np.array([5, 70, 70_000]))) == 1 + 3 * 4
    assert encode_places(np.array([], np.int64)) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"\x02",
        b"\x03\x00",
        b"\x02\x00",
        b"\x04\x01\x00",
        b"\x02\x01\x00\x00\x00",  # twice the same
        b"\x02\x08\x00",  # beyond the slice
        b"\x04\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
)
def test_damaged_places_are_refused(data: bytes):
    with pytest.raises(BadPush, match="positions"):
        decode_places(data, 8, "worker-0")


@given(st.binary(max_size=40))
def test_any_bytes_are_places_or_refused(data: bytes):
    try:
        places = decode_places(data, 50, "worker-0")
    except BadPush:
        return
    assert (np.diff(places) > 0).all()
    assert not len(places) or 0 <= places[0] <= places[-1] < 50


@given(st.lists(PLACES, min_size=1, max_size=5))
def test_places_of_several_updates_come_once_and_rise(every: list[Places]):
    together = np.concatenate(every)
    np.testing.assert_array_equal(distinct(together), np.unique(together))


@given(st.lists(PLACES, min_size=1, max_size=5))
def test_a_sum_of_updates_is_that_of_their_dense_forms(every: list[Places]):
    updates = [Sparse(places, (places % 7 - 3).astype(np.float32), 200_001) for places in every]
    dense = np.zeros(200_001, np.float32)
    for update in updates:
        dense[update.places] += update.values

    total = merged(updates, 200_001)

    np.testing.assert_array_equal(total.values, dense[total.places])
    assert set(np.flatnonzero(dense)) <= set(total.places.tolist())


def test_a_later_value_takes_the_place_of_an_earlier_one():
    both = overwritten(change(_1=1, _3=1), change(_3=5, _6=2))

    assert both.places.tolist() == [1, 3, 6]
    assert both.values.tolist() == [1, 5, 2]


def test_a_push_changes_its_places_at_once_and_nothing_else():
    one = slice_of("asp")

    (reply,) = one.push("a", update=change(_1=0.5, _7=-2))
    one.push("b", update=change(_7=1))
    one.push("a")

    assert (reply.outcome, one.slice.version) == (Outcome.FOLDED, 2), "an empty push makes no version"
    assert weights(one) == [0, 0.5, 0, 0, 0, 0, 0, -1]


def test_the_reply_brings_what_has_changed_since_the_base_or_what_was_wanted():
    one = slice_of("asp")
    one.push("a", update=change(_1=0.5))
    one.push("b", update=change(_2=1, _4=1))
    one.push("b", update=change(_4=2))

    assert answered(one, Base(1, 0)) == {1: 0.5, 2: 1, 4: 3}
    assert answered(one, Base(1, 2)) == {4: 3}
    assert answered(one, Base(1, 3)) == {}
    assert answered(one, Base(1, 3), also=(1, 4)) == {1: 0.5, 4: 3}
    assert answered(one, Base(1, 0), np.array([0, 1])) == {0: 0, 1: 0.5}


def test_a_base_of_an_earlier_term_or_too_many_places_ask_for_the_whole_slice():
    one = slice_of("asp")
    one.push("a", update=change(_1=0.5))

    assert one.slice.answer(Base(0, 1), None, np.empty(0, np.int64), 100) is None
    assert one.slice.answer(Base(1, 0), np.arange(8), np.empty(0, np.int64), 7) is None


def test_changes_of_long_ago_are_forgotten():
    changes = Changes(4, 0)
    for version in range(1, 6):
        changes.note(version, np.array([version % 4, 4 + version]))

    assert changes.since(0) is None
    found = changes.since(3)
    assert found.tolist() == [0, 1, 8, 9]


def test_a_round_sums_the_changes_of_all_workers():
    one = slice_of("bsp")

    assert one.push("b", update=change(_1=1, _2=1)) == []
    replies = one.push("a", update=change(_1=2))

    assert sorted(reply.worker for reply in replies) == ["a", "b"]
    assert weights(one) == [0, 3, 1, 0, 0, 0, 0, 0]
    assert answered(one, Base(1, 0)) == {1: 3, 2: 1}


def test_a_worker_that_leaves_is_not_waited_for_any_more():
    one = slice_of("bsp")
    one.push("a", update=change(_1=1))

    one.seats("a")

    assert weights(one)[1] == 1


def test_everyone_has_to_contribute_and_nobody_waits():
    one = slice_of("everyone")

    first = one.push("a", update=change(_1=1))
    again = one.push("a", update=change(_1=4, _2=1))
    before = weights(one)
    one.push("b", update=change(_1=10))

    assert len(first) == len(again) == 1
    assert first[0].outcome is Outcome.BUFFERED
    assert before == [0] * 8
    assert weights(one) == [0, 15, 1, 0, 0, 0, 0, 0]


def test_a_second_push_overwrites_the_features_of_the_first_as_published():
    one = slice_of("everyone", merge="overwrite")

    one.push("a", update=change(_1=1, _3=1))
    one.push("a", update=change(_1=4, _2=1))
    one.push("b", update=change(_1=10))

    assert weights(one) == [0, 14, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("merge", ["sum", "overwrite"])
@pytest.mark.parametrize("restart", range(4))
def test_a_sum_goes_on_after_a_restart_as_if_there_had_been_none(merge: str, restart: int):
    ended = []
    for restarts in (False, True):
        one = OneSparseSlice("everyone", "abc", [0.0] * 8, merge=merge)
        pushes = [
            ("a", change(_1=1, _3=1)),
            ("b", change(_1=2)),
            ("a", change(_1=4)),
            ("b", change(_3=8)),
            ("c", change()),
        ]
        for number, (worker, update) in enumerate(pushes):
            one.push(worker, update=update)
            if restarts and number == restart:
                one.restart()
        ended.append(weights(one))

    assert ended[0] == ended[1] == {"sum": [0, 7, 0, 9, 0, 0, 0, 0], "overwrite": [0, 6, 0, 9, 0, 0, 0, 0]}[merge]


def test_overwriting_needs_sparse_updates():
    overwriting = {"policy": {"name": "everyone", "merge": "overwrite"}}

    with pytest.raises(ConfigError, match=r"works by features and needs updates: sparse"):
        load(None, overwriting)
    load(None, {**overwriting, "updates": "sparse", "optimizer": PLAIN_SGD.model_dump()})


def test_adascale_does_not_go_with_sparse_updates():
    scaled = {"policy": "bsp", "schedule": {"lr_scale": "adascale"}}

    with pytest.raises(ConfigError, match=r"adascale measures gradients; sparse updates are changes"):
        load(None, {**scaled, "updates": "sparse", "optimizer": PLAIN_SGD.model_dump()})
    load(None, scaled)


def test_an_empty_update_counts_for_the_round_and_changes_nothing():
    one = slice_of("bsp")
    one.push("a")
    one.push("b", update=change(_1=1))

    assert weights(one)[1] == 1
    assert one.slice.version == 1


def test_each_form_of_update_is_refused_where_the_other_belongs():
    with pytest.raises(BadPush, match="takes sparse updates"):
        slice_of().push("a", *([1.0] * 8))
    dense = OneSlice("asp", weights=[0.0] * 8)
    assert type(dense.slice) is ModelSlice
    with pytest.raises(BadPush, match="sparse update to a slice of dense ones"):
        dense.push("a", update=change(_1=1))


@pytest.mark.parametrize("policy", ["asp", "bsp", "everyone"])
def test_a_snapshot_keeps_what_is_counted(policy: str):
    one = slice_of(policy)
    one.push("a", update=change(_1=1))
    one.push("b", update=change(_1=2))
    one.push("a", update=change(_5=1))

    one.restart()

    expected = {"asp": [3, 1], "bsp": [3, 0], "everyone": [3, 0]}[policy]
    assert [weights(one)[1], weights(one)[5]] == expected
    if policy == "everyone":
        one.push("b", update=change(_6=1))
        assert [weights(one)[5], weights(one)[6]] == [1, 1]


def test_a_restarted_slice_goes_on_with_what_ftrl_remembers():
    ended = []
    for restarts in (False, True):
        one = slice_of("asp", optimizer=Ftrl(lr=0.5, l1=0.25))
        one.push("a", update=change(_1=1, _5=-2))
        if restarts:
            one.restart()
        one.push("b", update=change(_1=1, _2=0.2))
        ended.append(weights(one))

    assert ended[0] == ended[1]
    assert np.flatnonzero(ended[0]).tolist() == [1, 5]


def test_a_round_of_gradients_makes_one_step_on_their_sum():
    rounds, alone = slice_of("bsp", optimizer=Ftrl(lr=0.5)), slice_of("asp", optimizer=Ftrl(lr=0.5))
    rounds.push("a", update=change(_1=1, _3=2))
    rounds.push("b", update=change(_1=2))
    alone.push("a", update=change(_1=3, _3=2))

    assert weights(rounds) == weights(alone)
    assert rounds.slice.version == 1


def test_a_pull_is_a_copy():
    one = slice_of("asp")
    found = one.slice.pull()
    one.push("a", update=change(_1=1))

    assert not found.values.any()


def test_a_stale_change_counts_less_where_the_policy_says_so():
    one = slice_of("staleness_aware")
    one.push("a", update=change(_1=1))
    one.push("a", update=change(_1=1), base=Base(1, 1))
    one.push("b", update=change(_2=1), base=Base(1, 0))

    assert weights(one)[1] == 2
    assert weights(one)[2] == 0.5


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("asp", [0.1, 0.05, 0.025, 0.0125]), ("everyone", [0.1, 0.1, 0.025, 0.025])],  # everyone folds every second push
)
def test_the_rate_that_workers_are_told_falls_and_their_changes_are_added_as_they_are(
    policy: str, expected: list[float]
):
    """Each push is an epoch: the next rate is lower already when it folds."""
    one = slice_of(policy, schedule=HALVED, epochs=4, per_epoch=4)

    told = [one.push(worker, update=change(_1=1), examples=4)[0].lr for worker in ("a", "b", "a", "b")]

    assert told == expected
    assert weights(one)[1] == 4


def test_the_workers_of_a_round_are_told_the_same_rate_and_their_sum_is_added_as_it_is():
    one = slice_of("bsp", schedule=HALVED, epochs=4, per_epoch=8)

    rounds = []
    for _ in range(3):
        one.push("b", update=change(_1=1), examples=4)
        rounds.append([reply.lr for reply in one.push("a", update=change(_1=1), examples=4)])

    assert rounds == [[0.1, 0.1], [0.05, 0.05], [0.025, 0.025]]
    assert weights(one)[1] == 6


def test_a_stale_change_counts_less_under_a_falling_rate_too_and_its_worker_is_told_the_whole_rate():
    one = slice_of("staleness_aware", schedule=HALVED, epochs=4, per_epoch=4)
    one.push("a", update=change(_1=1), examples=4)
    one.push("a", update=change(_1=1), base=Base(1, 1), examples=4)

    (reply,) = one.push("b", update=change(_2=1), base=Base(1, 0), examples=4)

    assert (reply.staleness, reply.lr) == (2, 0.025)
    assert weights(one)[2] == 0.5


def test_empty_updates_are_not_remembered_as_changes():
    changes = Changes(4, 0)
    changes.note(1, np.array([2]))
    for version in range(2, 1000):
        changes.note(version, np.empty(0, np.int64))

    assert len(changes._folds) == 1
    found = changes.since(0)
    assert found.tolist() == [2]
