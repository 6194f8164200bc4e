"""Requests that share a batch: each gets its own rows, none is lost, and one that fails takes no other with it."""

import threading
from concurrent.futures import CancelledError, Future

import numpy as np
import pytest

from paceline.core.errors import Overloaded, Stopped, UsageError
from paceline.data.dataset import Array
from paceline.results.serving.batches import Batches
from paceline.results.serving.served_model import Answer


class Doubling:
    """A model that answers twice its inputs, and fails where one is 13; the first call waits for `may_begin`."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.begun, self.may_begin = threading.Event(), threading.Event()

    def __call__(self, features: Array) -> Answer:
        self.begun.set()
        assert self.may_begin.wait(60)
        self.sizes.append(len(features))
        if (features == 13).any():
            raise RuntimeError("unlucky")
        return Answer(2 * features, [], (1,))


def rows(*values: float) -> Array:
    return np.array(values, np.float32)[:, None]


def found(answer: "Future[Answer]") -> list[float]:
    return answer.result(60).rows[:, 0].tolist()


def test_requests_that_come_while_a_batch_is_computed_share_the_next_one_in_order() -> None:
    model = Doubling()
    batches = Batches(model, 0.0, 4, 100)
    first = batches.submit(rows(1))
    assert model.begun.wait(60)
    others = [batches.submit(rows(*values)) for values in ((2, 3), (4, 5), (6,))]
    model.may_begin.set()

    assert [found(each) for each in (first, *others)] == [[2], [4, 6], [8, 10], [12]]
    batches.close()
    assert model.sizes == [1, 4, 1]


def test_a_request_that_is_too_large_for_what_is_left_of_a_batch_begins_the_next() -> None:
    model = Doubling()
    batches = Batches(model, 60.0, 3, 100)
    answers = [batches.submit(rows(*values)) for values in ((1, 2), (3, 4), (5,))]
    model.may_begin.set()

    assert [found(each) for each in answers] == [[2, 4], [6, 8], [10]]
    batches.close()
    assert model.sizes == [2, 3]


def test_a_request_that_fails_alone_takes_no_other_with_it() -> None:
    model = Doubling()
    batches = Batches(model, 0.0, 8, 100)
    first = batches.submit(rows(0))
    assert model.begun.wait(60)
    good, bad = batches.submit(rows(1)), batches.submit(rows(13))
    model.may_begin.set()

    assert found(first) == [0]
    assert found(good) == [2]
    with pytest.raises(UsageError, match="can't be applied to these examples: RuntimeError: unlucky"):
        bad.result(60)
    batches.close()


def test_memory_that_runs_out_is_not_the_callers_fault() -> None:
    def lacking(features: Array) -> Answer:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    batches = Batches(lacking, 0.0, 8, 100)
    with pytest.raises(Overloaded, match=r"ran out of memory: CUDA out of memory.* Send fewer examples at a time"):
        batches.submit(rows(1)).result(60)
    batches.close()


def test_a_request_whose_caller_has_gone_is_left_out() -> None:
    model = Doubling()
    batches = Batches(model, 0.0, 8, 100)
    batches.submit(rows(0))
    assert model.begun.wait(60)
    gone, stays = batches.submit(rows(1)), batches.submit(rows(2))
    assert gone.cancel()
    model.may_begin.set()

    assert found(stays) == [4]
    with pytest.raises(CancelledError):
        gone.result(60)
    batches.close()
    assert model.sizes == [1, 1]


def test_closing_answers_all_that_wait_and_takes_no_more() -> None:
    model = Doubling()
    batches = Batches(model, 60.0, 100, 100)
    answers = [batches.submit(rows(value)) for value in range(5)]
    model.may_begin.set()

    batches.close()

    assert [found(each) for each in answers] == [[0], [2], [4], [6], [8]]
    with pytest.raises(Stopped, match="takes no new requests"):
        batches.submit(rows(1))


def test_too_much_at_a_time_is_refused() -> None:
    model = Doubling()
    batches = Batches(model, 0.0, 2, 3)
    with pytest.raises(UsageError, match="has 3 examples; at most 2"):
        batches.submit(rows(1, 2, 3))
    first = batches.submit(rows(1, 2))
    with pytest.raises(Overloaded, match="2 examples wait already"):
        batches.submit(rows(3, 4))
    model.may_begin.set()

    assert found(first) == [2, 4]
    batches.close()
