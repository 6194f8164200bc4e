"""Measures what a run is made of, by a short real one: one worker, with mini-batches of one of many, and one server."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import psutil

from paceline.core.errors import ConfigError
from paceline.core.explain.cause import Finding
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.launch.supervise.launcher import run_local
from paceline.launch.supervise.others import Others
from paceline.launch.supervise.processes import Ended
from paceline.launch.this_machine.processors import cores
from paceline.server.description import described as told_by_script
from paceline.v1.run_service_pb2 import StatusReply
from paceline_studies.planning.figures import Figures, Step, batch_of
from paceline_studies.planning.readers import Start

LONGEST = 110.0
"""Seconds that all of a plan's probes may take together."""
ENOUGH = 3.0
"""Seconds of training that a figure is measured over, after the first `WARM` of them, where that has `CLOCKS` pushes."""
WARM = 1.0
CLOCKS = 20
QUIET: dict[str, Any] = {
    "run": "probe",
    "loggers": (),
    "faults": (),
    "stopping": None,
    "slow": {},
    "start_when": 1,
    "heartbeat": 0.25,
}
"""Settings of the run that measures: nobody else hears of it, and it begins with its only worker."""
ENDLESS: dict[str, Any] = {"epochs": 1_000_000, "evaluate_every": 1_000_000}
"""The probe ends the run."""


class Measured(NamedTuple):
    """What one probe has seen."""

    step: Step
    exchange: float
    service: float
    sent: float
    values: int
    examples: int
    memory: int
    pushes: int
    """It is the mean of that many."""
    counts_steps: bool
    """As in Figures."""


def probed(
    starts: Sequence[Start], say: Callable[[str], None], described: Callable[[Mapping[str, Any]], None]
) -> Figures:
    """Figures from a short run of each of these, which differ in the number of workers. `described` gets what a script has
    told of its run. ConfigError, DataError, ...: what would end the run itself."""
    end, load = time.monotonic() + LONGEST, os.getloadavg()[0]
    found: list[Measured] = []
    for number, start in enumerate(starts):
        left = end - time.monotonic()
        if number and left < LONGEST / 2:
            say("that took long, so the time of other mini-batches is taken in proportion")
            break
        say(f"measuring the mini-batch of one of {start.config.workers} workers, by a short run ...")
        found.append(measure(start, left, described))
    steps = {each.step.batch: each.step for each in found}
    count = sum(each.pushes for each in found)
    is_busy = load > cores() / 2
    busy = (
        f" while other work took the machine's time (load {load:.1f} on {cores()} cores), so too slow"
        if is_busy
        else ""
    )
    return Figures(
        found[-1].values,
        found[-1].examples,
        [steps[batch] for batch in sorted(steps)],
        sum(each.exchange * each.pushes for each in found) / count,
        sum(each.service * each.pushes for each in found) / count,
        max(each.sent for each in found),
        max(each.memory for each in found),
        f"measured over {count:,} pushes of one worker to one server{busy}",
        found[-1].counts_steps,
    )


def _without_stores(given: dict[str, Any]) -> dict[str, Any]:
    """Settings with which a probe leaves nothing in a store: the next probe could go on from that."""
    checkpoint = {key: value for key, value in (given.get("checkpoint") or {}).items() if key != "at"}
    return {**given, "models_at": None, "checkpoint": checkpoint}


def measure(start: Start, seconds: float, described: Callable[[Mapping[str, Any]], None]) -> Measured:
    """One probe. ConfigError where it has seen nothing after this time."""
    with TemporaryDirectory(prefix="paceline-plan-") as place:
        changes = QUIET if start.config.is_script else QUIET | ENDLESS
        changes = changes | {"models_at": None, "checkpoint": start.config.checkpoint.model_copy(update={"at": None})}
        given = None if start.given is None else _without_stores({**start.given, **QUIET})
        folder, config = open_run(start.config.model_copy(update=changes), runs=Path(place), given=given)
        watch = _Watch(folder, time.monotonic() + seconds)
        outcome = run_local(config, folder.path, _ignore, watch.show, others=OneWorker(), echo=_ignore)
        if not watch.looks and outcome.exit_code:
            raise outcome.error()
        if config.is_script:
            described(told_by_script(folder.server(0)) or {})
            config = folder.settings()
        return watch.measured(config)


def _ignore(line: str) -> None:
    """What the probe's run and its script print is not the plan's."""


class OneWorker(Others):
    """A run of many seats of which this machine takes one."""

    def workers_here(self, config: Config) -> int:
        return 1

    def workers_on_cores(self, config: Config) -> int:
        return config.workers


class _Look(NamedTuple):
    """One status, and the CPU time of the worker's process."""

    status: StatusReply
    cpu: float

    @property
    def clock(self) -> int:
        return int(self.status.workers[0].clock)

    def figure(self, *names: str) -> float:
        """Those of the worker that it has, added."""
        return sum(self.status.workers[0].figures.get(name, 0.0) for name in names)


@dataclass
class _Watch:
    """Follows the run, and ends it once enough was seen."""

    folder: RunFolder
    end: float
    """When it must (time.monotonic)."""
    looks: list[_Look] = field(default_factory=list)
    memory: int = 0
    """Most that the worker's process had (bytes)."""
    _worker: psutil.Process | None = None

    def show(self, status: StatusReply, rate: float, causes: Sequence[Finding]) -> None:
        """One status. Raises Ended with code 0 where it is enough."""
        if status.workers and status.workers[0].clock and status.servers:
            self._look(status)
        if time.monotonic() > self.end or self._is_enough():
            raise Ended(0, "the probe has seen enough")

    def _look(self, status: StatusReply) -> None:
        try:
            self._worker = self._worker or psutil.Process(self.folder.facts()["pids"]["worker-0"])
            cpu = sum(self._worker.cpu_times()[:2])
            self.memory = max(self.memory, self._worker.memory_info().rss)
        except (psutil.Error, KeyError):  # it has just ended
            return
        self.looks.append(_Look(status, cpu))

    def _ends(self) -> tuple[_Look, _Look]:
        """The first look after the worker has become warm, if there is one, and the last."""
        warm = self.looks[0].status.seconds + WARM
        return next((look for look in self.looks if look.status.seconds >= warm), self.looks[0]), self.looks[-1]

    def _is_enough(self) -> bool:
        if not self.looks:
            return False
        first, last = self._ends()
        return last.status.seconds - first.status.seconds >= ENOUGH and last.clock - first.clock >= CLOCKS

    def measured(self, config: Config) -> Measured:
        """What it has come to. ConfigError where that is nothing."""
        first, last = self._ends() if self.looks else (None, None)
        if first is None or last is None or last.clock == first.clock:
            raise ConfigError(
                "The probe ended before it had seen enough mini-batches. Give what a mini-batch takes: --step 120ms --examples "
                "50000; or --no-probe for sizes alone."
            )
        pushes = last.clock - first.clock
        steps = pushes * build_policy(config.policy).most_steps
        server, before = last.status.servers[0].figures, first.status.servers[0].figures
        service = (server.busy_seconds - before.busy_seconds) / max(1, server.pushes - before.pushes)
        computed = (
            last.figure("data_seconds", "compute_seconds") - first.figure("data_seconds", "compute_seconds")
        ) / steps
        names = "exchange_seconds", "push_seconds", "pull_seconds"
        exchange = (last.figure(*names) - first.figure(*names)) / pushes
        batch = Step(batch_of(config), computed, (last.cpu - first.cpu) / steps)
        examples = last.status.budget // config.epochs
        return Measured(
            batch,
            max(0.0, exchange - service),
            service,
            max(last.figure(name) - first.figure(name) for name in ("sent_bytes", "received_bytes")) / pushes,
            server.slice_bytes // 4,
            examples,
            self.memory,
            pushes,
            config.is_script and examples == config.workers == config.batch_size,
        )
