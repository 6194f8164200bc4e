"""What surrounds a training that is simulated: how fast workers, links and servers are, and who is away when."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge
from random import Random
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator

from paceline.core.errors import ConfigError, UsageError
from paceline.core.extension import Section
from paceline.core.fault import read_span
from paceline.core.network_link import NetworkLink
from paceline.core.registry import explain
from paceline.core.settings.config import Config, Seconds
from paceline.core.settings.slow import CLUSTERS, expand, slowness
from paceline.core.units import seconds_with_unit

_FACTOR = re.compile(r"([0-9]*\.?[0-9]+)x?")
_SPREADS: dict[str, tuple[int, Callable[..., float]]] = {
    "lognormal": (1, lambda random, sigma: random.lognormvariate(0.0, sigma)),
    "uniform": (2, lambda random, low, high: random.uniform(low, high)),
    "exponential": (1, lambda random, mean: 1.0 + random.expovariate(1.0 / mean)),
}
"""How many numbers each distribution of slowness takes, and what it draws."""
_EXAMPLES = "HE1, 1x,1x,10x (one for each worker), lognormal:0.3, uniform:1,2 or exponential:0.5"
_OPTIONS = {"links": "--link", "service": "--server-time", "service_per_million": "--server-time"}
"""Which options of commands make a setting that has another name."""
ALL = "all"


def _texts(value: Any) -> Any:
    """'worker-2@10s:20s; 1/10m:30s' as a list."""
    return [part.strip() for part in value.split(";") if part.strip()] if isinstance(value, str) else value


def _factors(value: Any) -> Any:
    """A list of numbers as one text."""
    return ",".join(f"{each}" for each in value) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Steps at random that take longer, on every worker."""

    factor: float
    probability: float
    """That a step begins a spell (ratio)."""
    spell: int = 1
    """Steps that a spell lasts."""

    @classmethod
    def read(cls, text: str) -> Self:
        """'10x@5%' or '10x@5%:20'; ValueError says what is wrong."""
        how, colon, spell = text.partition(":")
        if "@" not in how or (colon and not (spell.isdecimal() and int(spell))):
            raise ValueError(
                f"got {text!r} as stragglers; write 10x@5%: ten times as long, a step in twenty; 10x@5%:20 for 20 steps."
            )
        return cls(*slowness(ALL, how), int(spell or 1))


@dataclass(frozen=True, slots=True)
class Absence:
    """When a worker is away."""

    who: str
    begins: float
    """Seconds of the training."""
    ends: float
    """Infinity: it does not come back."""

    @classmethod
    def read(cls, text: str) -> Self:
        """'worker-2@10s:20s', a beginning and a duration, or 'worker-2@10s' for good; ValueError says what is wrong."""
        who, sign, span = text.partition("@")
        if not re.fullmatch(r"worker-[0-9]+", who) or not sign:
            raise ValueError(
                f"got {text!r}; write worker-2@10s:20s (away from 10 s on, for 20 s), worker-2@10s (for good), or 1/10m:30s "
                "(each worker, once in ten minutes, for 30 s)."
            )
        return cls(who, *(read_span(span) if ":" in span else (seconds_with_unit(span), math.inf)))


@dataclass(frozen=True, slots=True)
class Preemptions:
    """Each worker goes at random, and comes back."""

    every: float
    """Mean time between two (seconds)."""
    lasts: float

    @classmethod
    def read(cls, text: str) -> Self:
        """'1/10m:30s'; ValueError says what is wrong."""
        every, colon, lasts = text.removeprefix("1/").partition(":")
        if not colon:
            raise ValueError(f"got {text!r}; write how often and for how long, like 1/10m:30s.")
        found = cls(seconds_with_unit(every), seconds_with_unit(lasts))
        if not found.every or not found.lasts:
            raise ValueError(f"got {text!r}; both times must be above 0, like 1/10m:30s.")
        return found


def read_away(text: str) -> Absence | Preemptions:
    """One entry of `away`; ValueError says what is wrong."""
    return Preemptions.read(text) if text.startswith("1/") else Absence.read(text)


class Scene(Section):
    """What surrounds a training. Everything has a default, a unit, and can be written as YAML or JSON."""

    step: Seconds = Field(
        0.02, gt=0, allow_inf_nan=False, description="Mean computation of a mini-batch by an equal worker (seconds)."
    )
    jitter: float = Field(
        0.1, ge=0, allow_inf_nan=False, description="Spread of a step's time: standard deviation by mean (ratio)."
    )
    speeds: Annotated[str, BeforeValidator(_factors)] = Field(
        "HO",
        description="How many times as long each worker's step takes: HO, HE0, HE1, HE2, random, a list like 1x,1x,10x, or "
        "lognormal:SIGMA, uniform:LOW,HIGH, exponential:MEAN.",
    )
    stragglers: str = Field("", description="Steps at random that take longer, like 10x@5%, or 10x@5%:20 for 20 steps.")
    away: Annotated[tuple[str, ...], BeforeValidator(_texts)] = Field(
        (),
        description="Who leaves and comes back: worker-2@10s:20s, worker-2@10s for good, or 1/10m:30s for each at random.",
    )
    link: str = Field("10Gbit,0.1ms", description="Every node's link: bandwidth and latency (one way).")
    links: dict[str, str] = Field({}, description="Links of single nodes, like {worker-1: '10Mbit,50ms'}.")
    shared: bool = Field(
        True, description="Whether a node's messages share its bandwidth; false: each has all of it for itself."
    )
    service: Seconds = Field(
        0.0001, allow_inf_nan=False, description="A server's time for a push, of any size (seconds)."
    )
    service_per_million: Seconds = Field(
        0.001, allow_inf_nan=False, description="A server's time for each million values of a push (seconds)."
    )

    @classmethod
    def read(cls, **settings: Any) -> Self:
        """A scene with these settings of a command; UsageError names the options that are wrong."""
        try:
            return cls(**settings)
        except ValidationError as error:
            names = [str(mistake["loc"][0]) for mistake in error.errors()]
            told = [text.removeprefix(name) for name, text in zip(names, explain(error, cls), strict=True)]
            options = [_OPTIONS.get(name, f"--{name}") for name in names]
            raise UsageError(" ".join(map("".join, zip(options, told, strict=True)))) from error

    @field_validator("speeds")
    @classmethod
    def _are_speeds(cls, value: str) -> str:
        if value.lower() not in CLUSTERS:
            _read_speeds(value)
        return value

    @field_validator("stragglers")
    @classmethod
    def _are_stragglers(cls, value: str) -> str:
        if value:
            Stragglers.read(value)
        return value

    @field_validator("away")
    @classmethod
    def _is_away(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            read_away(text)
        return value

    @field_validator("link")
    @classmethod
    def _is_link(cls, value: str) -> str:
        NetworkLink.read(value)
        return value

    @field_validator("links")
    @classmethod
    def _are_links(cls, value: dict[str, str]) -> dict[str, str]:
        for text in value.values():
            NetworkLink.read(text)
        return value

    def check(self, config: Config) -> None:
        """ConfigError where the scene names what a run of this config does not have."""
        there = {f"worker-{rank}" for rank in range(config.workers)}
        nodes = there | {f"server-{number}" for number in range(config.server_processes)}
        for who in [each.who for each in map(read_away, self.away) if isinstance(each, Absence)]:
            if who not in there:
                raise ConfigError(f"--away: got {who}, but there are worker-0 to worker-{config.workers - 1}.")
        for who in self.links:
            if who not in nodes:
                raise ConfigError(
                    f"--link: got {who!r}, but there are worker-0 to worker-{config.workers - 1} and server-0 to "
                    f"server-{config.server_processes - 1}."
                )
        if self.speeds.lower() not in CLUSTERS and ":" not in self.speeds:
            count = self.speeds.count(",") + 1
            if count != config.workers:
                raise ConfigError(
                    f"--speeds: got {count:,} of them ({self.speeds}) for {config.workers:,} workers; give one for each."
                )

    def factors(self, workers: int, seed: int) -> list[float]:
        """How many times as long each worker's step takes, always."""
        if self.speeds.lower() in CLUSTERS:
            always = [(*slowness(who, how), who) for who, how in expand(self.speeds, workers).items()]
            found = {who: factor for factor, probability, who in always if probability == 1}
            return [found.get(str(rank), 1.0) for rank in range(workers)]
        draw = _read_speeds(self.speeds)
        return draw if isinstance(draw, list) else [draw(Random(f"{seed} speed {rank}")) for rank in range(workers)]

    @property
    def at_times(self) -> list[Stragglers]:
        """What makes single steps of any worker slow."""
        found = [Stragglers.read(self.stragglers)] if self.stragglers else []
        named = [slowness(who, how) for who, how in CLUSTERS.get(self.speeds.lower(), {}).items() if who == ALL]
        return found + [Stragglers(factor, probability) for factor, probability in named]

    def service_of(self, values: int) -> float:
        """A server's time for a push of that many values (seconds)."""
        return self.service + self.service_per_million * values / 1e6


def _read_speeds(text: str) -> list[float] | Callable[[Random], float]:
    """A list of factors, or what draws one; ValueError says what is wrong."""
    name, colon, rest = text.partition(":")
    if not colon:
        return [_factor(each, text) for each in text.split(",")]
    if name not in _SPREADS:
        raise ValueError(f"got {text!r} as speeds; expected {_EXAMPLES}.")
    count, draw = _SPREADS[name]
    numbers = [_factor(each, text) for each in rest.split(",")]
    if len(numbers) != count or numbers != sorted(numbers):
        raise ValueError(f"got {text!r} as speeds; {name} takes {count} number{'s in rising order' * (count > 1)}.")
    return lambda random: draw(random, *numbers)


def _factor(text: str, whole: str) -> float:
    match = _FACTOR.fullmatch(text.strip())
    if not match:
        raise ValueError(
            f"got {whole!r} as speeds; expected one of {', '.join(map(str.upper, CLUSTERS))}, or {_EXAMPLES}."
        )
    if not float(match[1]):
        raise ValueError(
            f"got {whole!r} as speeds: a worker that takes 0 times as long has no speed; give a factor above 0."
        )
    return float(match[1])


def goings(scene: Scene, rank: int, seed: int) -> Iterator[tuple[float, float]]:
    """When the worker leaves and comes back, one after the other (seconds); those at random never end."""
    found = [read_away(text) for text in scene.away]
    named = sorted(
        (each.begins, each.ends) for each in found if isinstance(each, Absence) and each.who == f"worker-{rank}"
    )
    random = Random(f"{seed} away {rank}")
    return merge(named, *(_at_random(each, random) for each in found if isinstance(each, Preemptions)))


def _at_random(often: Preemptions, random: Random) -> Iterator[tuple[float, float]]:
    end = 0.0
    while True:
        begin = end + random.expovariate(1 / often.every)
        end = begin + often.lasts
        yield begin, end
