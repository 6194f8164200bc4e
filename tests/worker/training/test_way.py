"""Which mini-batches a worker computes at which clock."""

from typing import Any

import numpy as np
import pytest

from paceline.core.chief.leases import NOTHING, Lease, Leases, Pace, Wish
from paceline.data.sampler import Sampler
from paceline.worker.training import way as way_module
from paceline.worker.training.way import Ask, Stream, Streams, Way


def asked(leases: Leases, wants: list[int] | None = None, worker: str = "worker-0", place: int = 0) -> Ask:
    """Asks these leases; `wants`: notes how many rows each call asks for."""

    def ask(after: int, width: int, most: int) -> Lease:
        if wants is not None:
            wants.append(most)
        wish = Wish(worker, after, width, most, place=place)
        return leases.grant(wish, {0, 1}, {}, Pace(is_level=True, is_exact=True))

    return ask


def test_without_leases_a_worker_has_its_own_stream_up_to_its_end() -> None:
    way = Way(2, None, end=5)
    lease = way.lease(1, 3)
    assert (lease.stream, lease.rows(1), lease.rows(2)) == (2, range(3), range(3, 5))
    assert not way.is_leased


def test_a_worker_asks_for_what_it_computes_in_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    leases, wants, now = Leases(2), list[int](), [100.0]
    leases.end = 10_000
    monkeypatch.setattr(way_module.time, "monotonic", lambda: now[0])
    way = Way(0, asked(leases, wants))

    for clock in range(200):
        lease = way.lease(clock, 1)
        assert (lease.stream, lease.rows(clock + 1)) == (0, range(clock, clock + 1))
        now[0] += 0.05

    assert wants == [1, 40, 40, 40, 40, 40]


def test_a_worker_asks_again_where_the_policy_has_other_clocks() -> None:
    leases, wants = Leases(2), list[int]()
    leases.end = 64
    way = Way(0, asked(leases, wants))
    way.lease(0, 4)

    assert way.lease(1, 1).rows(2) == range(4, 5)
    assert len(wants) == 2


def test_a_row_has_the_same_examples_in_each_worker() -> None:
    def opened(number: int) -> Stream:
        return Stream(Sampler([10], 4, 3, 0, f"worker-{number}"), ())

    first, second = Streams(opened, 3), Streams(opened, 3)
    for stream in (4, 0, 1, 2, 3, 4):
        for row in (0, 5, 2):
            batches: list[Any] = [each.batch(stream, row)[1].rows for each in (first, second)]
            np.testing.assert_array_equal(*batches)
    assert first.examples(0, 0) == 4
    assert first.examples(NOTHING, 0) == 0
