"""A worker's place in its data follows from its clock alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import ConfigError, DataError
from paceline.data.sampler import Position, Sampler, proportions, steps_per_epoch

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=4)


def sampler(sizes=(10,), batch_size=4, seed=0, worker="worker-0"):
    return Sampler(sizes, batch_size, steps_per_epoch(sizes, [range(len(sizes))], batch_size), seed, worker)


def test_an_epoch_has_as_many_steps_as_the_worker_with_most_examples_needs():
    assert steps_per_epoch([10, 9, 9], [[0], [1], [2]], batch_size=3) == 4
    assert steps_per_epoch([10, 9, 9], [[0, 1], [2]], batch_size=3) == 7


def test_clocks_count_through_the_epochs_from_one():
    batches = sampler(sizes=[10], batch_size=4)

    assert [batches.position(clock) for clock in (1, 3, 4, 7)] == [
        Position(0, 0),
        Position(0, 2),
        Position(1, 0),
        Position(2, 0),
    ]


@given(SIZES, st.integers(1, 12), st.integers(0, 2**70), st.integers(0, 5))
def test_every_example_comes_once_in_each_epoch(sizes, batch_size, seed, epoch):
    steps = steps_per_epoch(sizes, [range(len(sizes))], batch_size)
    batches = Sampler(sizes, batch_size, steps, seed, "worker-3")

    found = [batches.indices(epoch * steps + step) for step in range(1, steps + 1)]

    assert sorted(np.concatenate(found).tolist()) == list(range(sum(sizes)))
    assert max(map(len, found)) <= batch_size
    assert max(map(len, found)) - min(map(len, found)) <= 1


@given(SIZES, st.integers(1, 12), st.lists(st.integers(1, 200), min_size=1, max_size=5))
def test_a_worker_may_resume_at_any_clock(sizes, batch_size, clocks):
    straight = sampler(sizes, batch_size)
    history = {clock: straight.indices(clock).tolist() for clock in range(1, max(clocks) + 1)}

    for clock in clocks:
        assert sampler(sizes, batch_size).indices(clock).tolist() == history[clock]


@given(st.lists(SIZES, min_size=1, max_size=4), st.integers(1, 12))
def test_all_workers_make_equally_many_steps(holdings, batch_size):
    sizes = [size for own in holdings for size in own]
    ends = np.cumsum([len(own) for own in holdings])
    owned = [range(end - len(own), end) for own, end in zip(holdings, ends, strict=True)]

    steps = steps_per_epoch(sizes, owned, batch_size)

    for number, own in enumerate(holdings):
        batches = Sampler(own, batch_size, steps, 0, f"worker-{number}")
        assert batches.position(steps) == Position(0, steps - 1)
        assert sum(len(batches.indices(clock)) for clock in range(1, steps + 1)) == sum(own)


@given(SIZES)
def test_a_batch_names_the_shard_and_the_row(sizes):
    batches = sampler(sizes, batch_size=7)
    flat = [(shard, row) for shard, size in enumerate(sizes) for row in range(size)]

    batch = batches.batch(1)

    assert list(zip(batch.shards, batch.rows, strict=True)) == [flat[index] for index in batches.indices(1)]
    assert len(batch) == len(batches.indices(1))


def test_epochs_workers_and_seeds_have_different_orders():
    def order(clock=1, **changed):
        return tuple(sampler([100], 100, **changed).indices(clock))

    assert len({order(), order(clock=2), order(worker="worker-1"), order(seed=1)}) == 4


def test_a_worker_with_fewer_examples_than_steps_gets_empty_batches():
    batches = Sampler([2], batch_size=1, steps_per_epoch=3, seed=0, worker="worker-1")

    assert [len(batches.batch(clock)) for clock in (1, 2, 3)] == [1, 1, 0]


def test_a_shorter_epoch_takes_other_examples_each_time():
    """Duplicates that other workers have too: 10 examples, of which an epoch takes 6."""
    batches = Sampler([7, 3], batch_size=4, steps_per_epoch=2, seed=0, worker="worker-1", length=6)

    epochs = [[*batches.indices(clock).tolist(), *batches.indices(clock + 1).tolist()] for clock in range(1, 20, 2)]

    assert [len(set(epoch)) for epoch in epochs] == [6] * 10
    assert {row for epoch in epochs for row in epoch} == set(range(10))
    assert batches.position(3) == Position(1, 0)


@given(st.integers(0, 10**6), st.lists(st.floats(0.01, 100), min_size=1, max_size=8))
def test_proportions_are_whole_and_less_than_one_off(count, weights):
    found = proportions(count, weights)

    assert sum(found) == count
    for number, weight in zip(found, weights, strict=True):
        assert abs(number - count * weight / sum(weights)) < 1 + 1e-6


def test_equal_proportions_give_the_first_what_is_left():
    assert proportions(11, [1] * 4) == [3, 3, 3, 2]
    assert proportions(4, [1, 1, 2]) == [1, 1, 2]


def test_the_order_of_a_run_never_changes_between_releases():
    assert (
        sampler([6], 6, seed=7).indices(1).tolist() == np.random.default_rng([7, 1262436406, 0]).permutation(6).tolist()
    )


@pytest.mark.parametrize("clock", [0, -1])
def test_a_clock_below_one_is_refused(clock):
    with pytest.raises(DataError, match="No step leads to clock"):
        sampler().indices(clock)


def test_shards_that_do_not_fit_into_the_steps_are_refused():
    with pytest.raises(ConfigError, match="worker-1 has 13 examples, but 3 steps of 4 reach only 12"):
        Sampler([13], batch_size=4, steps_per_epoch=3, seed=0, worker="worker-1")


def test_a_worker_without_examples_is_refused():
    with pytest.raises(DataError, match="has no examples"):
        Sampler([], batch_size=4, steps_per_epoch=3, seed=0, worker="worker-1")
    with pytest.raises(DataError, match="No worker has any examples"):
        steps_per_epoch([3], [[]], batch_size=1)


def test_a_batch_size_below_one_is_refused():
    with pytest.raises(ConfigError, match="batch_size is 0"):
        steps_per_epoch([3], [[0]], batch_size=0)


def test_without_a_shuffle_examples_keep_their_order_and_with_fills_mini_batches_are_full() -> None:
    plain = Sampler([5, 4], batch_size=4, steps_per_epoch=3, seed=0, worker="worker-1", shuffle=False)
    assert [plain.indices(clock).tolist() for clock in (1, 2, 3, 4)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 1, 2]]
    full = Sampler([5], batch_size=4, steps_per_epoch=3, seed=0, worker="worker-1", shuffle=False, fills=True)
    assert [full.indices(clock).tolist() for clock in (1, 2, 3)] == [[0, 1, 2, 3], [4], []]
