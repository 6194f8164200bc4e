"""What a run's statuses are evidence of: whole runs, or the last seconds of one that is training. What each process counts is
added up over the run, though processes are started again."""

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from paceline.core.chief.warnings import RunWarning
from paceline.core.chief.worker_time import ENOUGH, LEAST, SPENT, WorkerTime
from paceline.core.explain.cause import Finding, causes
from paceline.core.explain.evidence import Evidence, ServerTime
from paceline.core.fault import LINK_SECONDS
from paceline.core.settings.config import Config, Options
from paceline.launch.status.chief_status import plain
from paceline.v1.run_service_pb2 import StatusReply

Look = Mapping[str, Any]
"""A status as JSON values: a line of metrics.jsonl."""
RECENT = 10.0
"""Training time that a run in training is judged by (seconds)."""
_LOOK = ("phase", "seconds", "workers", "servers", "warnings")
"""What a status must have."""
_TRAINS = ("training", "stopping")
_CLOCK = 1_000_000_000
"""Terms from here on are seconds since 1970, of a server that could not know how often it was started."""


@dataclass(slots=True)
class _Process:
    """The present one of a name."""

    start: int = 0
    counts: Mapping[str, float] = field(default_factory=dict)
    """At the last look."""

    def is_followed_by(self, start: int, counts: Mapping[str, float]) -> bool:
        """Whether the next look is at another process: it has a higher number, or in a line without one a smaller count."""
        if start and self.start:
            return start > self.start
        return any(count < self.counts.get(name, 0.0) for name, count in counts.items())


class Counters:
    """Fed with each look at a process. Not thread-safe."""

    def __init__(self) -> None:
        self.sums: dict[str, dict[str, float]] = {}
        """Of each process by name: what all that had this name have counted together."""
        self._processes: dict[str, _Process] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._processes

    def add(self, name: str, start: int, counts: Mapping[str, float]) -> None:
        """The next look at a process. `start`: its number among those with this name (an incarnation or a term), 0 where the
        line does not say it; `counts`: empty where it has not been heard yet."""
        process = self._processes.setdefault(name, _Process())
        if process.is_followed_by(start, counts):
            process.counts = {}
        sums = self.sums.setdefault(name, {})
        for count, now in counts.items():
            sums[count] = sums.get(count, 0.0) + max(0.0, now - process.counts.get(count, 0.0))
        process.start = start or process.start
        process.counts = {**process.counts, **counts}

    def begin(self, name: str, start: int, counts: Mapping[str, float]) -> None:
        """What a process has counted until this look is left out."""
        self.add(name, start, counts)
        del self.sums[name]

    def total(self, count: str) -> float:
        """Of all processes."""
        return sum(sums.get(count, 0.0) for sums in self.sums.values())


def evidence_of(looks: Iterable[Look], config: Config) -> Evidence:
    """What these looks at a run say together, oldest first, about all of it."""
    summed = Summed()
    for look in looks:
        summed.add(look)
    return summed.evidence(config)


def look_of(value: Any) -> Look | None:
    """A line of metrics.jsonl as a status; None where it is none."""
    if not isinstance(value, dict) or not all(key in value for key in _LOOK):
        return None
    is_whole = all(isinstance(value[key], list) for key in ("workers", "servers", "warnings"))
    return value if is_whole and all("figures" in worker for worker in value["workers"]) else None


def has_figures(look: Look) -> bool:
    """Whether its workers say where their time went, as they do since release 0.1."""
    return any("steps" in worker["figures"] for worker in look["workers"])


@dataclass(slots=True)
class _Disk:
    """That of one server, as ServerTime tells it."""

    trouble: str = ""
    seconds: float = 0.0
    works: bool = True

    def add(self, trouble: str, past: float) -> None:
        """What the next look says of it, this long after the last one (seconds)."""
        self.seconds += 0.0 if self.works else past
        self.works = not trouble
        self.trouble = trouble or self.trouble


class Summed:
    """Adds up what processes did from look to look."""

    def __init__(self, since: Look | None = None) -> None:
        """`since`: the look after which it begins; None: with the run."""
        self._began = 0.0 if since is None else float(since["seconds"])
        self._counted = Counters()
        self._alphas: dict[str, tuple[float, int]] = {}
        """Their sum and number, by worker."""
        self._look: Look = {"seconds": 0.0, "workers": [], "servers": [], "warnings": []}
        self._members = 0
        self._disks: dict[int, _Disk] = {}
        self._far: set[str] = set()
        """Workers on machines that are named."""
        if since is not None:
            self.add(since)
            self._counted.sums, self._alphas = {}, {}

    def add(self, look: Look) -> None:
        """The next look."""
        past = max(0.0, look["seconds"] - self._look["seconds"])  # a chief that comes back may be behind it
        self._look = look
        for server in look["servers"]:
            trouble = str((server.get("figures") or {}).get("disk_trouble", ""))
            self._disks.setdefault(server["server"], _Disk()).add(trouble, past)
        if look["phase"] in _TRAINS:
            self._members = sum(worker["member"] for worker in look["workers"]) or self._members
            for server in look["servers"]:
                self._add_server(f"server-{server['server']}", server["term"], server.get("figures") or {})
        for worker in look["workers"]:
            self._add_worker(worker["worker"], worker.get("incarnation", 0), worker["figures"])
            if worker.get("host"):
                self._far.add(worker["worker"])

    def _add_worker(self, name: str, start: int, figures: Mapping[str, float]) -> None:
        spent = {part: sum(figures.get(figure, 0.0) for figure in names) for part, names in SPENT.items()}
        self._counted.add(name, start, spent if figures else {})
        if "alpha" in figures:
            whole, count = self._alphas.get(name, (0.0, 0))
            self._alphas[name] = (whole + figures["alpha"], count + 1)

    def _add_server(self, name: str, term: int, figures: Mapping[str, float]) -> None:
        if not figures.get("seconds"):
            return
        counts = {part: float(figures[part]) for part in ("seconds", "busy_seconds", "pushes")}
        if name in self._counted:
            self._counted.add(name, term, counts)
        else:
            self._counted.begin(name, term, counts)  # it waited for workers until then

    def evidence(self, config: Config, is_now: bool = False) -> Evidence:
        """All together; `is_now`: the run goes on."""
        look = self._look
        if (policy := look.get("policy")) and not look.get("chosen_by"):
            config = config.model_copy(update={"policy": Options(**json.loads(policy))})
        return Evidence(
            config=config,
            seconds=float(look["seconds"]) - self._began,
            workers=tuple(self._times()),
            servers=tuple(self._server(server) for server in look["servers"]),
            warnings=tuple(RunWarning(**each) for each in look["warnings"]),
            restarts=restarts(look),
            age=float(look["seconds"]),
            members=self._members,
            is_now=is_now,
        )

    def _times(self) -> Iterable[WorkerTime]:
        for worker in self._look["workers"]:
            name, figures = worker["worker"], worker["figures"]
            sums = self._counted.sums.get(name, {})
            if sums.get("steps", 0.0) >= ENOUGH:
                whole, count = self._alphas.get(name, (0.0, 0))
                yield WorkerTime(
                    name=name,
                    **sums,
                    has_link=name in self._far or LINK_SECONDS in figures,
                    staleness=figures.get("staleness_mean", 0.0),
                    alpha=whole / count if count else None,
                )

    def _server(self, server: Mapping[str, Any]) -> ServerTime:
        name, figures, disk = f"server-{server['server']}", server.get("figures") or {}, self._disks[server["server"]]
        sums = self._counted.sums.get(name, {})
        return ServerTime(
            name=name,
            seconds=sums.get("seconds", 0.0),
            busy=sums.get("busy_seconds", 0.0),
            pushes=sums.get("pushes", 0.0),
            slice_bytes=int(figures.get("slice_bytes", 0)),
            disk_trouble=disk.trouble,
            disk_seconds=disk.seconds,
            disk_works=disk.works,
        )


def restarts(look: Look) -> dict[str, int]:
    """How often each process was started again by itself; a resumed run has started all of them. Servers whose term was taken
    from the clock are left out: it counts nothing."""
    found = {f"server-{server['server']}": server["term"] - 1 for server in look["servers"] if server["term"] < _CLOCK}
    found |= {worker["worker"]: worker.get("incarnation", 0) - 1 for worker in look["workers"]}
    common = max(0, min(found.values(), default=0))
    return {name: count - common for name, count in found.items() if count > common}


class Causes:
    """Fed with each status of a run that is training: what holds it up just now."""

    def __init__(self, config: Config, looks: Iterable[Look] = ()) -> None:
        """`looks`: earlier ones, oldest first."""
        self._config = config
        self._looks = deque[Look]()
        self._said: set[str] = set()
        self._all = Summed()
        for look in looks:
            self._keep(look)

    def of(self, look: Look) -> list[Finding]:
        """What costs most first; nothing while the run does not train, or has not trained for long enough. Of workers nothing
        while they leave."""
        self._keep(look)
        self._all.add(look)
        if look["phase"] not in _TRAINS or look["seconds"] < LEAST or not has_figures(look):
            return []
        first = self._looks[0]
        recent = Summed(first if first["seconds"] <= look["seconds"] - RECENT else None)
        recent.add(look)
        found = recent.evidence(self._config, is_now=True)
        return causes(found if look["phase"] == "training" else replace(found, workers=()))

    def whole(self) -> list[Finding]:
        """The same of all that was fed."""
        return causes(self._all.evidence(self._config))

    def now(self, status: StatusReply) -> list[Finding]:
        """The same of the next status, but for what the run warns of anyway."""
        return [each for each in self.of(plain(status)) if not each.is_warned]

    def news(self, found: Iterable[Finding], run: str) -> list[str]:
        """A line for each of these causes that was not said before."""
        fresh = [each for each in found if each.cause not in self._said]
        self._said.update(each.cause for each in fresh)
        return [advice_line(each, run) for each in fresh]

    def _keep(self, look: Look) -> None:
        """Keeps looks back to the newest one that lies far enough back."""
        if self._looks and look["seconds"] < self._looks[-1]["seconds"]:
            self._looks.clear()  # the chief came back
        self._looks.append(look)
        while len(self._looks) > 1 and self._looks[1]["seconds"] <= look["seconds"] - RECENT:
            self._looks.popleft()


def advice_line(finding: Finding, run: str) -> str:
    """A line on it, with the command where a run that is training can do it."""
    settings = finding.advice.settings
    can_now = run and settings and settings[0].startswith("policy=")
    return f"{finding} Now: paceline set {run} {settings[0]}" if can_now else str(finding)
