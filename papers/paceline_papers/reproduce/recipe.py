"""What a table or figure of a paper is, and how it is made again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.supervise.outcome import Outcome
from paceline_papers.reproduce.claims import Claim, Numbers, RunFigures
from paceline_papers.reproduce.rule import Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Figures = Mapping[str, Any]
"""What one run gave: numbers, or lists of them (curves). Read from JSON and written to it."""


@dataclass(frozen=True, slots=True)
class Around:
    """What a run has. `folder`: for shards and the like; at full size for the runs of a paper, which stay there."""

    folder: Path
    data: str = ""
    """At full size: the paper's data set."""
    sets: Sequence[str] = ()
    """At full size: the user's own settings, as `--set` takes them."""
    finish: "Finish | None" = None
    """At full size: trains what is left of a run."""


Train = Callable[[Around, str, int], Figures]
"""Trains a row with a seed."""
Finish = Callable[[Config, Path], tuple[RunFolder, Outcome]]
"""Trains a run in a folder of runs, or what is left of it, as `paceline run` does."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table. `form`: how its numbers are written."""

    name: str
    form: str = ".4f"


@dataclass(frozen=True, slots=True)
class Full:
    """The paper's own size, where that is another one. `run`: as a recipe's, with real processes."""

    trains: str
    """A sentence."""
    needs: str
    """Which data, a colon, and where one gets it: a sentence."""
    run: Train
    seeds: int = 5
    """Of each row. [Sharding] has five; [SHAT] and [Hogwild] don't say how many."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One table or figure. `run` trains one row with one seed, and gives the same whenever it is repeated."""

    number: str
    """In the paper: Table 2."""
    shows: str
    small: str
    """What is trained without --full: a sentence."""
    rows: Sequence[str]
    columns: Mapping[str, Column]
    """Of the table, by figure; a run may give more, for the picture."""
    run: Train
    draw: Callable[["Runs"], "Figure"]
    claims: Sequence[Claim]
    minutes: float
    """About, on two cores, without --full."""
    seeds: int = 5
    paper: Numbers = field(default_factory=dict)
    deviations: Numbers = field(default_factory=dict)
    """The paper's standard deviations; the table has ours next to them."""
    full: Full | None = None
    """None: there is no larger size."""
    same_runs_as: str = ""
    """The artefact whose runs this one draws, too, where two show the same runs: they are made once."""
    side_by_side: bool = False
    """Its runs at the small size measure no real time, or what they measure is mostly pauses, so one for each core is made at a
    time."""
    lacks: Callable[[], str] = str
    """Why it can't be run on this machine, and what it takes; empty where it can."""
    version: int = 1
    """Raised when something else is trained than before: older runs then don't count."""


class Runs(RunFigures):
    """What all runs of a recipe gave."""

    def __init__(
        self, recipe: Recipe, seeds: int, known: Mapping[tuple[str, int], Figures], is_full: bool = False
    ) -> None:
        self.recipe = recipe
        self.is_full = is_full
        self.seeds = seeds
        self._known = known

    def of(self, row: str, column: str) -> list[Any]:
        return [self._known[row, seed][column] for seed in range(self.seeds)]

    @property
    def verdicts(self) -> list[Verdict]:
        """What they say of each of the recipe's sentences, by the paper's numbers."""
        return [claim.verdict(self, self.recipe.paper) for claim in self.recipe.claims]
