"""Looks at a run from outside: finds its chief, asks, shows."""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from paceline.base.terminal import can_redraw, show
from paceline.core.chief.best_model import result
from paceline.core.chief.warnings import RunWarning
from paceline.core.errors import ServersGone, TryAgain
from paceline.core.explain.cause import Finding, finding_of
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.status.chief_status import (
    Chief,
    News,
    RemoteChief,
    Speed,
    exposed,
    pace,
    plain,
    standing,
    warnings,
)
from paceline.launch.status.evidence import Causes, look_of
from paceline.launch.status.live_table import PlainLines, show_picture
from paceline.launch.status.recoveries import Recoveries, Recovery, standing_recoveries
from paceline.rpc.enums import phase_of
from paceline.v1.run_service_pb2 import StatusReply

if TYPE_CHECKING:
    from paceline.rpc.auth import Credentials

T = TypeVar("T")
PAUSE = 0.2
"""Time between two looks at a run that is not ready (seconds)."""
STOP_PATIENCE = 30.0
"""Time in which a run may become ready to be stopped (seconds)."""
AWAY = 60.0
"""Time in which a chief of which only the address is known may come back (seconds)."""
Connect = Callable[[str, "Credentials"], Chief]


@dataclass(frozen=True, slots=True)
class Elsewhere(RunFolder):
    """A run of which only the chief's address is known, as its path: on Kubernetes, say."""

    token_file: Path | None = None
    tls: Path | None = None

    def facts(self) -> dict[str, Any]:
        return {"chief": str(self.path), "exit_code": None}

    def gone(self) -> ServersGone:
        return ServersGone(
            f"No server answers at {self.path}. Does server 0 run there, and is this its gRPC port? If it uses "
            "TLS, add --tls."
        )

    def credentials(self) -> "Credentials":
        from paceline.rpc.auth import read_credentials

        return read_credentials(self.token_file, self.tls)


def show_status(folder: RunFolder, console: Console, as_json: bool, connect: Connect = RemoteChief) -> None:
    """One look. ServersGone where the run has not ended, yet nobody answers."""
    chief = find_chief(folder, connect)
    status = chief.status() if chief else None
    if chief:
        chief.close()
    _last_look(folder, console, as_json, status)


def _last_look(folder: RunFolder, console: Console, as_json: bool, status: StatusReply | None) -> None:
    if status is None:
        ended = _ended(folder)
        _print(console, ended) if as_json else show(console, ended["said"])
    elif as_json:
        found = {**plain(status), "warnings": [asdict(each) for each in _warned(folder, status)]}
        _print(console, {"run": folder.name, "folder": str(folder.path), **found, **_waits(folder)})
    else:
        causes = causes_of(folder)
        _picture(folder, status, console, pace(status), causes.now(status) if causes else ())


def watch(
    folder: RunFolder, console: Console, as_json: bool, connect: Connect = RemoteChief, every: float = 1.0
) -> None:
    """Looks again and again until the run has ended."""
    speed, lines = Speed(), PlainLines(partial(show, console))
    news, recoveries, found = News(), Recoveries(), causes_of(folder)
    chief, is_away = find_chief(folder, connect), False
    answered = -math.inf
    while True:
        status = chief.status() if chief else None
        answered = answered if status is None else time.monotonic()
        may_come = folder.is_driven or (isinstance(folder, Elsewhere) and time.monotonic() - answered < AWAY)
        if status is None and folder.facts().get("exit_code") is None and may_come:
            if not is_away and not as_json:
                show(console, "The chief does not answer; it is starting, or busy. Looking again until the run ends.")
            is_away = True
            time.sleep(every)
            chief = chief or find_chief(folder, connect)
            continue
        if chief is None or status is None or phase_of(status) == "finished":
            break
        is_away = False
        causes = found.now(status) if found else []
        if as_json:
            _print(console, {"run": folder.name, **plain(status)})
        elif can_redraw(console):
            console.clear()
            _picture(folder, status, console, speed.note(status), causes)
        else:
            lines.show(status, speed.note(status))
            happened = [*recoveries.of(status, time.monotonic()), *news.of(_warned(folder, status), status.choices)]
            for line in [*happened, *(found.news(causes, status.run) if found else [])]:
                lines.say(line)
        time.sleep(every)
    if chief:
        chief.close()
    _last_look(folder, console, as_json, status)


def stop_run(folder: RunFolder, connect: Connect = RemoteChief) -> str:
    """Asks the chief to end the training, again for a while where it can't just now; what to tell the user."""
    chief = find_chief(folder, connect)
    asked = patiently(lambda: chief.stop("paceline stop"), time.monotonic() + STOP_PATIENCE) if chief else False
    if chief:
        chief.close()
    if not asked:
        return str(_ended(folder)["said"])
    return f"run {folder.name} stops: workers finish the step they are in, then the final version is scored and kept."


def patiently(ask: Callable[[], T], deadline: float) -> T:
    """Asks again while the run is just starting, restarting or changing. TryAgain: it still is at the deadline."""
    while True:
        try:
            return ask()
        except TryAgain:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE)


def find_chief(folder: RunFolder, connect: Connect) -> Chief | None:
    """The run's chief; None where the run has ended or not begun."""
    address = folder.facts().get("chief")
    return connect(str(address), folder.credentials()) if address and folder.facts().get("exit_code") is None else None


def how_it_ended(folder: RunFolder) -> str:
    """Of a run that nobody answers for and that has not finished, in words with what to do; empty of others."""
    facts = folder.facts()
    code = facts.get("exit_code")
    if code is None:
        return "" if folder.is_driven else str(folder.gone())
    again = folder.how_to_go_on(folder.settings().servers)
    return "" if code == 0 else f"run {folder.name} ended with exit code {code}: {facts.get('reason')}. {again}"


def _ended(folder: RunFolder) -> dict[str, Any]:
    """What is known of a run whose chief does not answer."""
    facts = folder.facts()
    code = facts.get("exit_code")
    if code is None and not (facts.get("waits") and folder.is_driven):
        raise folder.gone()
    if facts.get("finished"):
        metrics = facts.get("metrics", {})
        scored = result(metrics, facts.get("measure", "")) if metrics else "not scored"
        said = f"run {folder.name} finished: {scored} after {facts.get('seconds', 0):.1f} s; the model is in {folder.models}"
    elif code is None:
        said = f"run {folder.name} is waiting: {facts['waits']}"
    else:
        said = how_it_ended(folder)
    warned = standing(RunWarning(**each) for each in facts.get("warnings", []))
    recovered = str(Recovery(**facts.get("recovery", {})))
    lines = [
        said,
        *facts.get("as_read", ()),
        *([f"Recovered: {recovered}"] if recovered else []),
    ]
    found = [str(finding_of(each)) for each in facts.get("causes", [])]
    said = "\n".join([*lines, *warned, *found])
    return {"run": folder.name, "folder": str(folder.path), "said": said, **facts}


def _picture(folder: RunFolder, status: StatusReply, console: Console, rate: float, causes: Sequence[Finding]) -> None:
    show(console, f"run {folder.name} ({folder.path})")
    for line in folder.facts().get("as_read", ()):
        show(console, line)
    show_picture(console, status, rate, causes)
    for line in _waits(folder).values():
        show(console, line)
    for line in [*standing_recoveries(status), *standing(_warned(folder, status)), *exposed(status)]:
        show(console, line)


def _warned(folder: RunFolder, status: StatusReply) -> list[RunWarning]:
    """What the chief warns of, and of workers that its launcher has given up."""
    given_up = [RunWarning(**each) for each in folder.facts().get("warnings", [])]
    return list({each.kind: each for each in (*given_up, *warnings(status))}.values())


def causes_of(folder: RunFolder) -> Causes | None:
    """What holds the run up, judged with what its folder has of the last seconds; None where its settings are not here."""
    if not folder.config.is_file():
        return None
    return Causes(folder.settings(), filter(None, map(look_of, folder.newest_statuses())))


def _waits(folder: RunFolder) -> dict[str, str]:
    """What the run waits for, of other machines; nothing where it does not."""
    return {"waits": told} if (told := folder.facts().get("waits")) else {}


def _print(console: Console, values: dict[str, Any]) -> None:
    console.print(json.dumps(values), markup=False, highlight=False, soft_wrap=True)
