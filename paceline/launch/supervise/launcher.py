"""Runs a whole training on this machine: starts the processes in order, watches them, and leaves none behind."""

import os
import shlex
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

from paceline.base.variables import TLS
from paceline.callback import Callback
from paceline.core.chief.budget import all_but
from paceline.core.chief.warnings import RunWarning
from paceline.core.errors import (
    Diverged,
    Incomplete,
    NotYet,
    OutOfMemory,
    PacelineError,
    ScriptFailed,
    Stopped,
)
from paceline.core.settings.config import Config
from paceline.data.shards import is_there
from paceline.launch.folder.audit import lost_pushes
from paceline.launch.folder.own_records import OwnRecords
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.folder.run_tokens import check_keys
from paceline.launch.forks.forker import Forker
from paceline.launch.forks.run_forkers import forking
from paceline.launch.settings.launch_settings import LaunchSettings
from paceline.launch.status import chief_status
from paceline.launch.status.chief_status import Chief, News, RemoteChief, Speed, accuracy
from paceline.launch.status.evidence import Causes
from paceline.launch.status.live_table import Show
from paceline.launch.status.recoveries import Recoveries
from paceline.launch.status.run_status import Connect
from paceline.launch.supervise.changed_servers import Until, with_its_servers
from paceline.launch.supervise.children import Child
from paceline.launch.supervise.faults import Faults
from paceline.launch.supervise.frozen_servers import FrozenServers
from paceline.launch.supervise.others import Others
from paceline.launch.supervise.outcome import FINISHED, Outcome
from paceline.launch.supervise.processes import HOPELESS, Ended, Processes
from paceline.launch.supervise.run_history import Records
from paceline.launch.supervise.starting import Starting
from paceline.launch.this_machine.signals import Signals
from paceline.launch.this_machine.surroundings import surroundings
from paceline.rpc.enums import phase_of
from paceline.server.description import described
from paceline.settings.own_extensions import own_files
from paceline.v1.run_service_pb2 import StatusReply, WorkerStatus

STILL = 60.0
"""Seconds without a new version (or an answer of the chief) after which a run has stalled; said again as often."""
MOVING = ("training", "stopping")
GAVE_UP = "gave_up"
"""The kind of warning of a worker that could not go on, followed by its name."""


class Stall:
    """Notices that a run has stopped moving. Fed with each status; time (seconds on any steady clock) is handed in."""

    def __init__(self, now: float) -> None:
        self._here: object = None
        self._since = self._said = now

    def check(self, status: StatusReply | None, now: float) -> str | None:
        """Returns what to tell people, with each worker's last position, if it is time to."""
        here = None if status is None else (phase_of(status), status.version)
        if here != self._here or (status is not None and phase_of(status) not in MOVING):
            self._here = here
            self._since = now
            self._said = now
        if now - self._said < STILL:
            return None
        self._said = now
        seconds = f"{now - self._since:.0f} s"
        if status is None:
            return f"server-0 has not answered for {seconds}; see its log."
        workers = "; ".join(map(_last_seen, status.workers)) or "there are no workers"
        return f"no progress for {seconds} at version {status.version:,} ({phase_of(status)}). Last seen: {workers}."


def _last_seen(worker: WorkerStatus) -> str:
    words = f"{worker.worker} in {phase_of(worker)} for {worker.phase_seconds:.0f} s at clock {worker.clock:,}"
    return words + (f", silent for {worker.silent:.0f} s" if worker.silent >= 1 else "")


def _still_members(status: StatusReply, ended: Collection[str], silence: float) -> list[str]:
    """Those of the processes that have `ended` which have not left the run: nobody speaks for them any more (seconds)."""
    members = (worker for worker in status.workers if worker.member and worker.silent > silence)
    return [worker.worker for worker in members if worker.worker in ended]


class Progress:
    """How far each process has come: one that gets on between its deaths is started again without end. Fed with each status.
    What is computed again after a death counts only once it is further than ever before."""

    def __init__(self) -> None:
        self._examples = 0
        self._clocks: dict[str, int] = {}

    def note(self, status: StatusReply) -> None:
        """Takes in where the run is."""
        self._examples = max(self._examples, status.examples)
        for worker in status.workers:
            self._clocks[worker.worker] = max(self._clocks.get(worker.worker, 0), worker.clock)

    def of(self, child: Child) -> int:
        """A worker's own clock. Examples of the run for a server, without which no worker gets on; 0 for all others."""
        if child.role == "worker":
            return self._clocks.get(child.name, 0)
        return self._examples if child.role == "server" else 0


POLL = 0.5
"""Seconds between two questions to the chief while no worker ends."""
FAREWELL = 30.0
"""Seconds that workers and evaluator have to end by themselves after the run is finished (the model is written)."""


def run_local(
    config: Config,
    folder: Path,
    say: Callable[[str], None] = print,
    show: Show = lambda status, rate, causes: None,
    *,
    connect: Connect = RemoteChief,
    shards: Path | None = None,
    device: str = "auto",
    forkers: Mapping[str, Forker] | None = None,
    others: Others | None = None,
    keep: bool = False,
    objects: int | None = None,
    callbacks: Sequence[Callback] = (),
    echo: Callable[[str], None] | None = None,
) -> Outcome:
    """Trains as `config` says, in a folder that `open_run` has prepared; resumes what the folder holds. `say` gets messages,
    `show` each status with the examples per second and what holds the run up; `shards` that other runs with the same data
    share are written where there are none; `device` is what workers and evaluator compute on; `forkers` of another run start
    the processes quicker still; `others`: machines that lend processes to this run.
    `callbacks` hear what the loggers hear that the settings name; `echo` gets the lines that a script prints, `say` if it is
    not given.
    Ctrl-C and SIGTERM end it in order. Where a mistake ends its first start before anything was learned, the folder is
    deleted, unless it is to `keep`. `objects`: the descriptor of what is trained (processes/packing.py), where that is no
    task and no script. ConfigError: it runs now."""
    place = RunFolder(folder)
    if keys := os.environ.get(TLS):
        check_keys(Path(keys), config)

    def launch(config: Config, until: Until | None = None) -> Outcome | None:
        """None: it has ended since what it was to go on `until` is so."""
        is_new = not place.has_trained
        with ExitStack() as stack:
            stack.enter_context(place.locked())
            signals = stack.enter_context(Signals(say))
            own = OwnRecords(place, say)
            found = _Launch(
                config,
                place,
                say=say,
                show=show,
                connect=connect,
                shards=shards,
                device=device,
                signals=signals,
                own=own,
                records=Records(place, own, config, callbacks),
                forkers=forkers or stack.enter_context(forking(config)),
                objects=objects,
                others=others or Others(),
                echo=echo or say,
                until=until,
            )
            try:
                found.train()
            except Ended as end:
                found.note_end(end)
            except PacelineError as error:
                found.note_end(Ended(error.exit_code, str(error)))
            finally:
                found.end()
            if found.has_caught_up and signals.exit_code is None:
                return None
        if found.outcome.refused and is_new and not keep:
            shutil.rmtree(place.path, ignore_errors=True)
        return found.outcome

    return with_its_servers(place, config, others, say, launch)


class _Launch:
    """One go at a run."""

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        *,
        say: Callable[[str], None],
        show: Show,
        connect: Connect,
        shards: Path | None,
        device: str,
        signals: Signals,
        own: OwnRecords,
        records: Records,
        forkers: Mapping[str, Forker],
        objects: int | None,
        others: Others,
        echo: Callable[[str], None],
        until: Until | None,
    ) -> None:
        """`until`: what is looked for in each status, to end this launch where it is so."""
        self.outcome = Outcome()
        self.has_caught_up = False
        """Whether it is so."""
        self._until = until
        self._config = config
        self._folder = folder
        self._say = say
        self._show = show
        self._connect = connect
        self._device = device
        self._signals = signals
        self._own = own
        self._records = records
        self._others = others
        self._chief: Chief | None = None
        self._speed = Speed()
        self._news = News(len(folder.last_status().get("choices", [])))
        self._causes = Causes(config)
        self._recoveries = Recoveries()
        self._progress = Progress()
        self.outcome.recovery = self._recoveries.sum
        kept = folder.facts().get("faults", [])
        self._faults = Faults(config.faults, kept, say, lambda found: own.note(faults=found))
        self._lost: dict[str, RunWarning] = {}
        """The warning of each worker that could not go on."""
        self._gave_up = False
        """Whether the chief has ended the run because it can learn no more."""
        self._answered: dict[str, int] = {}
        """The newest clock of each worker that the chief has answered."""
        self._processes = Processes(
            folder,
            own,
            say=say,
            echo=echo,
            signals=signals,
            forkers=forkers,
            others=others,
            frozen=FrozenServers(config.lease, folder.ports),
            faults=self._faults,
            objects=objects,
            is_unheard=lambda: config.is_script and described(folder.server(0)) is None,
            has_begun=self._has_begun,
            has_trained=self._has_trained,
            got_to=self._progress.of,
            waits_for_lost=lambda: self._config.on_lost_worker == "wait",
        )
        here = others.workers_on_cores(config)
        settings = LaunchSettings(config, folder, device, shards or folder.shards, objects, others.bind, here)
        has_shards = shards is not None and is_there(shards)
        self._starting = Starting(settings, self._processes, own, others, say, has_shards=has_shards)

    def train(self) -> None:
        """From the shards to the final score; Ended where that is not reached."""
        self._note_launch()
        self._others.open(self._say)
        servers = self._starting.servers()
        self._chief = self._connect(servers[0], self._folder.credentials())
        self._config = self._starting.workers(servers)
        self._causes = Causes(self._config)
        self._records.begin(self._config)
        self._watch(self._chief)
        self._processes.thaw()
        self._processes.let_end(FAREWELL, self._config.is_script)
        self._note_finish()

    def _note_launch(self) -> None:
        """The run's folder keeps who trains what."""
        if changed := self._folder.keep_task(self._config.task):
            self._say(changed)
        for changed in self._folder.keep_own(own_files(self._config)):
            self._say(changed)
        self._own.note(
            run=self._folder.name,
            launches=[*self._folder.facts().get("launches", []), surroundings()],
            home=str(Path.cwd()),
            options=self._options(),
            launcher=os.getpid(),
            exit_code=None,
            waits="",
            chief=None,
            finished=False,
            warnings=[],
            tls=self._keys(),
        )

    def _keys(self) -> str | None:
        """The folder of the run's keys; None without TLS."""
        return str(Path(keys).resolve()) if (keys := os.environ.get(TLS)) else None

    def _options(self) -> str:
        """Of a command line that goes on with the run in the same way."""
        keys = None if self._others.options else self._keys()  # with other machines they are made for each launch
        words = [*(["--device", self._device] if self._device != "auto" else []), *(["--tls", keys] if keys else [])]
        return " ".join(filter(None, [self._others.options, shlex.join(words)]))

    def note_end(self, end: Ended) -> None:
        """The run ends with this."""
        self.outcome.refused = end.code in (*HOPELESS, OutOfMemory.exit_code) and not self._has_begun()
        is_chosen = end.code in FINISHED  # by a script's sys.exit: the run has not finished
        self.outcome.exit_code = PacelineError.exit_code if is_chosen else end.code
        self.outcome.reason = end.reason

    def _note_finish(self) -> None:
        """The run has finished, well or not."""
        out, failed, in_vain = self.outcome, self._processes.failed, self._processes.in_vain
        if in_vain:
            out.reason += f"; {', '.join(in_vain)} could not go on"
        if failed:
            out.reason += f"; the script of {', '.join(sorted(failed))} failed after its training"
        ends = {Diverged: self._gave_up, Incomplete: in_vain, ScriptFailed: failed}
        out.exit_code = next((kind.exit_code for kind, is_so in ends.items() if is_so), 0)

    def _has_begun(self) -> bool:
        """Whether anything was pushed; asks, since the last answer may be half a second old."""
        if not self.outcome.version and self._chief is not None and (status := self._chief.status()) is not None:
            self._note(status)
        return self.outcome.version > 0

    def _has_trained(self) -> bool:
        """Whether nothing is left but the last lines of scripts; asks, too."""
        status = self._chief.status() if self._chief is not None and self._config.is_script else None
        return status is not None and phase_of(status) == "finished"

    def end(self) -> None:
        """No process is left after this."""
        self._processes.end()
        self._others.end(self.outcome.exit_code, self.outcome.reason)
        if self._chief is not None:
            self._chief.close()
        out = self.outcome
        out.faults = self._faults.end(out.figures)
        out.causes = [each for each in self._causes.whole() if not each.is_warned]
        if out.is_finished:
            out.lost = lost_pushes(self._folder, self._answered) if out.faults and self._config.servers else None
            for folder in (self._folder.copies(), self._folder.residuals):
                shutil.rmtree(folder, ignore_errors=True)
        self._own.note(
            finished=out.is_finished,
            exit_code=out.exit_code,
            accuracy=out.accuracy,
            metrics=out.metrics,
            measure=out.measure,
            scored=out.scored,
            seconds=out.seconds,
            reason=out.reason,
            recovery=asdict(out.recovery),
            faults=[asdict(each) for each in out.faults],
            lost=None if out.lost is None else asdict(out.lost),
            warnings=[asdict(each) for each in out.warnings],
            choices=out.choices,
            causes=[asdict(each) for each in out.causes],
            pids={},
        )
        self._records.end(out, self._signals.hurry, self._say)
        self._own.note(warnings=[asdict(each) for each in out.warnings])

    def _watch(self, server: Chief) -> None:
        """Follows the run until it is finished."""
        stall = Stall(time.monotonic())
        alone_since: float | None = None
        while True:
            is_deserted = self._processes.are_gone([child.name for child in self._processes.clients()])
            ended = self._processes.ended_with_0
            status, now = server.status(), time.monotonic()
            self._faults.hear(None if status is None else status.seconds, now)
            if status is not None:
                self._note(status)
                if phase_of(status) == "finished":
                    return
                if self._until is not None and self._until(status):
                    self.has_caught_up = True
                    raise Ended(Stopped.exit_code, "all servers have the same pushes")
                if phase_of(status) == "scoring" and is_deserted:
                    who = "every worker" if self._config.scored_by == "worker" else "the evaluator"
                    raise Ended(PacelineError.exit_code, f"nobody is left to take the final model: {who} has ended")
                if phase_of(status) == "waiting" and status.version:
                    self._processes.call_back()
                elif phase_of(status) == "waiting" and not status.seconds:
                    self._processes.refuse_untrained(ended)
                for worker in status.workers:  # one of the same name elsewhere beats
                    is_silent = worker.member and worker.silent > 2 * self._config.heartbeat
                    if is_silent and self._processes.has_given_up(worker.worker):
                        server.dismiss(worker.worker, worker.incarnation)
                self._processes.start_unfinished(_still_members(status, ended, 2 * self._config.heartbeat))
                if status.unfinished and self._processes.are_gone(status.unfinished):
                    self._processes.give_up_unfinished(status.unfinished)
                    with suppress(NotYet):
                        server.stop(all_but(status.unfinished, status.examples, status.budget, status.steps))
            stalled = stall.check(status, now)
            if stalled:
                self._say(stalled)
            alone_since = None if self._processes.present() else alone_since or now
            if alone_since is not None and now - alone_since > self._config.score_timeout + FAREWELL:
                raise Ended(
                    PacelineError.exit_code, "workers and evaluator have ended, but the servers never finished the run"
                )
            self._processes.wait_for(partial(self._has_left, self._processes.present()), POLL)

    def _note(self, status: StatusReply) -> None:
        """Takes in what the chief says."""
        rate, out = self._speed.note(status), self.outcome
        self._progress.note(status)
        out.seconds = status.seconds
        out.examples = status.examples
        out.version = status.version
        out.steps = (round(status.epoch), status.steps) if status.steps else None
        out.reason = status.reason
        self._gave_up = status.gave_up
        out.warnings = [*chief_status.warnings(status), *self._records.warnings]
        out.choices = list(status.choices)
        news = [*self._recoveries.of(status, time.monotonic()), *self._news.of(out.warnings, out.choices)]
        out.warnings += self._lost_workers(status.epoch)
        causes = self._causes.now(status)
        for line in [*news, *self._causes.news(causes, status.run)]:
            self._say(line)
        out.scores = chief_status.scores(status)
        for worker in status.workers:
            self._answered[worker.worker] = max(worker.clock, self._answered.get(worker.worker, 0))
        out.figures |= {worker.worker: dict(worker.figures) for worker in status.workers if worker.figures}
        if out.scores and out.scores[-1].final:
            final = out.scores[-1]
            out.metrics = final.metrics
            out.measure = final.measure
            out.scored = final.examples
            out.accuracy = accuracy(out.metrics)
        self._records.note(status, rate)
        self._show(status, rate, causes)

    def _lost_workers(self, epoch: float) -> list[RunWarning]:
        """A warning for each worker that could not go on, which was said when it died; the run's folder has it for others."""
        for name in self._processes.in_vain:
            if name not in self._lost:
                said = f"{name} could not go on, so the run goes on without its part (epoch {epoch:.1f})"
                advice = f"what its log says of its end (logs/{name}.log)"
                self._lost[name] = RunWarning(f"{GAVE_UP} {name}", said, advice, [], round(epoch, 2))
                self._own.note(warnings=[asdict(each) for each in self._lost.values()])
        return list(self._lost.values())

    def _has_left(self, before: int) -> bool:
        """Whether a worker or the evaluator has ended: the run may be over."""
        return self._processes.present() < before
