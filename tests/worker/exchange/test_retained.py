"""What a worker keeps for a server that comes back: the bytes that were sent, even if their memory has changed since."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

from paceline.v1 import parameter_service_pb2 as pb
from paceline.worker.exchange.retained import Pieces, Retained, Room, Sending

SIZE = 12


def parts_of(memory: Room, *sizes: int) -> Pieces:
    edges = np.cumsum([0, *sizes])
    return [(int(start), memory[start:stop].data) for start, stop in pairwise(edges)]


def kept(retained: Retained) -> dict[int, list[tuple[int, bytes]]]:
    return {push.clock: [(start, bytes(data)) for start, data in push.parts] for push in retained}


def end(retained: Retained, clock: int, sending: Sending, is_kept: bool = True) -> None:
    retained.end(pb.PushHead(clock=clock), sending, is_kept)


def pushed(retained: Retained, clock: int, size: int = SIZE) -> Room:
    """A push that is encoded in a room; returns that."""
    room = retained.room(size)
    room[:] = clock
    end(retained, clock, retained.sending(parts_of(room, size), room))
    return room


@pytest.mark.parametrize("attempts", [0, 1, 3])
def test_the_callers_memory_is_its_own_again_when_a_push_has_ended(attempts: int) -> None:
    retained, memory = Retained(1 << 20), np.arange(SIZE, dtype=np.uint8)
    before = bytes(memory)
    sending = retained.sending(parts_of(memory, 5, 7), None)
    for _ in range(attempts):
        assert b"".join(bytes(data) for _, data in sending) == before
    end(retained, 1, sending)

    memory[:] = 0

    assert kept(retained) == {1: [(0, before[:5]), (5, before[5:])]}
    assert retained.bytes == SIZE


def test_where_no_thread_can_copy_a_push_is_sent_and_kept_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refused)
    retained, memory = Retained(1 << 20), np.ones(SIZE, np.uint8)
    sending = retained.sending(parts_of(memory, SIZE), None)
    assert [bytes(data) for _, data in sending] == [bytes([1] * SIZE)]
    end(retained, 1, sending)
    memory[:] = 0
    assert kept(retained) == {1: [(0, bytes([1] * SIZE))]}


def test_an_encoded_push_is_kept_where_it_lies() -> None:
    retained = Retained(1 << 20)
    room = pushed(retained, 1)
    assert np.shares_memory(next(iter(retained)).parts[0][1], room)


def test_a_room_is_used_again_when_its_push_is_durable_and_not_before() -> None:
    retained = Retained(1 << 20)
    first, second = pushed(retained, 1), pushed(retained, 2)
    assert not np.shares_memory(first, second)
    retained.forget(1)

    assert np.shares_memory(pushed(retained, 3), first)

    assert kept(retained) == {2: [(0, bytes([2] * SIZE))], 3: [(0, bytes([3] * SIZE))]}


def test_at_the_cap_the_oldest_push_leaves_its_room() -> None:
    retained = Retained(2 * SIZE)
    rooms = [pushed(retained, clock) for clock in range(1, 8)]
    assert len({room.ctypes.data for room in rooms}) == 3
    assert list(kept(retained)) == [6, 7]


@pytest.mark.parametrize("cap", [0, None])
def test_a_push_that_is_not_kept_leaves_its_room(cap: int | None) -> None:
    retained = Retained(cap)
    room = retained.room(SIZE)
    end(retained, 1, retained.sending(parts_of(room, SIZE), room), is_kept=cap is not None)
    assert retained.room(SIZE) is room
    assert not kept(retained)


def test_what_the_cap_does_not_bear_is_not_copied() -> None:
    sending = Retained(SIZE - 1).sending(parts_of(np.zeros(SIZE, np.uint8), SIZE), None)
    assert len(list(sending)) == 1
    assert sending.room is None


def test_a_push_that_leaves_most_of_its_room_empty_takes_what_it_needs() -> None:
    retained = Retained(1 << 20)
    room = retained.room(10 * SIZE)
    room[:] = 1
    sending = retained.sending(parts_of(room, SIZE), room)
    assert list(sending)
    end(retained, 1, sending)

    assert retained.room(10 * SIZE) is room
    room[:] = 2

    assert retained.bytes == SIZE
    assert kept(retained) == {1: [(0, bytes([1] * SIZE))]}


def test_rooms_of_another_size_are_given_up() -> None:
    retained = Retained(1 << 20)
    pushed(retained, 1)
    room = retained.room(2 * SIZE)
    retained.forget(1)
    assert len(room) == len(retained.room(2 * SIZE)) == 2 * SIZE


def test_rooms_of_pushes_that_an_abandoned_exchange_may_still_send_are_not_used_again() -> None:
    retained = Retained(1 << 20)
    old = pushed(retained, 1)
    retained.clear()
    assert not np.shares_memory(pushed(retained, 5), old)
    assert (list(kept(retained)), retained.bytes) == ([5], SIZE)


def test_an_empty_push_keeps_the_queue_without_gaps() -> None:
    retained = Retained(SIZE)
    pushed(retained, 1)
    end(retained, 2, retained.sending([], None))
    assert [push.clock for push in retained.since(0, 2) or ()] == [1, 2]
