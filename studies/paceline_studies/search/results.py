"""What the points of a search gave: one row for each, the best one marked, a paper's numbers next to it."""

import csv
import io
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rich import box
from rich.table import Table

from paceline.core.chief.best_model import Measure, measure_of, scores_of
from paceline.core.chief.warnings import RunWarning
from paceline_studies.search.folder import Measured
from paceline_studies.search.grid import in_words, shown

BY_TEST = (
    "No validation part was kept, so points are compared by their test scores: the best one's is better than new data will "
    "give. Cross-validate (--folds 5), or keep test data of your own apart."
)
BY_FOLDS = "Points are compared by the mean over the folds, each scored on the part that it did not train on."
NOT_RUN = "not run"
SPLITS = ("train", "validation", "test")
Row = dict[str, Any]
"""Of one point, JSON values: its number ('point'), settings ('values'), what `figures_of` gave, 'error' (why it has no result,
or NOT_RUN), 'paper_accuracy' and 'paper_epochs'."""


def figures_of(runs: Sequence[Measured], before: Sequence[Measured] = ()) -> Row:
    """What a point gave by its last runs, one or one for each fold, after those of earlier rounds of halving: means, and of the
    scores of several folds the standard deviations (n - 1)."""
    names = sorted({name for run in runs for name in run.metrics})
    values = {name: [run.metrics[name] for run in runs if name in run.metrics] for name in names}
    examples = [each.epochs * each.train_examples for each in (*before, *runs) if each.train_examples]
    return {
        **{name: statistics.fmean(found) for name, found in values.items()},
        "deviations": {name: statistics.stdev(found) for name, found in values.items() if len(found) > 1},
        "epochs_trained": statistics.fmean(run.epochs for run in runs),
        "examples_trained": sum(examples) if examples else None,
        "seconds": statistics.fmean(run.seconds for run in runs),
        "judged_by": next((run.measure for run in runs if run.measure), ""),
        "round": len(before) // len(runs),
        "warnings": list({each["kind"]: each for run in reversed(runs) for each in run.warnings}.values()),
    }


@dataclass(frozen=True)
class Results:
    """All rows in the order of the points."""

    rows: Sequence[Row]
    folds: int | None = None
    by: Measure | None = None
    """What points are compared by; None: what the runs are judged by."""

    def check(self) -> None:
        """ConfigError where runs have been scored, but not by what points are compared by."""
        names = {name for row in self.rows for name in scores_of(row, self.split)}
        if self.by is not None and names:
            self.by.check(names, "--by")

    @cached_property
    def split(self) -> str:
        """The part of the data that points are compared by: that for validation. Test scores are compared with folds, where
        they are of the part that was left out, and where runs kept nothing for validation."""
        scored = [row for row in self.rows if any(scores_of(row, split) for split in SPLITS)]
        has_validation = all(scores_of(row, "validation") for row in scored)
        return "validation" if scored and has_validation and not self.folds else "test"

    @cached_property
    def _measure(self) -> Measure:
        judged_by = next((row["judged_by"] for row in self.rows if row.get("judged_by")), "")
        names = {f"{split}_{name}" for row in self.rows for split in SPLITS for name in scores_of(row, split)}
        return self.by or measure_of(dict.fromkeys(names or {"test_accuracy"}, 0.0), judged_by)

    @property
    def measure(self) -> str:
        """What points are compared by, like 'validation_accuracy'."""
        return f"{self.split}_{self._measure.name}"

    @property
    def tested(self) -> str:
        """The same on the test data, which chooses nothing where there is another part."""
        return f"test_{self._measure.name}"

    def worth(self, row: Row) -> float:
        """What a search makes large: the score, or a loss with a minus; less than anything where there is no finite score."""
        score = self._measure.sign * float(row.get(self.measure, math.nan))
        return score if math.isfinite(score) else -math.inf

    @cached_property
    def best(self) -> Row | None:
        """The first one of those with the best score in the last round, of equal ones that with the smaller loss; None: nothing
        is scored."""

        def rank(row: Row) -> tuple[float, ...]:
            loss = row.get(f"{self.split}_loss", math.nan)
            return row["round"], self.worth(row), -math.inf if math.isnan(loss) else -loss

        return max((row for row in self.rows if self.worth(row) > -math.inf), key=rank, default=None)

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
    def conclusion(self) -> str:
        """The best point and its scores, in one line."""
        best = self.best
        if best is None:
            return "no point has a score"
        names = [name for name in dict.fromkeys([self.measure, self.tested]) if name in best]
        scores = [f"{_words(name)} {best[name]:.4f}" for name in names]
        return f"best: point {best['point']} ({in_words(best['values'])}), {', '.join(scores)}"

    @property
    def notes(self) -> list[str]:
        """What else there is to say: how the best one is chosen, and what went wrong in points that were trained anyway."""
        warnings = [(row["point"], RunWarning(**each)) for row in self.rows for each in row.get("warnings", ())]
        return [*filter(None, [self.how_chosen]), *(f"Point {number}: {each}" for number, each in warnings)]

    @property
    def errors(self) -> list[str]:
        """Why points have failed."""
        return [f"Point {row['point']} failed: {row['error']}" for row in self.rows if _has_failed(row)]

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        rows = [
            {
                **{key: value for key, value in row.items() if key != "deviations"},
                "deviation": row.get("deviations", {}).get(self.measure),
                "best": row is self.best,
            }
            for row in self.rows
        ]
        best = self.best and self.best["point"]
        return {"measure": self.measure, "chosen": self.how_chosen, "folds": self.folds, "best": best, "points": rows}

    def csv(self) -> str:
        """One line for each point, with full precision."""
        stream = io.StringIO()
        rows = [{"point": row["point"], **row.pop("values"), **row} for row in self.plain()["points"]]
        writer = csv.DictWriter(stream, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            nested = {key: json.dumps(value) for key, value in row.items() if isinstance(value, list | dict | bool)}
            writer.writerow(row | nested)
        return stream.getvalue()

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """The header of a table, and the texts of each row."""
        rows, measure, tested = self.plain()["points"], _words(self.measure), _words(self.tested)
        columns = {"point": [f"{row['point']}{'*' * row['best']}" for row in rows]}
        columns |= {key: [shown(row["values"][key]) for row in rows] for key in (rows[0]["values"] if rows else ())}
        scores = [row["error"] or _number(row.get(self.measure), 4) for row in rows]
        columns[measure] = ["failed" if _has_failed(row) else score for row, score in zip(rows, scores, strict=True)]

        more = {"sd": ("deviation", 4), tested: (self.tested, 4), "paper": ("paper_accuracy", 4)}
        more |= {"epochs trained": ("epochs_trained", 1), "paper's epochs": ("paper_epochs", 0)}
        more |= {"examples": ("examples_trained", 0), "seconds": ("seconds", 1)}
        for head, (name, digits) in more.items():
            if head not in columns and (head == "seconds" or any(row.get(name) is not None for row in rows)):
                columns[head] = [_number(row.get(name), digits) for row in rows]
        return list(columns), [list(texts) for texts in zip(*columns.values(), strict=True)]

    def table(self, title: str) -> Table:
        """For a terminal."""
        header, cells = self.cells()
        found = Table(title=title, caption="* the best one", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for name in header:  # a column breaks no word of its head, but for the name of a setting
            width = 0 if "." in name or "_" in name else max(map(len, name.split()))
            found.add_column(name, justify="right", overflow="fold", min_width=width)
        for row, texts in zip(self.rows, cells, strict=True):
            found.add_row(*texts, style="bold" if row is self.best else None)
        return found

    def markdown(self) -> str:
        """The same table, and below it why points have failed, and what else there is to say."""
        header, cells = self.cells()
        lines = [header, ["---"] * len(header), *cells]
        escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
        table = "".join(f"| {' | '.join(line)} |\n" for line in escaped)
        return "".join([table, "\n\\* the best one\n", *(f"\n{line}\n" for line in (*self.errors, *self.notes))])


def measure_by(text: str) -> Measure:
    """What `--by` says: a metric, of which more is better but for the loss, or with min or max before it."""
    words = text.split()
    if len(words) == 1 and words[0] not in ("min", "max"):
        text = f"{'min' if words[0] == 'loss' else 'max'} {words[0]}"
    return Measure.parse(text, "--by")


def _has_failed(row: Row) -> bool:
    return row["error"] not in (None, NOT_RUN)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
