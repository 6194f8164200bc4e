"""Rows that are kept from training: no worker has them, classes keep their shares, all processes agree."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import ConfigError
from tests.support.nights import fewer

torch = pytest.importorskip("torch")
data = torch.utils.data
split = pytest.importorskip("paceline.worker.script.splitting").split
FakeRun = pytest.importorskip("tests.support.script_run").FakeRun


def dataset_of(labels: Any) -> Any:
    return data.TensorDataset(torch.arange(len(labels)), torch.as_tensor(labels))


@fewer(2)
@given(
    st.integers(40, 90), st.integers(1, 4), st.sampled_from(["random", "round_robin", "stratified"]), st.integers(0, 99)
)
def test_rows_that_are_kept_apart_come_to_no_worker(count: int, workers: int, strategy: str, seed: int) -> None:
    dataset = dataset_of(np.arange(count) % 2)
    train, validation, test = split(dataset, 0.2, 0.1, seed)
    kept = {*validation.indices, *test.indices}
    found: list[int] = []
    for rank in range(workers):
        run = FakeRun(rank, workers=workers, data={"strategy": strategy})
        found += [int(row) for batch in run.train(run.loader(train, 2 * workers)) for row in batch[0]]
    assert sorted(found) == sorted(set(range(count)) - kept)
    assert len(kept) == len(validation) + len(test)


def test_classes_keep_their_shares_where_labels_are_at_hand() -> None:
    train, test = split(dataset_of([0] * 80 + [1] * 20), 0.25, 0, 0)
    assert (len(train), len(test)) == (75, 25)
    assert sum(row >= 80 for row in test.indices) == 5


def test_equal_seeds_give_equal_rows_and_others_do_not() -> None:
    one, same, other = (split(list(range(50)), 0.2, 0, seed)[1].indices for seed in (1, 1, 2))
    assert one == same != other


def test_labels_that_are_no_classes_or_too_rare_are_cut_at_random() -> None:
    for labels in ([0.5] * 20, [0] * 19 + [1], list(range(20))):
        train, test = split(dataset_of(labels), 0.25, 0, 0)
        assert (len(train), len(test)) == (15, 5)
    given = split(list(range(40)), 0.5, 0, 0, labels=["a", "b"] * 20)[1]
    assert sum(row % 2 for row in given.indices) == 10


@pytest.mark.parametrize(
    ("test", "validation", "words"),
    [
        (1.5, 0, "test is 1.5; expected a share"),
        (0.2, -0.1, "validation is -0.1"),
        (0, 0, "leave nothing to keep apart"),
        (0.5, 0.5, "leave no rows to train on"),
        (0.4, 0.4, "would set aside 2 of 2 rows"),
    ],
)
def test_shares_that_are_none_are_refused(test: float, validation: float, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        split([1, 2], test, validation, 0)


def test_a_stream_can_not_be_split() -> None:
    class Stream(data.IterableDataset):
        def __iter__(self) -> Any:
            return iter([1, 2])

    with pytest.raises(ConfigError, match="a stream, whose examples have no numbers to split by"):
        split(Stream(), 0.2, 0, 0)
