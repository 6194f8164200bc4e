"""What the points of a search gave: one row for each, the best one marked, a paper's numbers next to it."""

import csv
import io
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.table import Table

from paceline.core.run.best_model import Measure, measure_of, scores_of
from paceline.core.run.warnings import RunWarning
from paceline.data.manifest import read_manifest
from paceline.data.shards import is_there
from paceline.launch.folder.run_folder import RunFolder
from paceline.studies.search.grid import Published, shown

ACCURACY, LOSS = "test_accuracy", "test_loss"
BY_TEST = (
    "No validation part was kept, so points are compared by their test scores: the best one's is better than new data will "
    "give. Cross-validate (--folds 5), or keep test data of your own apart."
)
BY_FOLDS = "Points are compared by the mean over the folds, each scored on the part that it did not train on."
NOT_RUN, FAILED = "not run", "failed"


@dataclass(frozen=True, slots=True)
class Measured:
    """How one finished run ended."""

    metrics: dict[str, float]
    """Of the final version."""
    epochs: float
    """That it trained until it stopped."""
    seconds: float
    """Of training."""
    measure: str = ""
    """What the run is judged by, like 'max accuracy'."""
    warnings: Sequence[RunWarning] = ()
    """What still went wrong at its end."""
    train_examples: int | None = None
    """Of an epoch; None where nobody has noted it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One point."""

    number: int
    values: dict[str, Any]
    """Its settings by key."""
    runs: list[Measured]
    """One, or one for each fold; empty unless all are finished."""
    error: str | None = None
    """Why it has no result: what went wrong, or NOT_RUN."""
    paper: Published | None = None
    round: int = 0
    """Of halving: the last one that it was in."""
    before: Sequence[Measured] = ()
    """Its runs of earlier rounds."""
    in_full: float = 0.0
    """Epochs that its runs may train, if it is not stopped."""

    @property
    def examples(self) -> float | None:
        """That all of its runs have trained; None where nobody has noted it."""
        return _sum([each.epochs * each.train_examples for each in self._all if each.train_examples])

    @property
    def examples_in_full(self) -> float | None:
        """What it trains at most, if it is not stopped."""
        known = [each.train_examples for each in self._all if each.train_examples]
        return statistics.fmean(known) * self.in_full if known else None

    @property
    def _all(self) -> list[Measured]:
        return [*self.before, *self.runs]

    def mean(self, name: str) -> float | None:
        """Of a metric over its runs; None where it has none."""
        values = [run.metrics[name] for run in self.runs if name in run.metrics]
        return statistics.fmean(values) if values else None

    def deviation(self, name: str) -> float | None:
        """Standard deviation of the sample (n - 1); None for a single run."""
        values = [run.metrics[name] for run in self.runs if name in run.metrics]
        return statistics.stdev(values) if len(values) > 1 else None

    @property
    def warnings(self) -> list[RunWarning]:
        """Of its runs, each kind once."""
        return list({each.kind: each for run in reversed(self.runs) for each in run.warnings}.values())

    @property
    def failed(self) -> bool:
        """Whether one of its runs ended with an error."""
        return self.error not in (None, NOT_RUN)

    @property
    def epochs(self) -> float | None:
        """Mean of its runs."""
        return statistics.fmean(run.epochs for run in self.runs) if self.runs else None

    @property
    def seconds(self) -> float | None:
        """Mean of its runs."""
        return statistics.fmean(run.seconds for run in self.runs) if self.runs else None


@dataclass(frozen=True, slots=True)
class Results:
    """All rows in the order of the grid."""

    rows: list[Row]
    folds: int | None = None
    by: Measure | None = None
    """What points are compared by; None: what the runs are judged by."""
    full: int | None = None
    """How many points the full grid has, where not all of it is trained."""

    def check(self) -> None:
        """ConfigError where runs have been scored, but not by what points are compared by."""
        names = {name for row in self.rows for run in row.runs for name in scores_of(run.metrics, self.split)}
        if self.by is not None and names:
            self.by.check(names, "--by")

    @property
    def split(self) -> str:
        """The part of the data that points are compared by: that for validation. Test scores are compared with folds, where
        they are of the part that was left out, and where runs kept nothing for validation."""
        scored = [run.metrics for row in self.rows for run in row.runs if run.metrics]
        has_validation = all(scores_of(metrics, "validation") for metrics in scored)
        return "validation" if scored and has_validation and not self.folds else "test"

    @property
    def measure(self) -> str:
        """What points are compared by, like 'validation_accuracy'."""
        return f"{self.split}_{self._measure.name}"

    @property
    def tested(self) -> str:
        """The same on the test data, which chooses nothing where there is another part."""
        return f"test_{self._measure.name}"

    @property
    def how_chosen(self) -> str:
        """By what the best point is the best one, in a sentence or two; empty where nothing is scored."""
        if self.best is None:
            return ""
        if self.folds:
            return BY_FOLDS
        if self.split == "test":
            return BY_TEST
        return f"The best point is chosen by its {_words(self.measure)}; test scores choose nothing."

    @property
    def is_larger_better(self) -> bool:
        return self._measure.sign > 0

    @property
    def _measure(self) -> Measure:
        if self.by is not None:
            return self.by
        runs = [run for row in self.rows for run in row.runs]
        told = next((run.measure for run in runs if run.measure), "")
        return measure_of({name: 0.0 for run in runs for name in run.metrics} if runs else {ACCURACY: 0.0}, told)

    @property
    def best(self) -> Row | None:
        """The first one of those with the best mean in the last round; None while nothing is scored."""
        return next(iter(self.ranked), None)

    @property
    def ranked(self) -> list[Row]:
        """All that are scored, the best one first; those of a later round come before the others, and of equal ones that
        with the smaller loss."""
        finite = [row for row in self.rows if (score := row.mean(self.measure)) is not None and math.isfinite(score)]
        return sorted(finite, key=self._rank, reverse=True)

    @property
    def losses(self) -> list[float]:
        """What a search makes small, of each row; infinity where it has no finite score."""
        scores = [row.mean(self.measure) for row in self.rows]
        return [
            -self._measure.sign * score if score is not None and math.isfinite(score) else math.inf for score in scores
        ]

    def _rank(self, row: Row) -> tuple[float, ...]:
        score, loss = row.mean(self.measure), row.mean(f"{self.split}_loss")
        assert score is not None
        return row.round, self._measure.sign * score, -math.inf if loss is None or math.isnan(loss) else -loss

    @property
    def cost(self) -> str | None:
        """The examples of all runs, against those of the full grid; None where all of it is trained."""
        spent = _sum([row.examples for row in self.rows])
        # what has failed is not known
        whole = [examples for row in self.rows if (examples := row.examples_in_full) is not None]
        if self.full is None or not spent or not whole:
            return None
        of_grid = statistics.fmean(whole) * self.full
        share = f"{spent / of_grid:.1%}".replace("%", " %")
        return f"Trained {spent:,.0f} examples; {self.full} points in full have up to {of_grid:,.0f}: {share}."

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        best = self.best
        return {
            "measure": self.measure,
            "chosen": self.how_chosen,
            "folds": self.folds,
            "best": best.number if best else None,
            "points": [self._plain(row) for row in self.rows],
        }

    def table(self, title: str) -> Table:
        """For people."""
        header, cells = self.cells()
        found = Table(title=title, caption="* the best one", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for name in header:
            found.add_column(name, justify="right", overflow="fold", min_width=_least(name))
        for row, texts in zip(self.rows, cells, strict=True):
            found.add_row(*texts, style="bold" if row is self.best else None)
        return found

    def markdown(self) -> str:
        """The same table, and below it why points have failed, and what went wrong in others."""
        header, cells = self.cells()
        lines = [header, ["---"] * len(header), *cells]
        escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
        table = "".join(f"| {' | '.join(line)} |\n" for line in escaped)
        errors = [f"\nPoint {row.number} failed: {row.error}\n" for row in self.rows if row.failed]
        told = [f"\n{line}\n" for line in (*filter(None, [self.how_chosen, self.cost]), *self.warnings())]
        return "".join([table, "\n\\* the best one\n", *errors, *told])

    def warnings(self) -> list[str]:
        """A line on each problem of a point that was trained anyway."""
        return [f"Point {row.number}: {each}" for row in self.rows for each in row.warnings]

    def csv(self) -> str:
        """One line for each point, with full precision."""
        stream = io.StringIO()
        rows = [self._plain(row) for row in self.rows]
        flat = [{"point": row["point"], **row.pop("values"), **row} for row in rows]
        writer = csv.DictWriter(stream, list(dict.fromkeys(key for row in flat for key in row)), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _flat(value) for key, value in row.items()} for row in flat)
        return stream.getvalue()

    def _plain(self, row: Row) -> dict[str, Any]:
        return {
            "point": row.number,
            "values": row.values,
            "best": row is self.best,
            **{name: row.mean(name) for name in dict.fromkeys((ACCURACY, LOSS, self.tested, self.measure))},
            "deviation": row.deviation(self.measure),
            "epochs_trained": row.epochs,
            "examples_trained": row.examples,
            "seconds": row.seconds,
            "paper_accuracy": row.paper.accuracy if row.paper else None,
            "paper_epochs": row.paper.epochs if row.paper else None,
            "error": row.error,
            "warnings": [asdict(each) for each in row.warnings],
        }

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """The header, and the texts of each row."""
        keys = list(self.rows[0].values)
        papers = any(row.paper for row in self.rows)
        columns = [("point", [f"{row.number}{'*' * (row is self.best)}" for row in self.rows])]
        columns += [(key, [shown(row.values[key]) for row in self.rows]) for key in keys]
        scores = [FAILED if row.failed else row.error or _number(row.mean(self.measure), 4) for row in self.rows]
        columns.append((_words(self.measure), scores))
        if self.folds:
            columns.append(("sd", [_number(row.deviation(self.measure), 4) for row in self.rows]))
        if self.split != "test":
            columns.append((_words(self.tested), [_number(row.mean(self.tested), 4) for row in self.rows]))
        if papers:
            columns.append(("paper", [_number(row.paper.accuracy if row.paper else None, 4) for row in self.rows]))
        columns.append(("epochs trained", [_number(row.epochs, 1) for row in self.rows]))
        if any(row.paper and row.paper.epochs for row in self.rows):
            columns.append(("paper", [_number(row.paper.epochs if row.paper else None, 0) for row in self.rows]))
        if any(row.examples for row in self.rows):
            columns.append(("examples", [_number(row.examples, 0) for row in self.rows]))
        columns.append(("seconds", [_number(row.seconds, 1) for row in self.rows]))
        header, texts = zip(*columns, strict=True)
        return list(header), [list(cells) for cells in zip(*texts, strict=True)]


def measure_by(text: str) -> Measure:
    """What `--by` says: a metric, of which more is better but for the loss, or with min or max before it."""
    words = text.split()
    if len(words) == 1 and words[0] not in ("min", "max"):
        text = f"{'min' if words[0] == 'loss' else 'max'} {words[0]}"
    return Measure.parse(text, "--by")


def measured(folder: RunFolder) -> Measured | None:
    """What the run in the folder gave; None unless it is finished."""
    facts = folder.facts()
    if not facts.get("finished"):
        return None
    warnings = [RunWarning(**each) for each in facts.get("warnings", [])]
    return Measured(
        folder.final_metrics(),
        float(folder.last_status().get("epoch", 0.0)),
        float(facts.get("seconds", 0.0)),
        facts.get("measure", ""),
        tuple(each for each in warnings if not each.passed),
        facts.get("train_examples") or _of_shards(folder),
    )


def row_of(
    number: int,
    values: Mapping[str, Any],
    folders: Sequence[RunFolder],
    failures: Mapping[str, str],
    paper: Published | None,
) -> Row:
    """The row of a point whose runs are in these folders; `failures`: by the run's name, why it failed."""
    runs = [found for folder in folders if (found := measured(folder)) is not None]
    error = next((failures[folder.name] for folder in folders if folder.name in failures), None)
    if len(runs) < len(folders):
        return Row(number, dict(values), [], error or NOT_RUN, paper)
    return Row(number, dict(values), runs, None, paper)


def _of_shards(folder: RunFolder) -> int | None:
    return read_manifest(folder.shards).train_examples if is_there(folder.shards) else None


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _flat(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict | bool) else value


def _least(head: str) -> int:
    """Letters of a column that break no word of its head, but for the name of a setting."""
    return 0 if "." in head or "_" in head else max(map(len, head.split()))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
