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
from paceline_k8s.cluster_status import State, chief_of, has_tls, look
from paceline_k8s.deploy import EVERY, STARTING, Patience, Say, Trouble, control, deploy, has_controller, wait_until
from paceline_k8s.findings import finding_lines
from paceline_k8s.kubectl import Kubectl
from paceline_k8s.observation import chief_of as chief_of_status
from paceline_k8s.observation import result_of
from paceline_k8s.overlay import AS_IT_IS, Changes
from paceline_k8s.queue import release
from paceline_k8s.wanted import Chief, Result

PAUSE = 3.0
GAVE_UP = "Gave up"
"""What the line of a run begins with that has ended because it could learn no more."""
FAREWELL = 300.0
"""Longest time that workers and evaluator have to end after the run (seconds)."""


def run(kubectl: Kubectl, name: str, say: Say, changes: Changes = AS_IT_IS) -> int:
    """Deploys, and waits until the run has ended and its parts have gone; its exit code. The last line is the test accuracy."""
    kubectl = kubectl.of_run(deploy(kubectl, name, say, changes).run)
    if look(kubectl).queue:
        wait_until(lambda state: state.is_up, kubectl, say, STARTING)
    found = follow(kubectl, say)
    release(kubectl, kubectl.get(kubectl.servers))
    result = _let_end(kubectl, say)
    if result is None:
        say(
            f"the run's parts have not gone within {FAREWELL:.0f} s after its end. Why: "
            f"paceline k8s doctor --run {kubectl.run_name} -n {kubectl.namespace}"
        )
        return PacelineError.exit_code
    volume, fetch = kubectl.part("models"), f"make fetch-model RUN={kubectl.run_name}"
    say(f"all parts are scaled to zero; the model is on the volume {volume}: {fetch}")
    say(found)
    return result.exit_code


def follow(kubectl: Kubectl, say: Say, clock: Callable[[], float] = time.monotonic) -> str:
    """Says where the run is every 10 s until it is finished; its result. What keeps single workers away is said and waited
    for; Trouble where a part has failed, a server can't come up, or the run has been torn down."""
    speed, news, recoveries, said, watched = Speed(), News(), Recoveries(), -EVERY, _Watched(kubectl, say, clock)
    while True:
        with suppress(ServersGone), chief_of(kubectl) as chief:
            while (status := chief.status()) is not None:
                if phase_of(status) == "finished":
                    control(kubectl, look(kubectl), status)
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
            say(state.line() if state is not None and state.queue else "the chief does not answer just now")
            if state is not None and state.servers is None:
                raise Trouble(
                    f"Run {kubectl.run_name} has no servers any more: somebody has torn it down. To go on with it: make deploy "
                    f"RUN={kubectl.run_name}.",
                    ServersGone.exit_code,
                )
            if state is not None and state.result is not None:
                return "\n".join([*_ended(state.result), state.result.sentence])
        time.sleep(PAUSE)


class _Watched:
    """The parts of a run that trains."""

    def __init__(self, kubectl: Kubectl, say: Say, clock: Callable[[], float]) -> None:
        self._kubectl = kubectl
        self._say = say
        self._clock = clock
        self._patience = Patience(lambda one: "paceline-server" in one.part or one.part.startswith("statefulset/"))
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
    if state.result is not None:
        show_line(console, "the run is finished; all its parts are scaled to zero")
        for line in [*_ended(state.result), state.result.sentence]:
            show_line(console, line)
        return 0
    if state.wanted is not None and state.wanted.does:
        show_line(console, state.wanted.does)
    status = ask_chief(kubectl, state, partial(show_line, console))
    show_picture(console, status, pace(status))
    for line in [*standing_recoveries(status), *standing(warnings(status)), *exposed(status), *_why(status)]:
        show_line(console, line)
    if last := result_of(status):
        show_line(console, last)
    return 0


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
    full, others = _of_chief(kubectl) if state.serves else ([], [])
    for line in [*full, *others]:
        say(line)
    if state.wanted is not None and state.wanted.does and not state.queue:
        say(state.wanted.does)
    if not state.troubles and not full and not others:
        say(
            "Kubernetes sees no trouble."
            + ("" if state.is_up or state.queue else " Some parts are on their way still.")
        )
    if state.servers is not None and not has_tls(state.servers):
        say(f"note: {PLAIN_TEXT}.")
    if state.servers is not None and not has_controller(kubectl):
        say(
            "note: the run has no controller, so the numbers of its processes change under make deploy, run and scale alone."
        )
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
    chief = chief_of_status(status)
    return _ended(chief) if chief and chief.is_finished else []


def _ended(end: Chief | Result) -> list[str]:
    """The same of its end."""
    return [f"{GAVE_UP if end.exit_code == Diverged.exit_code else 'Ended'}: {end.reason}"] if end.reason else []


def _let_end(kubectl: Kubectl, say: Say) -> Result | None:
    """Waits until no process of the run is left; how it has ended, None where some stay."""
    start = said = time.monotonic()
    while time.monotonic() - start < FAREWELL:
        with suppress(ServersGone):
            state = look(kubectl)
            control(kubectl, state)
            if state.result is not None and not any(part["spec"].get("replicas", 1) for part in state.parts.values()):
                return state.result
            if time.monotonic() - said >= EVERY:
                said = time.monotonic()
                say(f"waiting for the run's parts to end; {state.line()}")
        time.sleep(PAUSE)
    return None
