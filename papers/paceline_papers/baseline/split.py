"""A table on disk, split by seed into a training and a test part, which all engines read."""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.errors import DataError
from paceline.data.hashing import MISSING, parts_of_dates
from paceline_papers.baseline.read_shards import Rows
from paceline_papers.baseline.table import Table

TRAINING = 0.7
"""Share of the rows [Survey]."""
FILES = 8
"""Of each part, so that as many executors have work."""
LABEL = "label"
INDICES, VALUES = "indices", "values"
"""Columns of rows that are given as vectors: lists of the features that are not 0, and of their values."""
DESCRIPTION = "split.json"


@dataclass(frozen=True, slots=True)
class Split:
    """Parquet files in `train` and `test` of `folder`: texts, numbers (NaN: missing) and `label`, the number of the class."""

    folder: Path
    texts: Sequence[str]
    numbers: Sequence[str]
    classes: Sequence[str]
    train_rows: int
    test_rows: int
    best: float | None = None
    """The accuracy that no model can expect to pass, where the table is made up."""
    width: int = 0
    """Features of a row that is given as a vector; 0: rows have texts and numbers."""
    least: float = 0.0
    """The smallest value in such vectors."""

    @classmethod
    def of(cls, folder: Path) -> "Split":
        """That was written to this folder."""
        return cls(folder, **json.loads((folder / DESCRIPTION).read_text()))

    def columns(self, part: str) -> Any:
        """All of a part, train or test, as an Arrow table."""
        import pyarrow.dataset as ds

        return ds.dataset(self.folder / part, format="parquet").to_table()


def is_written(folder: Path) -> bool:
    """Whether a whole split lies there."""
    return (folder / DESCRIPTION).is_file()


def make_up(table: Table, rows: int, seed: int, folder: Path, label: str | None = None) -> Split:
    """A made-up table, split, in this folder. Of another `label` than the table's the best accuracy is not known."""
    made = table.made_up(rows, np.random.default_rng(seed))
    return write(table, label or table.label, made.columns, seed, folder, None if label else made.best)


def write(
    table: Table, label: str, columns: Mapping[str, Any], seed: int, folder: Path, best: float | None = None
) -> Split:
    """Writes both parts of Arrow arrays of equal length; classes are numbered from the most frequent one on. DataError where
    there is one class only, or the test part alone has one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[str, Any] = {}
    for name in table.texts:
        if name != label:
            found[name] = pc.fill_null(columns[name], MISSING)
    for name in table.dates:
        if name != label:
            found |= parts_of_dates(name, pa.array(columns[name]))
    texts = list(found)
    numbers = [name for name in table.numbers if name != label]
    found |= {name: pc.fill_null(columns[name], float("nan")) for name in numbers}
    classes = _classes(columns[label], label)
    found[LABEL] = pc.index_in(columns[label], pa.array(classes)).cast(pa.float64())
    whole = pa.table(found)
    is_train = np.random.default_rng([seed, 1]).random(len(whole)) < TRAINING
    parts = {"train": whole.filter(pa.array(is_train)), "test": whole.filter(pa.array(~is_train))}
    _check_classes(classes, parts, label)
    split = Split(folder, texts, numbers, classes, len(parts["train"]), len(parts["test"]), best)
    _write(split, parts)
    return split


def write_given(parts: Mapping[str, Rows], folder: Path) -> Split:
    """Writes the parts of a folder of shards, which are split already; otherwise as `write`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    label = "label of the shards"
    classes = _classes(pa.array(np.concatenate([part.classes for part in parts.values()])), label)
    made = {}
    for name, part in parts.items():
        features = part.features
        features.sort_indices()
        starts = pa.array(features.indptr.astype(np.int32))
        made[name] = pa.table(
            {
                INDICES: pa.ListArray.from_arrays(starts, pa.array(features.indices.astype(np.int32))),
                VALUES: pa.ListArray.from_arrays(starts, pa.array(features.data)),
                LABEL: pc.index_in(pa.array(part.classes), pa.array(classes)).cast(pa.float64()),
            }
        )
    _check_classes(classes, made, label)
    least = min(0.0, *(float(part.features.data.min(initial=0)) for part in parts.values()))
    rows, width = (len(made["train"]), len(made["test"])), parts["train"].features.shape[1]
    split = Split(folder, [], [], classes, *rows, width=width, least=least)
    _write(split, made)
    return split


def _classes(labels: Any, label: str) -> list[str]:
    """From the most frequent one on."""
    import pyarrow.compute as pc

    counts = sorted(pc.value_counts(labels).to_pylist(), key=lambda each: (-each["counts"], each["values"]))
    classes = [str(each["values"]) for each in counts]
    if len(classes) < 2:
        raise DataError(f"All rows have {', '.join(classes) or 'no'} as {label}; expected two classes, or more.")
    return classes


def _check_classes(classes: Sequence[str], parts: Mapping[str, Any], label: str) -> None:
    there = {name: set(np.unique(part[LABEL].to_numpy()).astype(int)) for name, part in parts.items()}
    if alone := sorted(there["test"] - there["train"]):
        raise DataError(
            f"{label}: the class {classes[alone[0]]!r} has rows in the test part alone, so no model can learn it. Give "
            "another --seed, or leave its rows out."
        )


def _write(split: Split, parts: Mapping[str, Any]) -> None:
    """The description comes last: without it nothing counts as written."""
    import pyarrow.parquet as pq

    if split.folder.exists():
        shutil.rmtree(split.folder)
    for name, rows in parts.items():
        (split.folder / name).mkdir(parents=True)
        for number, piece in enumerate(_cut(rows, FILES)):
            pq.write_table(piece, split.folder / name / f"{number}.parquet")
    told = asdict(split)
    del told["folder"]
    (split.folder / DESCRIPTION).write_text(json.dumps(told, indent=1) + "\n")


def _cut(rows: Any, pieces: int) -> Iterable[Any]:
    each = -(-len(rows) // pieces)
    return (rows.slice(start, each) for start in range(0, len(rows), each))
