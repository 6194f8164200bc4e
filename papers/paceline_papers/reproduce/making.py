"""Makes a table or figure: trains what is missing, then writes table, picture, JSON and the page."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import count
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from paceline.base.plot_style import png
from paceline.base.private import make_private
from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline.data.whole_file import replacing
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.supervise.outcome import Outcome
from paceline.launch.this_machine.processors import cores
from paceline_papers.reproduce import page
from paceline_papers.reproduce.artefacts import Artefact, known
from paceline_papers.reproduce.kept import RunStore, make_folder, other_runs
from paceline_papers.reproduce.recipe import Around, Finish, Runs, Train
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.side_by_side import Finished, timed, train_side_by_side

RUNS, PICTURE, RESULT, TABLE = "runs.jsonl", "picture.png", "result.json", "table.txt"
OF = "of"
"""Begins the name of a file in the folder of a paper's full runs: of which data and settings these are."""


class Making:
    """One table or figure in a folder of results."""

    def __init__(
        self,
        artefact: Artefact,
        out: Path,
        seeds: int | None = None,
        full: bool = False,
        sets: Sequence[str] | None = None,
        data: str | None = None,
    ) -> None:
        """`seeds`: runs of each row, the recipe's number if None. `full`: the paper's size. `sets`: the user's own settings at
        this size; `data`: the checksum of the data set; None: those of the finished runs. Where finished runs have others, or
        another version, `kept` refuses."""
        self.artefact = artefact
        self.recipe = artefact.recipe
        self.is_full = full
        self.seeds = (self.recipe.full if full and self.recipe.full else self.recipe).seeds if seeds is None else seeds
        size = "full" if full else "small"
        self.folder = out / size / artefact.name
        trained = self.recipe.same_runs_as or artefact.name
        owner = next((each for each in known() if each.name == trained), artefact)
        what: dict[str, Any] = {"artefact": trained, "size": size, "version": owner.recipe.version}
        if full and sets is not None:
            what["settings"] = list(sets)
        if data is not None:
            what["data"] = data
        self._own: dict[str, Any] = {key: what[key] for key in ("settings", "data") if key in what}
        self._runs = out / size / artefact.paper / "runs"
        self.kept = RunStore(out / size / trained / RUNS, what, self._runs if full else None)

    @property
    def keys(self) -> list[tuple[str, int]]:
        """All runs, seed by seed, so that one that is broken off has whole columns of seeds."""
        return [(row, seed) for seed in range(self.seeds) for row in self.recipe.rows]

    @property
    def whole(self) -> int:
        """Seeds that all rows have."""
        return next(seed for seed in count() if any((row, seed) not in self.kept for row in self.recipe.rows))

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
    def minutes(self) -> float | None:
        """That making it takes: measured on this machine, or about; None where nobody knows."""
        if self.missing:
            return None if self.is_full else self.recipe.minutes
        is_apart = self.recipe.side_by_side and not self.is_full
        return self.seconds / 60 / (min(self.kept.about["cores"], len(self.keys)) if is_apart else 1)

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
        KeyboardInterrupt or Stopped leave a run in the middle; the next call goes on with it. ConfigError where the folder of
        a paper's runs has those of other data or settings, even if none of them is finished."""
        assert self.recipe.full is not None
        file = self._runs / f"{OF}-{self.recipe.full.needs.partition(':')[0].lower()}.json"
        self._check_runs(file)

        def go(config: Config, runs: Path) -> tuple[RunFolder, Outcome]:
            with replacing(file, "what the runs are of") as temporary:
                temporary.write_text(json.dumps(self._own) + "\n")
            try:
                return finish(config, runs)
            finally:
                if not any(runs.glob("*/config.yaml")):  # it was refused
                    file.unlink(missing_ok=True)

        yield from self._keep(self._each(self.recipe.full.run, Around(self._runs, data, sets, go)))

    def _check_runs(self, file: Path) -> None:
        """ConfigError where the folder of the paper's runs has those of other data or settings, as `file` says."""
        aside = f"Move {self._runs} away, or give another --out."
        make_folder(self._runs)
        try:
            found = json.loads(file.read_text()) if file.exists() else self._own
        except ValueError as error:
            raise ConfigError(f"{file} can't be read: {error}. {aside}") from error
        if found != self._own:
            raise ConfigError(f"{self._runs} {other_runs(found, self._own)} {aside}")

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
        (self.folder / PICTURE).write_bytes(png(self.recipe.draw(runs)))
        (self.folder / RESULT).write_text(self._result())  # the last one: where it is right, the others are

    def _result(self) -> str:
        return json.dumps(self.plain(), indent=1) + "\n"

    @property
    def is_written(self) -> bool:
        """Whether they exist, of as many seeds and with what this release says of them."""
        table, picture, result = (self.folder / name for name in (TABLE, PICTURE, RESULT))
        return table.exists() and picture.exists() and result.exists() and result.read_text() == self._result()

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
                    column: {
                        "values": [_finite(each) for each in runs.of(row, column)],
                        "paper": recipe.paper.get(row, {}).get(column),
                    }
                    for column in recipe.columns
                }
                for row in recipe.rows
            },
            "claims": [
                {
                    "says": claim.says,
                    "paper": claim.paper(recipe.paper),
                    "ours": {key: _finite(number) for key, number in asdict(claim.ours(runs)).items()},
                    "verdict": verdict,
                }
                for claim, verdict in zip(recipe.claims, runs.verdicts, strict=True)
            ],
        }

    def verdicts(self) -> list[Verdict]:
        """Of each sentence."""
        return self.runs.verdicts


def check_full(every: Sequence[Artefact], data: str | None) -> None:
    """UsageError where one has no such size, they need different data, or there is no such `data`."""
    if not every:
        raise UsageError("None of these has a --full size. Leave out --full.")
    names: dict[str, list[str]] = {}
    for each in every:
        if each.recipe.full is None:
            raise UsageError(f"{each.name} has no --full size: {each.recipe.small} Leave out --full.")
        names.setdefault(each.recipe.full.needs, []).append(each.name)
    if len(names) > 1:
        each_by_itself = "; ".join(f"{needs.partition(':')[0]}: {', '.join(those)}" for needs, those in names.items())
        raise UsageError(
            f"--full with one --data makes what needs the same data. Name one at a time. {each_by_itself}."
        )
    first, (needs,) = every[0], names
    without = f"Without --full it runs on what is here: {first.recipe.small}"
    if data is None:
        raise UsageError(f"{first.name} --full needs --data, {needs} {without}")
    if "://" not in data and not Path(data).exists():
        raise UsageError(f"{first.name} --full: there is no {data}. It needs {needs} {without}")


def checksum(data: str) -> str:
    """Of a data set's files, wherever they are; of a URL itself."""
    path, total = Path(data), hashlib.sha256()
    if "://" in data:
        return data
    for file in sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]:
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()[:12]


def makings(out: Path, full: bool = False) -> Sequence[Making]:
    """Every table and figure, with as many seeds as all its rows have in this folder, or as its recipe has; at full size those
    that have one."""
    found = []
    for artefact in known():
        if full and artefact.recipe.full is None:
            continue
        making = Making(artefact, out, full=full)
        making.seeds = making.whole or making.seeds
        found.append(making)
    return found


def page_of(out: Path) -> Path:
    """The page's file. UsageError where it is another one, or `out` is no folder."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out}: this is a file. Give a folder for the results.")
    folder = out if out.name not in ("", "..") else out.resolve()
    path = folder.with_name(f"{folder.name}.md")
    if path.exists() and not path.read_text(errors="replace").startswith(page.TITLE):
        raise UsageError(f"--out {out}: the page would be {path}, which is another file. Give another --out.")
    return path


def write_page(out: Path) -> Path:
    """The page of all that is in this folder, next to it, with what can't be used; tables and pictures that are of other seeds,
    or of an older release, are written again."""
    path = page_of(out)
    every = [each for full in (False, True) for each in makings(out, full)]
    made = [each for each in every if not each.missing]
    refused = {(each.artefact.name, each.is_full) for each in every if each.kept.refusal}
    for each in made:
        if not each.is_written:
            each.write()
    path.write_text(page.whole([each.made for each in made], known(), refused, path.stem))
    return path


def _finite(number: float) -> float | None:
    """NaN and infinity are no JSON."""
    return number if isfinite(number) else None
