"""What the trainings on one table gave: a table, a picture, and JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from paceline.base.plot_style import png
from paceline_papers.baseline.baseline import Baseline, Wanted
from paceline_papers.baseline.engine import Found, Point, engine
from paceline_papers.baseline.kill import Kill
from paceline_papers.baseline.scores import scores
from paceline_papers.reproduce.pictures import lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLE, PICTURE, RESULT = "table.txt", "seconds.png", "results.json"
HEADER = (
    "engine",
    "model",
    "features",
    "executors",
    "kept",
    "accuracy",
    "PPV, weighted",
    "PPV, mean",
    "log loss",
    "weights",
    "prepare (s)",
    "start (s)",
    "train (s)",
    "speed-up",
    "test (s)",
    "CPU (s)",
)

SHORT = ("accuracy", "PPV, weighted", "log loss", "weights", "train (s)", "speed-up", "CPU (s)")
WHERE_THEY_DIFFER = ("weights", "speed-up")
"""Columns that a terminal has only where two of their cells say different things."""


class Results:
    """Of all points that a command asks for; all of them are trained."""

    def __init__(self, baseline: Baseline, wanted: Wanted) -> None:
        self._split = baseline.split()
        self._folder = baseline.folder
        self._about = baseline.kept.about
        self._found: Mapping[Point, Found] = {
            point: {**found, **scores(found["confusion"])}
            for point in wanted.points()
            for found in [baseline.kept.figures[point.name, 0]]
        }

    def write(self) -> None:
        """Table, picture and JSON, next to the runs."""
        (self._folder / TABLE).write_text("\n".join(self.text()) + "\n")
        (self._folder / RESULT).write_text(json.dumps(self.plain(), indent=1) + "\n")
        (self._folder / PICTURE).write_bytes(png(self.draw()))

    def speed_up(self, point: Point) -> float | None:
        """Against the fewest executors of the same engine, model and storage."""
        if not engine(point.engine).has_executors:
            return None
        same = [each for each in self._found if _line(each) == _line(point)]
        least = min(same, key=lambda each: each.executors)
        return float(self._found[least]["training"] / self._found[point]["training"])

    def cells(self) -> list[Sequence[str]]:
        """Of the table, row by row."""
        return [self._row(point, found) for point, found in self._found.items()]

    def short(self) -> tuple[Sequence[str], list[Sequence[str]]]:
        """A table that fits on a terminal: names of `SHORT`, and rows of who trained what, and these columns."""
        rows = self.cells()
        told = {name: {row[HEADER.index(name)] for row in rows} - {""} for name in SHORT}
        kept = [name for name in SHORT if name not in WHERE_THEY_DIFFER or len(told[name]) > 1]
        return kept, [
            (", ".join(filter(None, (row[0], *row[3:5]))), row[1], *(row[HEADER.index(name)] for name in kept))
            for row in rows
        ]

    def _row(self, point: Point, found: Found) -> Sequence[str]:
        own = engine(point.engine)
        places = (str(point.executors) * own.has_executors, point.storage * own.has_storages)
        speed_up = self.speed_up(point)
        return (
            point.engine,
            point.variant,
            point.encoding,
            *places,
            f"{100 * found['accuracy']:.2f} %",
            f"{100 * found['ppv_weighted']:.2f} %",
            f"{100 * found['ppv_macro']:.2f} %",
            "" if found["log_loss"] is None else f"{found['log_loss']:.4f}",
            "" if found.get("weights") is None else f"{found['weights']:,}",
            f"{found['preparing']:.1f}",
            f"{found['starting']:.1f}" if "starting" in found else "",
            f"{found['training']:.2f}",
            "" if speed_up is None else f"{speed_up:.2f}",
            f"{found['testing']:.2f}",
            "" if found["cpu"] is None else f"{found['cpu']:.1f}",
        )

    def classes(self) -> list[Sequence[str]]:
        """PPV by class of each model, where it first was trained: engine and model, then a cell a class."""
        seen: dict[tuple[str, str], Sequence[str]] = {}
        for point, found in self._found.items():
            cells = ["-" if value is None else f"{100 * value:.1f} %" for value in found["ppv"]]
            seen.setdefault((point.engine, point.variant), (point.engine, point.variant, *cells))
        return list(seen.values())

    def notes(self) -> list[str]:
        """What became of each model in whose training an executor was killed, and where a cluster gave other executors."""
        kills = [f"{point.name}: {Kill(**found['kill'])}." for point, found in self._found.items() if "kill" in found]
        return kills + [
            f"{point.name}: the cluster had {found['there']} executors, so its seconds are of as many."
            for point, found in self._found.items()
            if found.get("there", point.executors) != point.executors
        ]

    def heading(self) -> list[str]:
        """What to compare the numbers with."""
        split = self._split
        counts = next(iter(self._found.values()))["confusion"][0]
        always = sum(counts) / split.test_rows
        best = "" if split.best is None else f" The best possible model has {100 * split.best:.2f} %."
        return [
            f"{split.train_rows:,} rows to train on and {split.test_rows:,} to test on; {len(split.classes)} classes.",
            f"Always {split.classes[0]!r} is right for {100 * always:.2f} %.{best}",
        ]

    def text(self) -> list[str]:
        """All of it in Markdown."""
        return [
            *self.heading(),
            "",
            *_markdown(HEADER, self.cells()),
            "",
            "PPV by class:",
            "",
            *_markdown(("engine", "model", *self._split.classes), self.classes()),
            *[line for said in self.notes() for line in ("", said)],
        ]

    def plain(self) -> dict[str, Any]:
        """For programs."""
        split = self._split
        return {
            **self._about,
            "classes": list(split.classes),
            "train_rows": split.train_rows,
            "test_rows": split.test_rows,
            "best_accuracy": split.best,
            "runs": [
                {**asdict(point), **found, "speed_up": self.speed_up(point)} for point, found in self._found.items()
            ],
        }

    def draw(self) -> "Figure":
        """Seconds of training by executors: a panel for each model, a line for each engine and storage."""
        panels: dict[str, dict[str, list[list[float]]]] = {}
        at: dict[str, dict[str, list[float]]] = {}
        for point, found in self._found.items():
            label = f"{point.engine}, {point.storage}" if engine(point.engine).has_storages else point.engine
            panels.setdefault(point.variant, {}).setdefault(label, []).append([found["training"]])
            at.setdefault(point.variant, {}).setdefault(label, []).append(point.executors)
        return lines(panels, at, "executors", "training (s)")


def _line(point: Point) -> tuple[str, ...]:
    return point.engine, point.variant, point.encoding, point.storage


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
