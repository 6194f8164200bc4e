"""What a table or figure of a paper is, and how it is made again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.reproduce.claims import Claim, Found, Numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Figures = Mapping[str, Any]
"""What one run gave: numbers, or lists of them (curves). Read from JSON and written to it."""


@dataclass(frozen=True, slots=True)
class Around:
    """What a run has: a folder of its recipe's for shards and the like, and the paper's data set, if one was given."""

    folder: Path
    data: str | None = None
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table. `form`: how its numbers are written."""

    name: str
    form: str = ".4f"


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
    run: Callable[[Around, str, int], Figures]
    draw: Callable[["Runs"], "Figure"]
    claims: Sequence[Claim]
    minutes: float
    """About, on two cores, without --full."""
    seeds: int = 5
    paper: Numbers = field(default_factory=dict)
    full: str = ""
    """What --full needs, and where one gets it: a sentence. Empty: there is no larger size."""
    same_runs_as: str = ""
    """The artefact whose runs this one draws, too, where two show the same runs: they are made once."""
    lacks: Callable[[], str] = str
    """Why it can't be run on this machine, and what it takes; empty where it can."""
    version: int = 1
    """Raised when something else is trained than before: older runs then don't count."""


class Runs(Found):
    """What all runs of a recipe gave."""

    def __init__(self, recipe: Recipe, seeds: int, known: Mapping[tuple[str, int], Figures]) -> None:
        self.recipe = recipe
        self.seeds = seeds
        self._known = known

    def of(self, row: str, column: str) -> list[Any]:
        return [self._known[row, seed][column] for seed in range(self.seeds)]
