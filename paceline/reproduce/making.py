"""Makes a table or figure: trains what is missing, then writes table, picture, JSON and the page."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from paceline.core.errors import ConfigError, UsageError
from paceline.local.cpu_cores import cores
from paceline.plot_style import png
from paceline.private import make_private
from paceline.reproduce import page
from paceline.reproduce.artefacts import Artefact, known
from paceline.reproduce.kept import Kept
from paceline.reproduce.recipe import Around, Finish, Runs, Train
from paceline.reproduce.rule import Verdict
from paceline.reproduce.side_by_side import Finished, timed, train_side_by_side

RUNS, PICTURE, RESULT, TABLE = "runs.jsonl", "picture.png", "result.json", "table.txt"


class Making:
    """One table or figure in a folder of results."""

    def __init__(
        self,
        artefact: Artefact,
        out: Path,
        seeds: int | None = None,
        full: bool = False,
        sets: Sequence[str] | None = None,
    ) -> None:
        """`seeds`: runs of each row, the recipe's number if None. `full`: the paper's size. `sets`: the user's own settings at
        this size; None: those of the finished runs. Where finished runs have others, or another version, `kept` refuses."""
        self.artefact = artefact
        self.recipe = artefact.recipe
        self.is_full = full
        self.seeds = self.recipe.seeds if seeds is None else seeds
        size = "full" if full else "small"
        self.folder = out / size / artefact.name
        trained = self.recipe.same_runs_as or artefact.name
        owner = next((each for each in known() if each.name == trained), artefact)
        what = {"artefact": trained, "size": size, "version": owner.recipe.version}
        if full and sets is not None:
            what["settings"] = list(sets)
        self.kept = Kept(out / size / trained / RUNS, what)
        self._runs = out / size / artefact.paper / "runs"

    def check_full(self, data: str | None) -> None:
        """UsageError where there is no such size, or no such `data`."""
        name, full = self.artefact.name, self.recipe.full
        if full is None:
            raise UsageError(f"{name} has no --full size: {self.recipe.small} Leave out --full.")
        without = f"Without --full it runs on what is here: {self.recipe.small}"
        if data is None:
            raise UsageError(f"{name} --full needs --data, {full.needs} {without}")
        if "://" not in data and not Path(data).exists():
            raise UsageError(f"{name} --full: there is no {data}. It needs {full.needs} {without}")

    @property
    def keys(self) -> list[tuple[str, int]]:
        """All runs, seed by seed, so that one that is broken off has whole columns of seeds."""
        return [(row, seed) for seed in range(self.seeds) for row in self.recipe.rows]

    @property
    def missing(self) -> list[tuple[str, int]]:
        """Runs that are still to be made."""
        self.kept.follow()
        return [key for key in self.keys if key not in self.kept]

    @property
    def seconds(self) -> float:
        """That its runs took, added up."""
        return sum(self.kept.seconds.get(key, 0.0) for key in self.keys)

    @property
    def minutes(self) -> float:
        """That making it takes: measured on this machine, or about."""
        at_once = min(self.kept.about["cores"], len(self.keys)) if self.recipe.side_by_side and self.kept.about else 1
        return self.recipe.minutes if self.missing else self.seconds / 60 / at_once

    @property
    def lacks(self) -> str:
        """Why what is missing can't be trained on this machine; empty where it can."""
        return self.recipe.lacks() if self.missing else ""

    def train(self) -> Iterator[str]:
        """Trains what is missing; gives each run's name when it is kept."""
        with TemporaryDirectory(prefix="paceline-reproduce-") as folder:
            if self.recipe.side_by_side and cores() > 1 and len(self.missing) > 1:
                yield from self._keep(train_side_by_side(self.recipe.run, self.missing, Path(folder)))
            else:
                yield from self._keep(self._each(self.recipe.run, Around(Path(folder))))

    def train_full(self, data: str, sets: Sequence[str], finish: Finish) -> Iterator[str]:
        """The same at the paper's size, with run folders next to the results. `data`, `sets`, `finish`: as in `Around`.
        KeyboardInterrupt or Stopped leave a run in the middle; the next call goes on with it."""
        assert self.recipe.full is not None
        yield from self._keep(self._each(self.recipe.full.run, Around(self._runs, data, sets, finish)))

    def _each(self, run: Train, around: Around) -> Iterator[Finished]:
        for row, seed in self.missing:
            yield timed(run, around, row, seed)

    def _keep(self, runs: Iterable[Finished]) -> Iterator[str]:
        with self.kept.locked():
            for (row, seed), figures, seconds in runs:
                self.kept.add((row, seed), figures, seconds)
                yield f"{row}, seed {seed}"

    @property
    def runs(self) -> Runs:
        """ConfigError where some are missing."""
        if missing := self.missing:
            name = self.artefact.name
            raise ConfigError(f"{name} has {len(missing)} runs still to make: paceline reproduce {name}")
        return Runs(self.recipe, self.seeds, self.kept.figures, self.is_full)

    def write(self) -> None:
        """Table, picture and JSON, next to the runs."""
        runs = self.runs
        make_private(self.folder)
        (self.folder / TABLE).write_text("\n".join(page.table(runs)) + "\n")
        (self.folder / RESULT).write_text(self._result())
        (self.folder / PICTURE).write_bytes(png(self.recipe.draw(runs)))

    def _result(self) -> str:
        return json.dumps(self.plain(), indent=1) + "\n"

    @property
    def is_written(self) -> bool:
        """Whether they exist, of as many seeds and with what this release says of them."""
        result = self.folder / RESULT
        return result.exists() and result.read_text() == self._result()

    @property
    def made(self) -> page.Made:
        """For the page."""
        dates = sorted({self.kept.dates[key] for key in self.keys})
        return page.Made(self.artefact, self.runs, self.kept.about, self.seconds, (dates[0], dates[-1]))

    def plain(self) -> dict[str, Any]:
        """For programs."""
        runs, recipe = self.runs, self.recipe
        return {
            **self.kept.about,
            "seeds": self.seeds,
            "seconds": round(self.seconds, 1),
            "rows": {
                row: {
                    column: {"values": runs.of(row, column), "paper": recipe.paper.get(row, {}).get(column)}
                    for column in recipe.columns
                }
                for row in recipe.rows
            },
            "claims": [
                {
                    "says": claim.says,
                    "paper": claim.paper(recipe.paper),
                    "ours": {key: _finite(number) for key, number in asdict(claim.ours(runs)).items()},
                    "verdict": claim.verdict(runs),
                }
                for claim in recipe.claims
            ],
        }

    def verdicts(self) -> list[Verdict]:
        """Of each sentence."""
        runs = self.runs
        return [claim.verdict(runs) for claim in self.recipe.claims]


def makings(out: Path, full: bool = False) -> Sequence[Making]:
    """Every table and figure, with as many seeds as all its rows have in this folder, or as its recipe has; at full size those
    that have one."""
    found = []
    for artefact in known():
        if full and artefact.recipe.full is None:
            continue
        making = Making(artefact, out, full=full)
        whole = next(seed for seed in count() if any((row, seed) not in making.kept for row in artefact.recipe.rows))
        making.seeds = whole or making.seeds
        found.append(making)
    return found


def page_of(out: Path) -> Path:
    """The page's file. UsageError where it is another one."""
    folder = out if out.name not in ("", "..") else out.resolve()
    path = folder.with_name(f"{folder.name}.md")
    if path.exists() and not path.read_text(errors="replace").startswith(page.TITLE):
        raise UsageError(f"--out {out}: the page would be {path}, which is another file. Give another --out.")
    return path


def write_page(out: Path) -> Path:
    """The page of all that is in this folder, next to it; tables and pictures that are of other seeds, or of an older release,
    are written again."""
    path = page_of(out)
    made = [each for full in (False, True) for each in makings(out, full) if not each.missing]
    for each in made:
        if not each.is_written:
            each.write()
    path.write_text(page.whole([each.made for each in made], known(), path.stem))
    return path


def _finite(number: float) -> float | None:
    return number if abs(number) < float("inf") else None
