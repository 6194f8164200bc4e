"""A search as a study of Optuna, which keeps it: its points are trials, and their scores the values that are made large."""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import NopPruner, SuccessiveHalvingPruner
from optuna.samplers import RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from paceline.core.chief.best_model import Measure
from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline_studies.search.folder import SearchFolder, content_of, measured
from paceline_studies.search.grid import Grid, Range, in_words, pairs, shown
from paceline_studies.search.results import NOT_RUN, Results, Row, figures_of
from paceline_studies.search.scheduler import Point

NAME = "search"
"""Of the study in its file."""
SAMPLERS = ("random", "tpe")
ENGINES = ("runs", "local")
"""What trains the points: real runs, or this process (linear models only)."""
TRIES = 100
"""Draws for one point until it is none of those before, and its settings go together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is searched, and how."""

    grid: Grid
    read: Callable[[Sequence[str]], Config]
    """The config with these settings on top (`--set`)."""
    folds: int | None = None
    halving: int | None = None
    """Of how many points one goes on to the next round, which has that many times the epochs."""
    sample: str | None = None
    """One of SAMPLERS; None: every combination."""
    points: int | None = None
    """How many a sample has."""
    seed: int | None = None
    """Of the sample."""
    engine: str = "runs"
    by: Measure | None = None
    """What points are compared by; None: what the runs are judged by."""

    def __post_init__(self) -> None:
        """UsageError where options don't go together."""
        keys, size, points = self.grid.values, self.grid.size, self.points
        drawn = {f"--points {points}": points is not None, f"--seed {self.seed}": self.seed is not None}
        drawn |= {f"--grid {key}={each}": True for key, each in self.grid.ranges.items()}
        strange = None if self.sample else next((name for name, is_there in drawn.items() if is_there), None)
        mistakes = {
            f"--engine {self.engine}: expected {' or '.join(ENGINES)}.": self.engine not in ENGINES,
            f"--grid data.fold and --folds {self.folds}: both choose the test part; leave one of them out.": (
                self.folds and "data.fold" in keys
            ),
            f"--grid epochs and --halving {self.halving}: both choose the epochs; leave one of them out.": (
                self.halving and "epochs" in keys
            ),
            f"{strange} is for a sample: add --sample random. A run's own seed is --set seed=N.": strange,
            f"--sample {self.sample}: expected {' or '.join(SAMPLERS)}.": self.sample not in (None, *SAMPLERS),
            f"--sample {self.sample}: how many points shall it draw? Add --points 20.": self.sample and points is None,
            f"--points {points}: the grid has {size} points; draw fewer, or leave --sample out.": (
                size is not None and points is not None and points >= size
            ),
        }
        for message, is_wrong in mistakes.items():
            if is_wrong:
                raise UsageError(message)

    @property
    def count(self) -> int:
        """How many points there will be."""
        return self.points or self.grid.size or 0

    def values(self) -> list[dict[str, Any]]:
        """The settings of all points; for a sample those that show whether what it can draw is right."""
        return list(self.grid.ends() if self.sample else self.grid.points())

    def rounds(self, epochs: int) -> list[int | None]:
        """The epochs of each round of halving; the last one is in full, which is None. UsageError: nothing to leave out."""
        return [None] if self.halving is None else [*budgets(epochs, self.count, self.halving)[:-1], None]

    def about(self, first: Config, configs: Iterable[Config]) -> dict[str, Any]:
        """Of which search a folder is, as JSON values. `first`: the first point's settings; `configs`: of all runs."""
        found: dict[str, Any] = {
            "grid": self.grid.values,
            "folds": self.folds,
            "settings": first.model_dump(mode="json"),
        }
        found |= {"halving": self.halving, "sample": self.sample, "seed": self.seed or 0, "engine": self.engine}
        return dict(json.loads(json.dumps(found | content_of(configs), default=str)))

    def names(self, number: int, epochs: int | None) -> list[str]:
        """Of a point's run, or of one run for each fold. `epochs`: of a round, if not in full."""
        name = f"point-{number}" + (f"-epochs-{epochs}" if epochs else "")
        return [f"{name}-fold-{part}" for part in range(self.folds)] if self.folds else [name]

    def point(self, number: int, values: Mapping[str, Any], epochs: int | None) -> Point:
        """With checked configs; ConfigError names the point where its settings are wrong. `epochs` as for `names`."""
        configs = []
        shorter = [f"epochs={epochs}"] if epochs else []
        try:
            for part, name in enumerate(self.names(number, epochs)):
                fold = [f"data.fold=[{part}, {self.folds}]"] if self.folds else []
                configs.append(self.read([*pairs(values), *fold, *shorter]).model_copy(update={"run": name}))
        except ConfigError as error:
            where = f", in a round of --halving, where epochs is {epochs}" if epochs else ""
            raise ConfigError(f"point {number} ({in_words(values)}){where}: {error}") from error
        return Point(number, values, configs)


class Study:
    """The study in the folder of a search, which is held."""

    def __init__(self, folder: SearchFolder, plan: Plan, rounds: Sequence[int | None], what: dict[str, Any]) -> None:
        """New or to be resumed; `what`: of which search it is (JSON values). ConfigError where it is of another one, or
        damaged."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._folder = folder
        self._plan = plan
        self._rounds = rounds
        self._space = space(plan.grid)
        self._trials: dict[int, Trial] = {}
        """Those that are being trained, by the number of the point."""
        pruner = SuccessiveHalvingPruner(rounds[0] or 1, plan.halving) if plan.halving else NopPruner()
        try:
            _mend(folder.manifest)
            self._storage = JournalStorage(JournalFileBackend(str(folder.manifest)))
            self.optuna = optuna.create_study(
                storage=self._storage, study_name=NAME, direction="maximize", load_if_exists=True, pruner=pruner
            )
        except (ValueError, KeyError, TypeError) as error:
            raise folder.damaged(error) from error
        before = self.optuna.user_attrs.get(NAME)
        if before is None:
            self.optuna.set_user_attr(NAME, what)
        else:
            folder.refuse_other(before, what)

    def _by_point(self) -> dict[int, FrozenTrial]:
        """The newest trial of each point."""
        trials = self.optuna.get_trials(deepcopy=False)
        return {trial.user_attrs["point"]: trial for trial in trials if "point" in trial.user_attrs}

    @property
    def finished(self) -> int:
        """How many points are finished."""
        return sum(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in self._by_point().values())

    def points(self, values: Sequence[Mapping[str, Any]]) -> Iterator[Point]:
        """Those that are left to train, one at a time. `values`: of all points, but for a sample's."""
        for number, trial in self._interrupted().items():
            yield self._begun(number, trial)
        self._enqueue({} if self._plan.sample else dict(enumerate(values, 1)))
        while self.optuna.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            trial = self.optuna.ask(self._space)
            yield self._begun(trial.user_attrs["point"], trial)
        while self._plan.sample and (number := len(self._by_point()) + 1) <= self._plan.count:
            if (chosen := self._chosen(number)) is None:
                return
            yield self._begun(number, chosen)

    def _interrupted(self) -> dict[int, Trial]:
        """Trials that go on where the process before has ended, by the number of their point."""
        found: dict[int, Trial] = {}
        study_id = self._storage.get_study_id_from_name(NAME)
        for trial in self.optuna.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.params.keys() == self._space.keys() and "point" in trial.user_attrs:
                trial_id = self._storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
                found[trial.user_attrs["point"]] = Trial(self.optuna, trial_id)
            else:  # it was still being chosen
                self.optuna.tell(trial.number, state=TrialState.FAIL)
        return found

    def _enqueue(self, wanted: Mapping[int, Mapping[str, Any]]) -> None:
        """Queues new points, and once more those that failed before."""
        known = self._by_point()
        failed = {number: each.user_attrs["values"] for number, each in known.items() if each.state == TrialState.FAIL}
        queued = [*failed.items(), *((number, each) for number, each in wanted.items() if number not in known)]
        if self._plan.halving:  # neighbours in a grid are alike, and the first points of a round meet few others
            random.Random(0).shuffle(queued)
        for number, each in queued:
            params = {key: _choice(value) for key, value in each.items()}
            self.optuna.enqueue_trial(params, {"point": number, "values": dict(each)})

    def _chosen(self, number: int) -> Trial | None:
        """The next one of a sample, by what those before gave if it learns; None: no other settings go together."""
        known = [trial.user_attrs["values"] for trial in self._by_point().values()]
        for attempt in range(TRIES):
            seed = _seed(self._plan.seed, len(self.optuna.get_trials(deepcopy=False)))
            by_results = self._plan.sample == "tpe" and attempt < TRIES // 2
            self.optuna.sampler = TPESampler(seed=seed, constant_liar=True) if by_results else RandomSampler(seed)
            trial = self.optuna.ask(self._space)
            values = _values(self._plan.grid, trial.params)
            if values not in known and self._fits(number, values):
                trial.set_user_attr("values", values)
                trial.set_user_attr("point", number)
                return trial
            self.optuna.tell(trial, state=TrialState.FAIL)
        return None

    def _fits(self, number: int, values: Mapping[str, Any]) -> bool:
        try:
            self._plan.point(number, values, self._rounds[0])
        except ConfigError:
            return False
        return True

    def _begun(self, number: int, trial: Trial) -> Point:
        """The point in its first round, or in that in which it was interrupted."""
        self._trials[number] = trial
        return self._plan.point(number, trial.user_attrs["values"], self._rounds[self._round(number)])

    def _round(self, number: int) -> int:
        """Which one of halving the point is in: its trial has a value of each one that has ended."""
        return min(len(self._by_point()[number].intermediate_values), len(self._rounds) - 1)

    def ended(self, point: Point, error: str | None) -> Point | None:
        """Notes what the point gave, or why it failed; itself in its next round, if it is good enough for that."""
        trial = self._trials[point.number]
        if error is not None:
            trial.set_user_attr("error", error)
            self.optuna.tell(trial, state=TrialState.FAIL)
            return None
        round_ = self._round(point.number)
        found = self._figures(point.number, round_)
        results = Results([found], self._plan.folds, self._plan.by)
        results.check()
        trial.set_user_attr("figures", found)

        value = results.worth(found)
        trial.report(value, point.configs[0].epochs)
        if round_ + 1 == len(self._rounds):
            self.optuna.tell(trial, value)
        elif trial.should_prune():
            self.optuna.tell(trial, state=TrialState.PRUNED)
        else:
            return self._plan.point(point.number, trial.user_attrs["values"], self._rounds[round_ + 1])
        return None

    def _figures(self, number: int, round_: int) -> Row:
        """The figures of the round, whose examples are those of the rounds before, too."""
        names = [self._plan.names(number, epochs) for epochs in self._rounds[: round_ + 1]]
        *before, last = [[measured(self._folder.run(name)) for name in each] for each in names]
        return figures_of([each for each in last if each], [each for round_ in before for each in round_ if each])

    def rows(self) -> list[Row]:
        """What each point gave in the last round that it was in, next to what a paper says of it."""
        return [self._row(number, trial) for number, trial in sorted(self._by_point().items())]

    def _row(self, number: int, trial: FrozenTrial) -> Row:
        noted, papers = trial.user_attrs, self._plan.grid.paper
        config = self._plan.point(number, noted["values"], None).configs[0] if papers else None
        paper = next((each for each in papers if config and each.is_about(config)), None)
        row: Row = {"point": number, "values": noted["values"]}
        row |= {"paper_accuracy": paper and paper.accuracy, "paper_epochs": paper and paper.epochs}
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
            return {**row, **noted["figures"], "error": None}
        return {**row, "error": noted.get("error", NOT_RUN)}


def budgets(epochs: int, points: int, factor: int) -> list[int]:
    """The epochs of each round of successive halving (Jamieson and Talwalkar 2016), the last one in full; a round trains from
    scratch, so that a schedule of the rate ends in it. UsageError where there is nothing to leave out."""
    shorter = [epochs // factor**k for k in takewhile(lambda k: min(epochs, points) >= factor**k, count(1))]
    if not shorter:
        raise UsageError(
            f"--halving {factor}: got {points} points of {epochs} epochs; expected at least {factor} of each. "
            "Give more of them, or leave --halving out."
        )
    return [*reversed(shorter), epochs]


def space(grid: Grid) -> dict[str, BaseDistribution]:
    """The grid in Optuna's words."""
    return {key: _distribution(grid.ranges.get(key), values) for key, values in grid.values.items()}


def _distribution(range_: Range | None, values: list[Any]) -> BaseDistribution:
    if range_ is None:
        return CategoricalDistribution([_choice(value) for value in values])
    if isinstance(range_.low, int) and isinstance(range_.high, int):
        return IntDistribution(range_.low, range_.high, log=range_.log)
    return FloatDistribution(range_.low, range_.high, log=range_.log)


def _choice(value: Any) -> Any:
    """As Optuna stores it: lists and the like are a text."""
    return shown(value) if isinstance(value, list | dict) else value


def _values(grid: Grid, params: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that these parameters mean; numbers of a range have six digits."""

    def value(key: str, values: list[Any]) -> Any:
        param, range_ = params[key], grid.ranges.get(key)
        if range_ is None:
            return values[[_choice(each) for each in values].index(param)]
        return param if isinstance(param, int) else min(max(float(f"{param:.6g}"), range_.low), range_.high)

    return {key: value(key, values) for key, values in grid.values.items()}


def _seed(seed: int | None, trials: int) -> int:
    """Another one for each trial, and the same one in a search that goes on."""
    return random.Random(f"{seed or 0} {trials}").getrandbits(32)


def _mend(study: Path) -> None:
    """A process that was killed may have left its lock, and a machine that failed half a line; nobody else writes now."""
    study.with_name(f"{study.name}.lock").unlink(missing_ok=True)
    content = study.read_bytes() if study.exists() else b""
    if (end := content.rfind(b"\n") + 1) < len(content):
        study.write_bytes(content[:end])
