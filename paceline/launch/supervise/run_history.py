"""Keeps what a run did: one JSON line for each change in metrics.jsonl; tells loggers and callbacks the same."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence

from paceline.callback import LEFT_OUT, LOG_PREFIX, Callback, RunBegin, RunEnd, Status, WorkerState, flat
from paceline.core.chief.warnings import RunWarning
from paceline.core.settings.config import Config
from paceline.launch.folder.own_records import OwnRecords
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.settings.loggers import loggers_of
from paceline.launch.status.chief_status import plain, policy_name, scores, warnings
from paceline.launch.supervise.listener import Listener, close_all
from paceline.launch.supervise.outcome import Outcome
from paceline.rpc.enums import phase_of
from paceline.rpc.setting_values import policy_value
from paceline.v1.run_service_pb2 import StatusReply

PACE = 8 << 10
"""Bytes a second that metrics.jsonl grows by, but for lines that have news: a score, a warning, another phase, who comes and
goes. Every line has all scores and all workers."""


class Records:
    """Has metrics.jsonl of a run folder written, and tells all listeners."""

    def __init__(
        self,
        place: RunFolder,
        own: OwnRecords,
        config: Config,
        callbacks: Sequence[Callback] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """ConfigError where a logger that the settings name can't be had."""
        known = place.last_status()
        self._scored, self._warned = len(known.get("scores", [])), {each["kind"] for each in known.get("warnings", [])}
        """What an earlier start has told already."""
        self._place = place
        self._is_resumed = place.has_trained
        self._listeners = [Listener(callback, name) for name, callback in loggers_of(config)]
        self._listeners += [Listener(callback, type(callback).__name__) for callback in callbacks]
        self._own = own
        self._clock = clock
        self._last: object = None
        self._news: object = None
        self._next = -math.inf
        """When a line without news may be written."""
        self._unwritten: tuple[StatusReply, float] | None = None
        """The newest status, where it is not in the file."""
        self._left_out: RunWarning | None = None

    def begin(self, config: Config) -> None:
        """The run's servers are up, and these are its whole settings."""
        settings = flat(config.model_dump(mode="json"))
        begun = RunBegin(self._place.name, self._place.path, settings, self._is_resumed)
        for listener in self._listeners:
            listener.begin(begun)

    @property
    def warnings(self) -> list[RunWarning]:
        """What has failed of loggers and callbacks, and what scripts log that is not kept."""
        failed = [listener.failed for listener in self._listeners if listener.failed is not None]
        return [*failed, *([] if self._left_out is None else [self._left_out])]

    def note(self, status: StatusReply, rate: float) -> None:
        """Takes down a status that says something new, and tells it to all listeners."""
        members = [worker.worker for worker in status.workers if worker.member]
        terms = [server.term for server in status.servers]
        counts = (len(status.scores), len(status.warnings), len(status.choices))
        news = (phase_of(status), policy_value(status.policy), counts, members, terms)
        here = (
            news,
            status.version,
            [(phase_of(worker), *_logged(worker.figures).items()) for worker in status.workers],
        )
        if here == self._last:
            return
        self._last = here
        if news != self._news or self._clock() >= self._next:
            self._news = news
            self._write(status, rate)
        else:
            self._unwritten = status, rate
        self._tell(status, rate)

    def _write(self, status: StatusReply, rate: float) -> None:
        self._unwritten = None
        line = json.dumps({"time": round(time.time(), 3), "examples_per_second": round(rate, 3), **plain(status)})
        self._own.line(line)
        self._next = self._clock() + len(line) / PACE

    def _tell(self, status: StatusReply, rate: float) -> None:
        now, fresh = status_value(status, rate), scores(status)[self._scored :]
        news = [each for each in warnings(status) if each.kind not in self._warned]
        self._scored += len(fresh)
        self._warned.update(each.kind for each in news)
        self._left_out = self._left_out or _left_out(now)
        for listener in self._listeners:
            listener.tell("status", now)
            for score in fresh:
                listener.tell("scored", score)
            for warning in news:
                listener.tell("warned", warning)

    def end(self, outcome: Outcome, hurry: Callable[[], bool], say: Callable[[str], None]) -> None:
        """The run is over: all who listen hear it, and have some seconds to end. What fails of them is said, and is in
        the outcome's warnings."""
        if self._unwritten is not None:
            self._write(*self._unwritten)
        model = self._place.models / "last.safetensors"
        end = RunEnd(
            outcome.how,
            outcome.exit_code,
            outcome.reason,
            outcome.seconds,
            outcome.version,
            dict(outcome.metrics),
            tuple(outcome.warnings),
            model if model.is_file() else None,
        )
        close_all(self._listeners, end, hurry)
        for warning in self.warnings:
            if warning not in outcome.warnings:
                outcome.warnings.append(warning)
                say(str(warning))


def _left_out(status: Status) -> RunWarning | None:
    """What to say where a script logs more names than a run takes."""
    for worker in status.workers:
        if LEFT_OUT in worker.figures:
            more = f"{worker.figures[LEFT_OUT]:.0f} names or more"
            said = f"{worker.name}: paceline.log got {more} beyond those that a run takes, which are not kept"
            return RunWarning(LEFT_OUT, said, "fewer names, the same ones at every step", [], round(status.epoch, 2))
    return None


def _logged(figures: Mapping[str, float]) -> dict[str, float]:
    """What a script has logged, among a worker's figures."""
    return {name.removeprefix(LOG_PREFIX): value for name, value in figures.items() if name.startswith(LOG_PREFIX)}


def status_value(status: StatusReply, rate: float) -> Status:
    """The message as callbacks get it."""
    workers = tuple(
        WorkerState(
            worker.worker,
            worker.clock,
            worker.lead,
            phase_of(worker),
            worker.member,
            {name: value for name, value in worker.figures.items() if not name.startswith(LOG_PREFIX)},
            _logged(worker.figures),
        )
        for worker in status.workers
    )
    facts = (phase_of(status), status.version, status.epoch, status.examples, status.seconds)
    return Status(*facts, rate, policy_name(status), workers)
