"""`paceline baseline`: trains models on one split with every engine. What is finished is kept and not trained again."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path

from paceline.core.errors import DataError, UsageError
from paceline.core.folders import listed, names
from paceline.core.registry import find
from paceline_papers.baseline import split as splits
from paceline_papers.baseline.encoding import ENCODINGS
from paceline_papers.baseline.engine import ENGINES, NO_CLUSTER, STORAGES, Cluster, Point, engine, in_turns
from paceline_papers.baseline.model import MODELS, model
from paceline_papers.baseline.read_csv import read_csv
from paceline_papers.baseline.read_shards import TABLE as SHARDS
from paceline_papers.baseline.read_shards import read_shards
from paceline_papers.baseline.split import Split
from paceline_papers.baseline.table import Table
from paceline_papers.reproduce.kept import RunStore

TABLES = "paceline_papers.baseline.tables"
GIVEN = "given"
"""The encoding of shards."""
SUBMIT = "submit"
OF_THE_DRIVER = ("spark.driver.host=", "spark.kubernetes.driver.pod.name=")
"""Settings of Spark's that say where the driver is: another one goes on with its runs, as a Job's second pod does."""
LIKE = "-like"
"""What the name of a made-up table has behind that of the real one."""
VERSION = 2
"""Raised when something else is trained than before: older runs then don't count."""
ROWS = 300_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a command asks for. UsageError where there is no such thing."""

    models: Sequence[str]
    engines: Sequence[str]
    executors: Sequence[int]
    storages: Sequence[str]
    encoding: str | None = None
    """Of all models, instead of the default of each."""
    cluster: Cluster = NO_CLUSTER

    def __post_init__(self) -> None:
        for what, given, known in (
            ("model", self.models, names(MODELS)),
            ("engine", self.engines, names(ENGINES)),
            ("storage", self.storages, STORAGES),
        ):
            for each in given:
                if each not in known:
                    raise UsageError(f"--{what} {each}: expected {listed(known)}, or several with commas.")
        if bool(self.cluster.master) != (SUBMIT in self.engines):
            raise UsageError(
                "--engine submit goes with --master, like --master spark://host:7077; neither without the other."
            )
        if wrong := [each for each in self.cluster.settings if not self.cluster.master or "=" not in each]:
            raise UsageError(f"--conf {wrong[0]}: expected NAME=VALUE, a setting of Spark's, together with --master.")
        if not self.executors or min(self.executors) < 1:
            raise UsageError(f"--executors {','.join(map(str, self.executors))}: expected 1 or more, like 1,2.")
        if not self.points():
            raise UsageError(f"{' '.join(self.lacking())} Give another --model or --engine.")

    def points(self) -> list[Point]:
        """All trainings; those that share a session are next to each other, and in it those that share their features."""
        kinds = [(self.encoding or model(kind).encoding, kind) for kind in self.models]
        kinds.sort(key=lambda each: each[0])
        return [
            Point(name, kind, variant, encoding, executors, storage)
            for name in self.engines
            for executors, storage in self._places(name)
            for encoding, kind in kinds
            if engine(name).trains(model(kind))
            for variant in model(kind).variants
        ]

    def check_features(self, split: Split) -> None:
        """UsageError where a model does not take such features."""
        if refused := [kind for kind in self.models if split.least < 0 and not model(kind).takes_negative]:
            raise UsageError(
                f"--model {refused[0]}: it takes no features below 0, and the shards have {split.least:g}. Leave it out: "
                f"--model {','.join(each for each in names(MODELS) if model(each).takes_negative)}."
            )

    def lacking(self) -> list[str]:
        """Which engine has no such model, in lines for people."""
        without = [
            (name, [kind for kind in self.models if not engine(name).trains(model(kind))]) for name in self.engines
        ]
        return [f"{name} has no {listed(kinds)}: not trained." for name, kinds in without if kinds]

    def _places(self, name: str) -> Iterable[tuple[int, str]]:
        own = engine(name)
        return product(
            self.executors if own.has_executors else [1], self.storages if own.has_storages else STORAGES[:1]
        )

    def check(self) -> None:
        """ConfigError where an engine lacks its library."""
        for name in self.engines:
            engine(name, self.cluster).check()


def papers_models() -> list[str]:
    """The models of [Survey]."""
    return [name for name in names(MODELS) if model(name).of_survey]


def table(name: str) -> Table:
    """The table of this name, with -like or without. UsageError: there is none."""
    known = names(TABLES)
    plain = name.removesuffix(LIKE)
    if plain not in known:
        raise UsageError(
            f"No table is called {name!r}; expected {listed([*(each + LIKE for each in known), *known, SHARDS])}."
        )
    return find(TABLES, Table, plain)()


def encoding_for(name: str, given: str | None) -> str | None:
    """What the rows of the table of this name are encoded as: shards are encoded already. UsageError: not so."""
    if given is not None and (name == SHARDS) != (given == GIVEN):
        expected = GIVEN if name == SHARDS else listed([each for each in names(ENCODINGS) if each != GIVEN])
        raise UsageError(f"--encode {given}: {name} takes {expected}.")
    return GIVEN if name == SHARDS else given


class Baseline:
    """The runs on one table, in a folder: both parts of its rows, what each training gave, and the logs."""

    def __init__(
        self,
        name: str,
        rows: int,
        seed: int,
        folder: Path,
        data: str | None = None,
        label: str | None = None,
        settings: Sequence[str] = (),
    ) -> None:
        """`data`: the CSV of a real table, which has no -like, or the folder of shards; it counts with all its rows. `label`:
        another column than the table's; `settings`: Spark's, as in `Cluster`. UsageError, and ConfigError where the folder
        holds runs of something else."""
        self.folder, self._rows, self._seed, self._data = folder, rows, seed, data
        self._table, self._label = None if name == SHARDS else table(name), label
        if self._table is None:
            if data is None or label is not None:
                raise UsageError(f"{SHARDS} needs --data, their folder, and takes no --label.")
        elif name.endswith(LIKE) != (data is None):
            plain = name.removesuffix(LIKE)
            raise UsageError(f"{plain} needs --data, its CSV; {plain + LIKE} is made up and takes none.")
        elif label is not None and label not in (known := [self._table.label, *self._table.texts]):
            raise UsageError(f"--label {label}: expected {listed(known)}.")
        what: dict[str, object] = {
            "table": name,
            "rows": rows if data is None else "all",
            "seed": seed,
            "version": VERSION,
        }
        what |= {
            "data": data,
            "label": label or (self._table and self._table.label),
            "conf": " ".join(each for each in settings if not each.startswith(OF_THE_DRIVER)) or None,
        }
        self.kept = RunStore(folder / "runs.jsonl", what)
        self.kept.check()

    def split(self) -> Split:
        """Its rows, made up or read first where they are missing. DataError: the CSV or the shards have something wrong."""
        place = self.folder / "data"
        if not splits.is_written(place):
            if self._table is None:
                splits.write_given(read_shards(str(self._data)), place)
            elif self._data is None:
                splits.make_up(self._table, self._rows, self._seed, place, self._label)
            else:
                label = self._label or self._table.label
                columns = read_csv(self._table, label, self._data)
                try:
                    splits.write(self._table, label, columns, self._seed, place)
                except DataError as error:
                    raise DataError(f"{self._data}: {error}") from error
        return Split.of(place)

    def missing(self, wanted: Wanted) -> list[Point]:
        """Trainings that are still to be made."""
        return [point for point in wanted.points() if (point.name, 0) not in self.kept]

    def train(self, wanted: Wanted) -> Iterator[Point]:
        """Trains what is missing; gives each point when it is kept."""
        missing = self.missing(wanted)
        if missing:
            split = self.split()
            wanted.check_features(split)
        for (name, _), points in groupby(missing, lambda point: (point.engine, point.executors)):
            last = time.perf_counter()
            for point, found in engine(name, wanted.cluster).train(
                split, in_turns(list(points), self._seed), self.folder / "logs"
            ):
                now = time.perf_counter()
                self.kept.add((point.name, 0), found, now - last)
                last = now
                yield point
