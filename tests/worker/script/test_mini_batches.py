"""A script's mini-batches where other workers' rows come, and where nothing is left."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="scripts need torch")

from paceline.core.chief.leases import NOTHING, Leases, Pace, Wish
from paceline.core.policies.builtin.asp import Asp
from paceline.core.values import Position
from paceline.data.sampler import Sampler
from paceline.worker.script.mini_batches import MiniBatches
from paceline.worker.script.script_batches import ScriptBatches
from paceline.worker.training.way import Stream, Streams, Way

ROWS = 3


def opened(number: int) -> Stream:
    """A stream whose examples say which one it is."""
    rows = np.arange(number * 100, number * 100 + 2 * ROWS)
    return Stream(Sampler([len(rows)], 2, ROWS, 0, f"worker-{number}"), [SimpleNamespace(features=rows, labels=rows)])


def seated(leases: Leases, done: int = 0) -> MiniBatches:
    def ask(after: int, width: int, most: int) -> object:
        return leases.grant(Wish("worker-0", after, width, most), {0}, {}, Pace(is_level=False, is_exact=True))

    found = MiniBatches()
    found.sit(done, Streams(opened, ROWS), Way(0, ask))  # type: ignore[arg-type]
    return found


def two_streams() -> Leases:
    leases = Leases(2)
    leases.end = ROWS
    return leases


def lease_all(leases: Leases) -> None:
    """Each of two workers has its own stream."""
    for place in (0, 1):
        wish = Wish(f"worker-{place}", 0, 1, ROWS, place=place)
        leases.grant(wish, {0, 1}, {}, Pace(is_level=True, is_exact=True))


def test_a_pass_goes_on_with_what_is_left_of_other_streams_and_ends_where_nothing_is() -> None:
    batches, streams = seated(two_streams()), list[int]()

    for position in batches.epoch(lambda position: False, lambda: False):
        rows = batches.rows(position)
        assert rows is not None
        streams.append(int(rows[0]) // 100)
        batches.drew(position, 0.0)
        batches.count_step(True)

    assert sorted(streams) == [0] * ROWS + [1] * ROWS
    assert batches.is_short
    assert batches.is_left(ROWS)
    assert not batches.is_left(2 * ROWS)


def test_a_pass_ends_with_the_workers_own_mini_batches_unless_something_is_left() -> None:
    batches = seated(two_streams())
    ends = lambda position: position >= 2 * ROWS  # noqa: E731

    assert list(batches.epoch(ends, lambda: False)) == list(range(1, 2 * ROWS + 1))
    assert not batches.is_short


def test_the_loop_passes_by_where_nothing_is_left_and_the_script_goes_on_behind_it() -> None:
    leases, paused = two_streams(), list[bool]()
    lease_all(leases)
    batches = seated(leases, done=ROWS)
    loop = ScriptBatches(
        streams=Streams(opened, ROWS),
        way=Way(0, None),
        seed=0,
        pause=lambda: paused.append(True),
        mini_batches=batches,
        place=0,
        ends_by_itself=lambda: False,
    )

    assert list(loop.of(ROWS + 1, Asp(), 1.0).items) == []
    assert (paused, loop.position(None)) == ([True], Position(ROWS + 1, 0))
    leases.release("worker-1", [1])

    (item,) = loop.of(ROWS + 2, Asp(), 1.0).items
    assert (item.stream, item.row) == (1, 1)
    assert next(batches.epoch(lambda position: False, lambda: False)) == ROWS + 2


def test_a_script_that_ends_by_itself_is_asked_where_nothing_is_left() -> None:
    leases = two_streams()
    lease_all(leases)
    batches = seated(leases, done=ROWS)
    loop = ScriptBatches(
        streams=Streams(opened, ROWS),
        way=Way(0, None),
        seed=0,
        mini_batches=batches,
        place=0,
        ends_by_itself=lambda: True,
    )

    assert batches.upcoming().stream == NOTHING
    assert len(list(loop.of(ROWS + 1, Asp(), 1.0).items)) == 1
    assert batches.counts.done == ROWS
