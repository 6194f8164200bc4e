"""data() of a task file may give map-style data sets of torch; they are read row by row."""

from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.core.errors import ConfigError, DataError
from paceline.data import out_of_core
from paceline.data.map_style import is_map_style, read_map_style
from paceline.data.out_of_core import is_mapped
from paceline.tasks.task import load_task

HEAD = """
def model():
    from torch import nn
    return nn.Linear(2, 2)

def data(path):
    import torch
    from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset
    full = TensorDataset(torch.arange(8.0).reshape(4, 2), torch.tensor([0, 1, 0, 1]))
"""


class Rows(torch.utils.data.Dataset):
    def __init__(self, *rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return self.rows[number]


def data_of(folder: Path, text: str):
    file = folder / "mine.py"
    file.write_text(HEAD + text)
    return load_task(str(file)).data("bundled")


def test_a_task_may_return_a_data_set_of_torch(tmp_path: Path):
    dataset = data_of(tmp_path, "    return full")

    assert dataset.train.features.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert dataset.train.features.dtype == np.float32
    assert dataset.train.labels.tolist() == [0, 1, 0, 1]
    assert dataset.train.labels.dtype == np.int64
    assert dataset.test is None


def test_a_task_may_return_one_for_training_and_one_for_testing(tmp_path: Path):
    dataset = data_of(tmp_path, "    return Subset(full, [0, 1, 2]), Subset(full, [3])")

    assert len(dataset.train) == 3
    assert dataset.test.features.tolist() == [[6, 7]]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("return [full]", "list of.*|list"),
        ("return full, 3", "tuple of TensorDataset, int"),
        ("return full, full, full", "tuple of TensorDataset"),
        ("return full.tensors", "tuple of Tensor of shape"),
        ("return torch.utils.data.DataLoader(full)", "DataLoader"),
        ("return type('Stream', (IterableDataset,), {'__iter__': lambda self: iter(full)})()", "Stream"),
    ],
)
def test_anything_else_is_refused_by_its_kind(tmp_path: Path, text: str, seen: str):
    with pytest.raises(ConfigError, match=rf"returned ({seen}).*; it must return .*torch's map-style data sets"):
        data_of(tmp_path, f"    {text}")


def test_a_row_that_fails_names_the_line_of_the_file(tmp_path: Path):
    text = """
    class Bad(Dataset):
        def __len__(self): return 3
        def __getitem__(self, row): return torch.ones(2), 1 // (1 - row)
    return Bad()"""

    with pytest.raises(ConfigError, match=r"data\(\) of the task failed, .*mine.py, line 13: ZeroDivisionError"):
        data_of(tmp_path, text)


def test_rows_may_be_arrays_images_and_numbers():
    from PIL import Image

    dataset = read_map_style(Rows((Image.new("RGB", (4, 3), (7, 8, 9)), 1), (np.zeros((3, 4, 3), np.uint8), 0)))

    assert dataset.train.features.shape == (2, 3, 4, 3)
    assert dataset.train.features[0, 0, 0].tolist() == [7, 8, 9]
    assert dataset.train.labels.tolist() == [1, 0]


def test_rows_that_outgrow_memory_are_mapped_and_the_same(monkeypatch: pytest.MonkeyPatch):
    rows = Rows(*((np.full((2, 3), number, np.float32), number) for number in range(50)))
    monkeypatch.setattr(out_of_core, "PIECE_BYTES", 200)  # six rows
    monkeypatch.setattr(out_of_core, "IN_MEMORY", 300)

    train = read_map_style(rows).train

    assert is_mapped(train.features)
    assert train.features.shape == (50, 2, 3)
    assert train.features[:, 1, 2].tolist() == list(range(50))
    assert train.labels.tolist() == list(range(50))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "The training set of data() has no rows"),
        ([(np.ones(2), 0), np.ones(2)], "Row 1 of the training set of data() is ndarray; expected a pair"),
        ([(np.ones(2), 0, 5)], "Row 0 of the training set of data() is tuple; expected a pair"),
        ([(np.ones(2), 0), (np.ones(3), 0)], "Row 1 of the training set of data() holds float64 of shape (3,)"),
        ([(np.ones(2), 0), (np.ones(2), 0.5)], "holds float64 of shape (), but row 0 int64"),
        ([(np.ones(2), 0), (np.full(2, np.nan), 0)], "features of example 1 hold NaN"),
        ([(np.ones(2), 0), (np.ones(2), None)], "holds object"),
        ([(np.ones(2), None)], "The labels are an array of object"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows, message: str):
    with pytest.raises(DataError) as caught:
        read_map_style(Rows(*rows))

    assert message in str(caught.value)


def test_arrays_and_plain_containers_are_no_data_sets():
    assert is_map_style(Rows())
    assert not any(map(is_map_style, [np.ones(3), torch.ones(3), [1], (1,), {1: 2}, "text", b"bytes", 3]))
