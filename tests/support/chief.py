"""A chief that answers from a list, and what shows its answers."""

from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from paceline.core.errors import NotYet
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.launch.status import run_status
from paceline.v1.run_service_pb2 import StatusReply
from paceline_k8s import follow as following
from tests.support.kubectl import Cluster


class Chief:
    """Gives these answers, the last one again and again (None: it is away), and refuses the first calls to stop."""

    def __init__(self, *answers: StatusReply | None, refusals: int = 0) -> None:
        self.reasons: list[str] = []
        """Of the calls to stop."""
        self._answers = list(answers)
        self._refusals = refusals

    def status(self) -> StatusReply | None:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def stop(self, reason: str) -> bool:
        self.reasons.append(reason)
        if len(self.reasons) <= self._refusals:
            raise NotYet("The policy is just changing; ask again in a few seconds.")
        return self._answers[0] is not None

    def close(self) -> None:
        return


def console(width: int = 120) -> tuple[Console, StringIO]:
    """One that writes into the text."""
    text = StringIO()
    return Console(file=text, width=width), text


def begun(runs: Path) -> RunFolder:
    """The folder of a run that goes on."""
    folder, _ = open_run(Config(run="one"), runs=runs)
    folder.write_facts(chief="127.0.0.1:7000", exit_code=None)
    return folder


def shown(folder: RunFolder, *answers: StatusReply | None, as_json: bool = False) -> str:
    """What the status shows of a run whose chief gives these answers; without any, of a run that has ended."""
    screen, text = console(400)
    more: dict[str, Any] = {"connect": lambda *_: Chief(*answers)} if answers else {}
    run_status.show_status(folder, screen, as_json=as_json, **more)
    return text.getvalue()


def watched(place: Any, *answers: StatusReply | None) -> str:
    """What watching the run shows until it ends."""
    screen, text = console()
    connect: Any = lambda *_: Chief(*answers)  # noqa: E731
    run_status.watch(place, screen, as_json=False, connect=connect, every=0.0)
    return text.getvalue()


def followed(monkeypatch: pytest.MonkeyPatch, *answers: StatusReply) -> tuple[list[str], list[str]]:
    """What following a run on Kubernetes says while it goes on, and the lines of its result."""
    chief, said = Chief(*answers), list[str]()
    monkeypatch.setattr(following, "chief_of", lambda kubectl: nullcontext(chief))
    monkeypatch.setattr(following, "PAUSE", 0.0)
    monkeypatch.setattr(following._Watched, "check", lambda self: None)
    return said, following.follow(Cluster(), said.append, clock=lambda: 0.0).splitlines()
