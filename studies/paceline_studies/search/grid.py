"""What a search goes through: some settings with the values that each of them takes, or a grid that a paper has."""

import difflib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from paceline.core.errors import ConfigError, UsageError
from paceline.core.registry import explain
from paceline.core.settings.config import Config, Section
from paceline.settings.load_settings import parse_yaml, read_yaml
from paceline_studies.search.grids import GRIDS, paper_grids

NUMBER = re.compile(r"[+-]?\d+(\.\d*)?e[+-]?\d+", re.IGNORECASE)
"""What YAML takes for a text, like 1e-4."""


class Published(Section):
    """What a paper reports for one setting."""

    at: dict[str, Any] = Field(description="Settings by key, like optimizer.lr.")
    accuracy: float = Field(description="On the test data (ratio).")
    epochs: float | None = Field(None, description="Until training ended; none where the paper does not say.")

    def is_about(self, config: Config) -> bool:
        """Whether the config has all of these settings."""
        settings = config.model_dump(mode="json")
        return all(_at(settings, key) == value for key, value in self.at.items())


class PaperGrid(Section):
    """A file in presets/grids."""

    preset: str = Field(description="The preset that its points start from.")
    grid: dict[str, list[Any]] = Field(description="Values by key.")
    paper: list[Published] = Field(description="What the paper found.")


@dataclass(frozen=True, slots=True)
class Range:
    """All numbers from `low` to `high`, both included; whole ones if both are written so."""

    low: float
    high: float
    log: bool

    def __str__(self) -> str:
        return f"{'log:' if self.log else ''}{self.low}..{self.high}"


@dataclass(frozen=True, slots=True)
class Grid:
    """Some settings, and what each of them is tried with."""

    values: dict[str, list[Any]]
    """By key of the settings; a range is the only one of its list."""
    preset: str | None = None
    paper: tuple[Published, ...] = ()

    @property
    def ranges(self) -> dict[str, Range]:
        """Those of its keys that have one."""
        return {key: values[0] for key, values in self.values.items() if isinstance(values[0], Range)}

    @property
    def size(self) -> int | None:
        """How many combinations there are; None with a range."""
        return None if self.ranges else math.prod(map(len, self.values.values()))

    def points(self) -> Iterator[dict[str, Any]]:
        """Every combination: the value of each key; the last key varies fastest."""
        for values in itertools.product(*self.values.values()):
            yield dict(zip(self.values, values, strict=True))

    def ends(self) -> Iterator[dict[str, Any]]:
        """A few points that have each value and both ends of each range, the other keys at their first ones."""
        tried = self.values | {key: [each.low, each.high] for key, each in self.ranges.items()}
        first = {key: values[0] for key, values in tried.items()}
        yield first
        for key, values in tried.items():
            yield from (first | {key: value} for value in values[1:])


def read_grid(texts: Sequence[str]) -> Grid:
    """'optimizer.lr=0.1,0.01', several of these, or the name of a paper's grid. UsageError where one of them is neither."""
    values: dict[str, list[Any]] = {}
    preset, paper = None, []
    for text in texts:
        if "=" in text:
            found = _read_values(text)
        else:
            named = read_paper_grid(text)
            preset, found = named.preset, named.grid
            paper += named.paper
        for key in found.keys() & values.keys():
            raise UsageError(
                f"--grid {text}: {key} is given twice; list all of its values at once, separated by commas."
            )
        values |= found
    if "run" in values:
        raise UsageError("--grid run: a search names its runs itself; to repeat a run, use --grid seed=0,1,2.")
    if not values:
        raise UsageError(f"A search needs a grid: --grid optimizer.lr=0.1,0.01, or one of {', '.join(paper_grids())}.")
    return Grid(values, preset, tuple(paper))


def read_paper_grid(name: str) -> PaperGrid:
    """A paper's grid; UsageError names the nearest one for a typo."""
    known = paper_grids()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"Did you mean '{near[0]}'?" if near else f"Papers' grids: {', '.join(known)}."
        raise UsageError(f"--grid {name}: expected KEY=VALUE,VALUE,... or the name of a paper's grid. {hint}")
    path = GRIDS / f"{name}.yaml"
    try:
        return PaperGrid.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ConfigError(f"Can't read {path}: {' '.join(explain(error, PaperGrid))}") from error


def pairs(point: Mapping[str, Any]) -> list[str]:
    """The point as `--set` takes it."""
    return [f"{key}={json.dumps(value)}" for key, value in point.items()]


def shown(value: Any) -> str:
    """A value as a person writes it."""
    return value if isinstance(value, str) else json.dumps(value)


def in_words(point: Mapping[str, Any]) -> str:
    """The point in one line."""
    return ", ".join(f"{key}={shown(value)}" for key, value in point.items())


def _read_values(text: str) -> dict[str, list[Any]]:
    key, _, listed = text.partition("=")
    if ".." in listed and "/" not in listed:
        return {key: [_read_range(text, listed)]}
    try:
        values = [_number(each) for each in parse_yaml(f"[{listed}]")]
        json.dumps(values)
    except (ValueError, TypeError) as error:
        raise UsageError(f"--grid {text}: can't read the values: {error}") from error
    if not key or not values:
        raise UsageError(f"--grid {text}: expected KEY=VALUE,VALUE,..., like optimizer.lr=0.1,0.01.")
    texts = [shown(value) for value in values]
    twice = next((each for each in texts if texts.count(each) > 1), None)
    if twice is not None:
        raise UsageError(f"--grid {text}: {twice} is in the list twice; to repeat a run, use --grid seed=0,1,2.")
    return {key: values}


def _number(value: Any) -> Any:
    """The number that YAML takes for a text; any other value as it is."""
    return float(value) if isinstance(value, str) and NUMBER.fullmatch(value) else value


def _read_range(text: str, written: str) -> Range:
    low, _, high = written.removeprefix("log:").partition("..")
    try:
        ends = [_number(parse_yaml(each)) if each.strip() else None for each in (low, high)]
    except ValueError as error:
        raise UsageError(f"--grid {text}: can't read the ends of the range: {error}") from error
    found = [each for each in ends if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(found) < 2 or not found[0] < found[1] or not all(map(math.isfinite, found)):
        raise UsageError(f"--grid {text}: expected KEY=LOW..HIGH or KEY=log:LOW..HIGH, like optimizer.lr=log:0.001..1.")
    if written.startswith("log:") and found[0] <= 0:
        raise UsageError(f"--grid {text}: a logarithmic range begins above 0; got {found[0]}.")
    return Range(found[0], found[1], written.startswith("log:"))


def _at(settings: Any, key: str) -> Any:
    for part in key.split("."):
        settings = settings.get(part) if isinstance(settings, dict) else None
    return settings
