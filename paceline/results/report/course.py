"""What metrics.jsonl tells of a run's course: figures over time, and sums that outlive the processes which counted them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from paceline.core.explain.evidence import Evidence
from paceline.core.settings.config import Config
from paceline.core.values import worker_order
from paceline.launch.status.evidence import Counters, Summed, look_of

MOST = 1200
"""Points of a curve at most; of a longer run every second one is left out, as often as needed."""
SPENT = ("compute_seconds", "data_seconds", "push_seconds", "pull_seconds", "exchange_seconds", "wait_seconds")
"""Where a worker's time goes, as its figures call it."""
SENT, RECEIVED = "sent_bytes", "received_bytes"
_COUNTED = (*SPENT, SENT, RECEIVED, "dropped", "replayed", "rerun")
"""Figures that count from 0 in each process of a worker."""


class Point(NamedTuple):
    """What one line says of the whole run."""

    seconds: float
    epoch: float
    rate: float
    """Examples per second of all workers."""
    figures: dict[str, dict[str, float]]
    """Of each worker by name."""


class Event(NamedTuple):
    """Something that happened once."""

    seconds: float
    said: str


@dataclass(slots=True)
class Course:
    """All lines of one run, thinned out."""

    last: dict[str, Any] = field(default_factory=dict)
    """The newest line."""
    clocks: dict[str, int] = field(default_factory=dict)
    """The newest of each worker (pushes)."""
    latest: dict[str, dict[str, float]] = field(default_factory=dict)
    """The newest figures of each worker."""
    events: list[Event] = field(default_factory=list)
    """Processes that were started again, other policies."""
    damaged: int = 0
    """Lines that can't be read."""
    _kept: list[Point] = field(default_factory=list)
    _newest: list[Point] = field(default_factory=list)
    """One, unless it is kept."""
    _latest_second: float = 0.0
    _stride: int = 1
    _seen: int = 0
    _counted: Counters = field(default_factory=Counters)
    _looks: Summed = field(default_factory=Summed)
    _known: dict[str, Any] = field(default_factory=dict)

    @property
    def sums(self) -> dict[str, dict[str, float]]:
        """Of each worker: what its processes counted, together."""
        return self._counted.sums

    @property
    def workers(self) -> list[str]:
        """Their names, in order."""
        return sorted(self.clocks, key=worker_order)

    @property
    def steps(self) -> int:
        """Of a run that counts steps, because its script draws its own mini-batches; otherwise 0."""
        return int(self.last.get("steps", 0))

    @property
    def unit(self) -> str:
        """What the run counts."""
        return "step" if self.steps else "epoch"

    @property
    def trained(self) -> str:
        """How far it came, in its unit."""
        at = float(self.last.get("epoch", 0.0))
        return f"{at:,.0f}" if self.steps else f"{at:.1f}"

    @property
    def seconds(self) -> float:
        """Of training, at the newest line."""
        return float(self.last.get("seconds", 0.0))

    @property
    def points(self) -> list[Point]:
        """In order; the newest one is always there."""
        return [*self._kept, *self._newest]

    def evidence(self, config: Config) -> Evidence:
        """What causes are judged by."""
        return self._looks.evidence(config)

    def has(self, figure: str) -> bool:
        """Whether any worker tells it."""
        return any(figure in figures for figures in self.latest.values())

    def over_time(self, worker: str, figure: str) -> tuple[list[float], list[float]]:
        """Seconds of training, and the figure then."""
        found = [
            (point.seconds, point.figures[worker][figure])
            for point in self.points
            if figure in point.figures.get(worker, {})
        ]
        return [second for second, _ in found], [value for _, value in found]

    def add(self, line: dict[str, Any]) -> None:
        """The next line. KeyError, TypeError, ValueError where it is none of a run."""
        workers = {each["worker"]: each for each in line["workers"]}
        point = Point(
            float(line["seconds"]),
            float(line["epoch"]),
            float(line.get("examples_per_second", 0.0)),
            {name: each["figures"] for name, each in workers.items()},
        )
        for name, each in workers.items():
            counts = {count: float(each["figures"][count]) for count in _COUNTED if count in each["figures"]}
            self._counted.add(name, each.get("incarnation", 0), counts)
            self.clocks[name] = int(each["clock"])
            self.latest[name] = each["figures"] or self.latest.get(name, {})
        self._latest_second = max(self._latest_second, point.seconds)  # a chief that comes back may be behind it
        self._note_events(self._latest_second, line)
        if (look := look_of(line)) is not None:
            self._looks.add(look)
        self.last = line
        self._keep(point)

    def _keep(self, point: Point) -> None:
        is_kept = self._seen % self._stride == 0
        self._seen += 1
        if is_kept:
            self._kept.append(point)
        self._newest = [] if is_kept else [point]
        if len(self._kept) > MOST:
            self._kept, self._newest, self._stride = self._kept[::2], [point], self._stride * 2

    def _note_events(self, seconds: float, line: dict[str, Any]) -> None:
        """What is another than before."""
        states = [
            *((f"server-{each['server']}", each["term"], "was started again") for each in line.get("servers", [])),
            *((each["worker"], each.get("incarnation"), "was started again") for each in line["workers"]),
        ]
        for name, number, said in states:
            before = self._known.get(name)
            if number and before and number > before:
                self.events.append(Event(seconds, f"{name} {said}"))
            self._known[name] = number or before
        policy = line.get("policy")
        if policy and self._known.get("policy") not in (None, policy):
            self.events.append(Event(seconds, f"policy {_policy(policy)}"))
        self._known["policy"] = policy or self._known.get("policy")


def _policy(told: Any) -> str:
    return " ".join(f"{value}" for value in (json.loads(told) if isinstance(told, str) else told).values())


def read_course(path: Path) -> Course:
    """The course so far; an empty one where there is no file yet. OSError."""
    course = Course()
    if not path.exists():
        return course
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break  # it is being written
            try:
                course.add(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                course.damaged += 1
    return course


def mean(values: Iterable[float]) -> float | None:
    """None of no values."""
    found: Sequence[float] = list(values)
    return sum(found) / len(found) if found else None
