"""What a folder of shards says about itself: written last, so a folder that has a manifest is whole."""

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator

from paceline.core.errors import DataError
from paceline.core.settings.config import Named, Section, Weights
from paceline.core.stored_format import check_format
from paceline.data.columns import Columns
from paceline.data.dataset import PartName

MANIFEST = "manifest.json"
FORMAT: Literal[3] = 3
MAKE_ANEW = "`paceline shard --fresh`"
FIX = f"Make the shards again with {MAKE_ANEW}."
MAX_BYTES = 16 << 20
"""Largest manifest that is read (bytes); one shard takes about a kilobyte."""

_MOST_HEADER = 10 + (1 << 16)
"""Before an array in an .npy file of form 1.0 (bytes)."""
_KIND = re.compile(r"[<>|][biufcSUMmV]\d{1,9}(\[\w{1,9}\])?")
"""What numpy calls its types of numbers and texts; of other words it makes types, too."""
FileName = Literal["features", "indptr", "indices", "values", "labels", "ids", "weights"]
DENSE: tuple[FileName, ...] = ("features", "labels", "ids")
SPARSE: tuple[FileName, ...] = ("indptr", "indices", "values", "labels", "ids")
"""The files of a shard whose features are sparse rows (CSR): row i has values[indptr[i]:indptr[i + 1]]."""
OWN: FileName = "weights"
"""The file of the examples' own weights, where they have some."""


class FileEntry(Section):
    """One array on disk."""

    bytes: int = Field(ge=0, description="Size of the file, header included (bytes).")
    dtype: str = Field(description="numpy's name of the element type, byte order included.")
    shape: tuple[int, ...] = Field(description="Rows first.")
    sha256: str = Field(description="Digest of the whole file.")

    @model_validator(mode="after")
    def _is_as_large_as_its_array(self) -> "FileEntry":
        """The shape decides how much is read, or fetched, of a file: so the file must be able to hold it."""
        kind = np.dtype(self.dtype if _KIND.fullmatch(self.dtype) else object)
        if kind.str != self.dtype or any(size < 0 for size in self.shape):
            raise ValueError(f"{self.dtype!r:.40} of shape {self.shape!s:.40} is no array of numbers.")
        if not 0 <= self.bytes - kind.itemsize * math.prod(self.shape) <= _MOST_HEADER:
            raise ValueError("a file has the bytes of its array and a header.")
        return self


class ShardEntry(Section):
    """One shard, or the validation or test examples."""

    examples: int = Field(ge=1, description="Number of rows.")
    epoch_len: int = Field(
        ge=1, description="Examples that one epoch takes from it: N / n, so that duplicates don't lengthen the epoch."
    )
    duplicates: int = Field(0, ge=0, description="Examples that other shards have too.")
    classes: dict[str, int] = Field(description="Examples of each class; empty where labels are not classes.")
    clusters: dict[str, int] = Field({}, description="Examples of each cluster; empty where the strategy makes none.")
    columns: int | None = Field(None, ge=1, description="D where the features are sparse rows; otherwise none.")
    files: dict[FileName, FileEntry]

    @model_validator(mode="after")
    def _fits_together(self) -> "ShardEntry":
        if set(self.files) - {OWN} != set(DENSE if self.columns is None else SPARSE):
            raise ValueError("every shard has features, dense or sparse, labels and ids.")
        rows = self._rows() | {OWN: self.examples}
        if any(entry.shape[:1] != (rows[file],) for file, entry in self.files.items()):
            raise ValueError("every shard has features, a label and an id for each of its examples.")
        if self.epoch_len > self.examples:
            raise ValueError("an epoch takes no example of a shard twice.")
        return self

    def _rows(self) -> dict[FileName, int]:
        """How many rows each file must have."""
        if self.columns is None:
            return dict.fromkeys(DENSE, self.examples)
        stored = next(iter(self.files["values"].shape), -1)
        ends = self.examples + 1
        return {"indptr": ends, "indices": stored, "values": stored, "labels": self.examples, "ids": self.examples}


class Recipe(Section):
    """Everything that decides what the shards hold: an equal recipe makes equal shards."""

    task: str = Field(description="Built-in task, or the name of the task's file.")
    strategy: Named = Field(description="How examples were dealt out: name, and options that are not the defaults.")
    strategy_file: str | None = Field(
        None,
        exclude_if=lambda digest: digest is None,
        description="SHA-256 of the strategy's file, where it is the user's own.",
    )
    shards: int = Field(ge=1, description="Number of shards.")
    weights: Weights = Field((), description="Sizes of the shards in proportion; empty: all equal.")
    validation: float = Field(description="Share of the training rows that was to be kept for validation (ratio).")
    test: float = Field(description="Share that was to be kept for testing where the data has no test set (ratio).")
    fold: tuple[int, int] | None = Field(
        None,
        exclude_if=lambda fold: fold is None,
        description="Which of how many parts of the training rows the test part is, where it is one.",
    )
    seed: int = Field(description="Seed of the splits and of the strategy.")
    examples: str = Field(description="SHA-256 of the examples that the task handed over.")
    by: str | None = Field(
        None, description="SHA-256 of the labels that were dealt by, where these are another task's."
    )


class Rule(Section):
    """What [Sharding] gives each of n workers (its equations 3 and 4), for the settings that the shards were made with;
    a run uses its own `batch` and `schedule.lr_scale`."""

    workers: int = Field(ge=1, description="n.")
    batch_size: int = Field(ge=1, description="B, of one machine.")
    worker_batch: int = Field(ge=1, description="max(1, floor(B / n)).")
    lr: float = Field(description="a, of one machine.")
    worker_lr: float = Field(description="a / n.")

    @classmethod
    def made(cls, workers: int, batch_size: int, lr: float) -> "Rule":
        """The rule for this many workers."""
        each = max(1, batch_size // workers)
        return cls(workers=workers, batch_size=batch_size, worker_batch=each, lr=lr, worker_lr=lr / workers)

    def for_workers(self, workers: int) -> "Rule":
        """The same for another number of workers."""
        return Rule.made(workers, self.batch_size, self.lr)


class Manifest(Section):
    """The table of contents of a folder of shards."""

    format: Literal[3] = FORMAT
    source: str = Field(description="Name of the file or folder that the examples came from, for people.")
    recipe: Recipe
    rule: Rule | None = None
    seconds: float | None = Field(None, ge=0, description="How long it took to decide who gets what (seconds).")
    classes: tuple[str, ...] | None = Field(
        None,
        exclude_if=lambda classes: classes is None,
        description="What class 0, 1 and so on are called; none where the data does not say.",
    )
    columns: Columns | None = Field(
        None,
        exclude_if=lambda columns: columns is None,
        description="What the features mean, where they come from a table.",
    )
    as_read: tuple[str, ...] = Field(
        (), exclude_if=lambda lines: not lines, description="How the data was read, for people."
    )
    train_examples: int = Field(ge=1, description="N: examples in all shards together, duplicates counted once.")
    train_weights: dict[str, float] | None = Field(
        None,
        exclude_if=lambda weights: weights is None,
        description="Sum of the training examples' own weights, by class, duplicates counted once; none where all are alike.",
    )
    duplicates: tuple[int, ...] = Field((), description="Ids of the examples that are in several shards.")
    sparse: tuple[int, ...] = Field((), description="Numbers of the clusters that went to every shard.")
    shards: tuple[ShardEntry, ...] = Field(description="By number.")
    parts: dict[PartName, ShardEntry] = Field(description="Examples that are not trained on.")

    def entries(self) -> dict[str, ShardEntry]:
        """Every folder's name with what it holds."""
        found = {f"shard-{number}": entry for number, entry in enumerate(self.shards)}
        found.update(self.parts.items())
        return found

    @property
    def fingerprint(self) -> str:
        """Equal for equal shards only: workers of one run compare it at Join."""
        return hashlib.sha256(self.model_dump_json(exclude={"seconds", "as_read"}).encode()).hexdigest()

    @property
    def train_weight(self) -> float:
        """What all training examples count together: their weights, or how many they are."""
        return self.train_examples if self.train_weights is None else sum(self.train_weights.values())

    @property
    def sizes(self) -> list[int]:
        """Examples in each shard, by number."""
        return [entry.examples for entry in self.shards]

    @property
    def epoch_lens(self) -> list[int]:
        """Examples that one epoch takes from each shard, by number."""
        return [entry.epoch_len for entry in self.shards]


def render(manifest: Manifest) -> bytes:
    """The manifest as the file holds it, with its own SHA-256 at the end."""
    body = manifest.model_dump(mode="json")
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**body, "sha256": digest}, indent=1) + "\n").encode()


def read_manifest(folder: Path) -> Manifest:
    """The folder's manifest; DataError where there is none, or where a single bit of it has changed."""
    path = folder / MANIFEST
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"{path} has {path.stat().st_size:,} bytes; no manifest is above {MAX_BYTES:,}. {FIX}")
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(_missing(folder)) from error
    except OSError as error:
        raise DataError(f"Can't read {path}: {error.strerror}. {FIX}") from error
    return parse_manifest(content, path)


def _missing(folder: Path) -> str:
    if folder.is_dir():
        return f"{folder} has no {MANIFEST}: it is half-written or not a folder of shards. {FIX}"
    if re.match(r"[a-z0-9]+:/", str(folder)):  # what a path makes of a URL
        return f"{folder} is a URL, but this command reads shards in a folder. Copy them into one first."
    return f"There are no shards at {folder}: make them with `paceline shard`, or correct the path."


def parse_manifest(content: bytes, path: Path | str) -> Manifest:
    """The manifest in a file's bytes; DataError where a single bit has changed. `path`: where it is from, for people."""
    try:
        body = json.loads(content)
        digest = body.pop("sha256")
        check_format(str(path), body["format"], FORMAT, f"make the shards again: {MAKE_ANEW}")
        if body["format"] != FORMAT:
            raise DataError(f"{path} has format {body['format']!r}; this Paceline reads format {FORMAT}. {FIX}")
        manifest = Manifest.model_validate(body)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise DataError(f"{path} is damaged: it can't be read as a manifest of format {FORMAT}. {FIX}") from error
    if render(manifest) != content:
        raise DataError(f"{path} is damaged: its content does not match its checksum {str(digest)[:12]}. {FIX}")
    return manifest
