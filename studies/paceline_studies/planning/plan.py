"""A plan, from what the user says to the choice: read, measure or take figures, forecast each way to run, advise."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from paceline.core.errors import ConfigError, PacelineError, UsageError
from paceline.core.network_link import NetworkLink
from paceline.core.settings.config import Config
from paceline.core.slice.plan import Shapes
from paceline.core.units import seconds_with_unit
from paceline.launch.this_machine.capacity import free_memory
from paceline.launch.this_machine.processors import cores
from paceline_studies.planning.advice import Advice, advise
from paceline_studies.planning.choices import Choice, ChosenSizes, choices, shorthand
from paceline_studies.planning.figures import Figures, Step, batch_of
from paceline_studies.planning.prices import read_prices
from paceline_studies.planning.readers import Reader
from paceline_studies.planning.rows import Row, Site
from paceline_studies.planning.sizes import plan_report, read_shapes, task_shapes
from paceline_studies.simulator.scene import Scene

LINK = "10Gbit,0.1ms"
"""Of machines, where the user names none."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Circumstances:
    """What the user says of the run's surroundings; None: measured, or as it is by default."""

    shapes: Path | None = None
    link: str | None = None
    speeds: str = "HO"
    price: str | None = None
    step: str | None = None
    examples: int | None = None
    exchange: str | None = None
    is_apart: bool = False
    """Each process has its own machine, also where no link and no price is given."""
    probes: bool = True

    def site(self) -> Site:
        """Where the run will be. UsageError: what was seen, and what to write."""
        try:
            link = NetworkLink.read(self.link or LINK)
        except ValueError as error:
            raise UsageError(f"--link: {error}") from error
        Scene.read(speeds=self.speeds)
        prices = None if self.price is None else read_prices(self.price)
        if self.is_apart or self.link is not None or prices is not None:
            return Site(link.bandwidth, self.link or LINK, speeds=self.speeds, prices=prices)
        return Site(link.bandwidth, cores=cores(), free=free_memory(), speeds=self.speeds)

    def figures(self, config: Config, shapes: Shapes | None) -> Figures | None:
        """Those that are given; None where the probe measures them. UsageError where they can't be understood."""
        if self.step is None:
            if wrong := [name for name in ("examples", "exchange") if getattr(self, name) is not None]:
                raise UsageError(
                    f"--{wrong[0]} goes with --step; otherwise the plan measures. Give --step, too, or leave it out."
                )
            return None
        step, exchange = _time("step", self.step), 0.0 if self.exchange is None else _time("exchange", self.exchange)
        if not step:
            raise UsageError(
                f"--step {self.step}: a mini-batch that takes no time has no speed; give one above 0, like 120ms."
            )
        if self.examples is None:
            raise UsageError("--step needs --examples, too: the number of training examples, like --examples 50000.")
        batch, values = batch_of(config), plan_report(config, _known(shapes))["elements"]
        pushes = "nothing" if self.exchange is None else self.exchange
        told = f"given: {self.step} of a core for a mini-batch of {batch:,}, {pushes} for a push and a pull without the link"
        return Figures(values, self.examples, [Step(batch, step, step)], exchange, told=told)


def _time(option: str, text: str) -> float:
    """Seconds of an option."""
    try:
        return seconds_with_unit(text)
    except ValueError as error:
        raise UsageError(f"--{option}: {error}") from error


INSTEAD = (
    "The plan measures by a short run, which ended like this. Without it: --no-probe tells sizes alone; --step 120ms "
    "--examples 50000 says what it would measure."
)
NO_SHAPES = (
    "Only a probe says how large the model of a script or of a linear task is. Leave out --step and --no-probe, or give "
    '--shapes FILE, like [["weights", [47236]]].'
)


@dataclass(frozen=True)
class Plan:
    """What `paceline plan` tells."""

    config: Config
    """Of the advised way to run; of the run's own settings, where nothing was forecast."""
    place: Site
    sizes: Mapping[str, Any]
    figures: Figures | None
    rows: Sequence[Row]
    refused: Sequence[str]
    """Ways that were asked for and can't run, and why."""
    advice: Advice | None
    command: str
    """Starts the advised run."""

    @property
    def title(self) -> str:
        """In a line."""
        config = self.config
        return (
            f"{config.task} by paceline plan: {config.workers} workers, {config.servers} servers, {shorthand(config)}"
        )

    def plain(self) -> dict[str, Any]:
        """For JSON: the sizes' keys, and what was forecast."""
        found = dict(self.sizes) | {"policy": self.config.policy.model_dump(), "workers": self.config.workers}
        if self.figures is None:
            return found
        figures = {name: getattr(self.figures, name) for name in self.figures.__dataclass_fields__}
        advice = (
            None if self.advice is None else self.advice.row.plain() | {"why": self.advice.why, "command": self.command}
        )
        return found | {
            "place": self.place.text(),
            "figures": figures | {"steps": [step._asdict() for step in self.figures.steps]},
            "rows": [row.plain() for row in self.rows],
            "refused": list(self.refused),
            "advice": advice,
        }


class Words(NamedTuple):
    """A command line, around its numbers and policy."""

    before: Sequence[str]
    after: Sequence[str] = ()

    def with_choice(self, choice: Choice) -> str:
        """What to paste."""
        policy = () if choice.is_own else ("--policy", choice.policy)
        numbers = "-w", str(choice.workers), "-s", str(choice.servers)
        return shlex.join(["paceline", *self.before, *numbers, *policy, *self.after])


def make_plan(words: Words, asked: ChosenSizes, read: Reader, given: Circumstances, say: Say) -> Plan:
    """The plan. `words`: of the command that starts the run. Raises what would end the run, and UsageError and ConfigError for
    what can't be understood."""
    place = given.site()
    config = asked.own(read)
    shapes = _shapes(config, given)
    figures = given.figures(config, shapes)
    if figures is None and not given.probes:
        config = asked.first(read)
        sizes = plan_report(config, _known(shapes), place.bandwidth)
        return Plan(config, place, sizes, None, (), (), None, words.with_choice(Choice("", True, config)))
    ways, refused = choices(asked, config, read)
    for way in ways:
        Scene(speeds=place.speeds).check(way.config)
    if figures is None:
        figures = _probed(ways, read, say)
        shapes = shapes or [("weights", (figures.values,))]
        config = asked.own(read)  # a script has told its settings by now
        ways, refused = choices(asked, config, read)
    rows = _forecast(ways, figures, _known(shapes), place)
    advice = advise(rows)
    chosen = advice.row.choice if advice else ways[0]
    sizes = plan_report(chosen.config, _known(shapes), place.bandwidth, figures.worker_memory)
    return Plan(chosen.config, place, sizes, figures, rows, refused, advice, words.with_choice(chosen))


def _known(shapes: Shapes | None) -> Shapes:
    """ConfigError where only a probe would say them."""
    if shapes is None:
        raise ConfigError(NO_SHAPES)
    return shapes


def _probed(ways: Sequence[Choice], read: Reader, say: Say) -> Figures:
    """Measured with the largest and the smallest number of workers, whose mini-batches differ most; and alone, where a worker
    has all cores."""
    from paceline_studies.planning.probe import probed

    numbers = {choice.workers for choice in ways}
    several = numbers - {1} or numbers
    starts = [read.start(number) for number in dict.fromkeys([max(several), min(several), min(numbers)])]
    try:
        return probed(starts, say, read.described)
    except PacelineError as error:
        raise type(error)(f"{error}\n{INSTEAD}") from error


def _forecast(ways: Sequence[Choice], figures: Figures, shapes: Shapes, place: Site) -> list[Row]:
    """All of them; the simulator is loaded now."""
    from paceline_studies.planning.forecast import forecast

    return [forecast(choice, figures, shapes, place) for choice in ways]


def _shapes(config: Config, given: Circumstances) -> Shapes | None:
    """The model's, where they can be had without a probe."""
    if given.shapes is not None:
        return read_shapes(given.shapes)
    return None if config.is_script or config.updates == "sparse" else task_shapes(config)
