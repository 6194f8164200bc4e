"""Follows a deployed run to its end, and shows where it is."""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from rich.console import Console

from paceline.base.terminal import show as show_line
from paceline.core.errors import ConfigError, DiskError, Diverged, PacelineError, ServersGone
from paceline.launch.status.chief_status import News, Speed, exposed, pace, standing, warnings
from paceline.launch.status.live_table import done, headline, outages, show_picture
from paceline.launch.status.recoveries import Recoveries, standing_recoveries
from paceline.rpc.enums import phase_of
from paceline.rpc.listening import PLAIN_TEXT
from paceline.v1.run_service_pb2 import StatusReply
from paceline_k8s.ask_chief import ask_chief
from paceline_k8s.cluster_status import State, chief_of, end_of, has_tls, kept_result, look, result_of
from paceline_k8s.deploy import EVERY, STARTING, Patience, Say, Trouble, deploy, stop_servers, wait_until
from paceline_k8s.findings import finding_lines
from paceline_k8s.kubectl import Kubectl
from paceline_k8s.overlay import AS_IT_IS, Changes

PAUSE = 3.0
GAVE_UP = "Gave up"
"""What the line of a run begins with that has ended because it could learn no more."""
FAREWELL = 300.0
"""Longest time that workers and evaluator have to end after the run (seconds)."""


def run(kubectl: Kubectl, name: str, say: Say, changes: Changes = AS_IT_IS) -> int:
    """Deploys, waits for the end and scales the servers to zero; the run's exit code. The last line is the test accuracy."""
    kubectl = kubectl.of_run(deploy(kubectl, name, say, changes).run)
    if look(kubectl).waits:
        wait_until(lambda state: state.is_up, kubectl, say, STARTING)
    found = follow(kubectl, say)
    state = _let_end(kubectl, say)
    stop_servers(kubectl, found)
    volume, fetch = kubectl.part("models"), f"make fetch-model RUN={kubectl.run_name}"
    say(f"the servers are scaled to zero; the model is on the volume {volume}: {fetch}")
    say(found)
    if state is None or not state.finished("evaluator"):
        say(
            f"the evaluator has not ended within {FAREWELL:.0f} s after the run, so the model may not be the last one. Why: "
            f"paceline k8s doctor --run {kubectl.run_name} -n {kubectl.namespace}"
        )
        return PacelineError.exit_code
    return Diverged.exit_code if any(line.startswith(GAVE_UP) for line in found.splitlines()) else 0


def follow(kubectl: Kubectl, say: Say, clock: Callable[[], float] = time.monotonic) -> str:
    """Says where the run is every 10 s until it is finished; its result. What keeps single workers away is said and waited
    for; Trouble where a Job has failed, a server can't come up, or the run has been torn down."""
    speed, news, recoveries, said, watched = Speed(), News(), Recoveries(), -EVERY, _Watched(kubectl, say, clock)
    while True:
        with suppress(ServersGone), chief_of(kubectl) as chief:
            while (status := chief.status()) is not None:
                for line in [*recoveries.of(status, clock()), *news.of(warnings(status), status.choices)]:
                    say(line)
                if clock() - said >= EVERY or phase_of(status) == "finished":
                    said = clock()
                    say(_line(status, speed))
                    watched.check()
                if phase_of(status) == "finished":
                    recovered = [f"Recovered: {recoveries.sum}"] if str(recoveries.sum) else []
                    return "\n".join([*recovered, *standing(warnings(status)), *_why(status), result_of(status)])
                time.sleep(PAUSE)
        if clock() - said >= EVERY:
            said = clock()
            state = watched.check()
            say(state.line() if state is not None and state.waits else "the chief does not answer just now")
            if state is not None and state.servers is None:
                raise Trouble(
                    f"Run {kubectl.run_name} has no servers any more: somebody has torn it down. To go on with it: make deploy "
                    f"RUN={kubectl.run_name}.",
                    ServersGone.exit_code,
                )
            if state is not None and _is_stopped(state) and (kept := kept_result(state) or end_of(kubectl)):
                return kept
        time.sleep(PAUSE)


class _Watched:
    """The parts of a run that trains."""

    def __init__(self, kubectl: Kubectl, say: Say, clock: Callable[[], float]) -> None:
        self._kubectl = kubectl
        self._say = say
        self._clock = clock
        self._patience = Patience(lambda one: "paceline-server" in one.part or one.part.startswith("job/"))
        self._told: list[str] = []
        self._traces: set[str] = set()

    def check(self) -> State | None:
        """A look, None where the cluster does not answer; says troubles that are new. Trouble where they end the run."""
        try:
            state = look(self._kubectl)
        except ServersGone as error:
            self._say(str(error))
            return None
        before = self._told
        self._told = finding_lines(state.troubles)
        for trouble in self._told:
            if trouble not in before:
                self._tell(trouble)
        self._patience.check(state, self._clock())
        return state

    def _tell(self, trouble: str) -> None:
        """A traceback once, however often it comes."""
        line, _, trace = trouble.partition("\n")
        self._say(line if trace in self._traces else trouble)
        self._traces.add(trace)


def show(kubectl: Kubectl, console: Console) -> int:
    """One look at all parts, their troubles, and the chief's table; a finished run's last line is its test accuracy."""
    state = look(kubectl)
    if state.servers is None:
        show_line(console, f"no run in namespace {kubectl.namespace}; bring one up: make deploy OVERLAY=demo")
        return 0
    show_line(console, state.line())
    for trouble in finding_lines(state.troubles):
        show_line(console, trouble)
    if state.queue:
        return 0
    if _is_stopped(state):
        show_line(console, "the run is finished; its servers are scaled to zero")
        show_line(console, kept_result(state) or end_of(kubectl) or "its result is not known")
        return 0
    status = ask_chief(kubectl, state, partial(show_line, console))
    show_picture(console, status, pace(status))
    for line in [*standing_recoveries(status), *standing(warnings(status)), *exposed(status), *_why(status)]:
        show_line(console, line)
    if last := result_of(status):
        show_line(console, last)
    return 0


def _is_stopped(state: State) -> bool:
    """Whether its servers are scaled to zero."""
    return state.servers is not None and state.servers["spec"]["replicas"] == 0


def doctor(kubectl: Kubectl, say: Say) -> int:
    """Names all troubles, those of the cluster and those that the chief knows; the exit code of the first one, 0 where there
    is none."""
    state = look(kubectl)
    if state.servers is None and not state.troubles:
        say(f"There is no run in namespace {kubectl.namespace}. Bring one up: make deploy OVERLAY=demo")
        return 0
    say(state.line())
    for trouble in finding_lines(state.troubles):
        say(trouble)
    full, others = _of_chief(kubectl) if state.serves and not _is_stopped(state) else ([], [])
    for line in [*full, *others]:
        say(line)
    if not state.troubles and not full and not others:
        say(
            "Kubernetes sees no trouble."
            + ("" if state.is_up or state.waits else " Some parts are on their way still.")
        )
    if state.servers is not None and not has_tls(state.servers):
        say(f"note: {PLAIN_TEXT}.")
    return state.troubles[0].exit_code if state.troubles else DiskError.exit_code if full else 0


def _of_chief(kubectl: Kubectl) -> tuple[list[str], list[str]]:
    """What the chief knows of a run that trains: servers that can't write their snapshots, and what else goes wrong. Nothing
    where it does not answer, which Kubernetes knows the reason of."""
    status = None
    try:
        with suppress(ServersGone), chief_of(kubectl) as chief:
            status = chief.status()
    except ConfigError as error:  # the token or the certificate is not the run's
        return [], [str(error)]
    if status is None:
        return [], []
    full = [
        f"server-{server.server} can't write its snapshots: {server.figures.disk_trouble.rstrip('.')}. Give its claim room: "
        "what it has learnt since the last one is lost if it dies now."
        for server in status.servers
        if server.figures.disk_trouble
    ]
    return full, [*outages(status), *standing(warnings(status))]


def _line(status: StatusReply, speed: Speed) -> str:
    return f"{status.seconds:5.0f} s  {headline(status, speed.note(status))}{done(status, ', ')}"


def _why(status: StatusReply) -> list[str]:
    """Why a finished run has ended, in a line."""
    if phase_of(status) != "finished" or not status.reason:
        return []
    return [f"{GAVE_UP if status.gave_up else 'Ended'}: {status.reason}"]


def _let_end(kubectl: Kubectl, say: Say) -> State | None:
    """Workers leave and the evaluator writes the model; the last look, None where there was none."""
    start = said = time.monotonic()
    state: State | None = None
    while time.monotonic() - start < FAREWELL:
        with suppress(ServersGone):
            state = look(kubectl)
            if all(state.finished(name) for name in ("worker", "evaluator")):
                break
        if time.monotonic() - said >= EVERY:
            said = time.monotonic()
            say(f"waiting for workers and evaluator to end; {state.line() if state else 'the cluster does not answer'}")
        time.sleep(PAUSE)
    return state
