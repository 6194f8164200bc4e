"""What made a run of this machine slow or worse: asks its chief while it trains, reads its folder afterwards."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.core.chief.worker_time import ENOUGH, LEAST, OWN
from paceline.core.errors import DataError
from paceline.core.explain.cause import Finding, causes
from paceline.core.explain.evidence import Evidence
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.status.chief_status import RemoteChief, plain
from paceline.launch.status.evidence import Causes, Look, evidence_of, has_figures, look_of
from paceline.launch.status.run_status import Connect, find_chief, how_it_ended


@dataclass(frozen=True, slots=True)
class Explained:
    """What was found."""

    findings: list[Finding]
    """What costs most first; empty where nothing is wrong."""
    evidence: Evidence
    is_training: bool
    """It is of the run's last seconds."""
    examples: int
    """Of the training data; 0 where that is not known."""
    epochs: float
    """That it has trained for."""
    ended: str
    """How it ended where it has not finished, in words; empty where it has, or goes on."""
    unjudged: str
    """Why there is too little to judge its speed by, in words; empty where there is enough."""
    notes: list[str]
    """What could not be looked at, in sentences."""

    @property
    def time(self) -> dict[str, float]:
        """The parts of the workers' time (ratios); empty where nobody knows."""
        shares = {part: self.evidence.share(part) for part in (*OWN, "wait")}
        return {part: round(share, 4) for part, share in shares.items()} if any(shares.values()) else {}


def explain_run(folder: RunFolder, connect: Connect = RemoteChief) -> Explained:
    """Looks at a run. DataError where its folder has no figures: it has not trained, or they are damaged."""
    config, looks = folder.settings(), Looks(folder)
    now = _present(folder, connect)
    if now is not None and now["phase"] == "training":
        recent = filter(None, map(look_of, folder.newest_statuses()))
        found = Causes(config, recent).of(now)
        evidence = evidence_of([now], config)
        return Explained(found, evidence, True, *_trained(now), "", _too_early(evidence), looks.notes(now))
    evidence = evidence_of(looks, config)
    last = looks.last
    if last is None:
        raise DataError(looks.why_empty())
    ended = how_it_ended(folder) if now is None else ""
    return Explained(causes(evidence), evidence, False, *_trained(last), ended, _too_short(evidence), looks.notes(last))


def _too_early(evidence: Evidence) -> str:
    """What to say of a run that trains and can't be judged yet; empty where it can."""
    if evidence.age >= LEAST and evidence.workers:
        return ""
    return f"has trained for {evidence.age:.1f} s: too short a time to say what holds it up; ask again in a moment"


def _too_short(evidence: Evidence) -> str:
    """What to say of one that has ended and can't be judged; empty where it can."""
    return "" if evidence.workers else f"had no worker of {ENOUGH} steps or more, too few to judge its speed by"


def _trained(look: Look) -> tuple[int, float]:
    """Examples of the training data, and epochs so far; zeros where the run does not say it."""
    epochs = float(look.get("epoch", 0.0))
    return round(look.get("examples", 0) / epochs) if epochs > 0 else 0, epochs


def _present(folder: RunFolder, connect: Connect) -> Look | None:
    """The status of a run that goes on; None where nobody answers."""
    chief = find_chief(folder, connect)
    status = chief.status() if chief else None
    if chief:
        chief.close()
    return None if status is None else plain(status)


class Looks:
    """The lines of a run's metrics.jsonl, from the beginning each time; damaged ones are left out and counted."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._damaged = 0
        self.last: Look | None = None
        """The newest one."""

    def __iter__(self) -> Iterator[Look]:
        self._damaged = 0
        try:
            with self._folder.metrics.open(errors="replace") as lines:
                for line in lines:
                    look = _read(line)
                    if look is None:
                        self._damaged += line.endswith("\n")  # the last one may just be written
                        continue
                    self.last = look
                    yield look
        except OSError:
            return

    def why_empty(self) -> str:
        """Why there is no look."""
        name, file = self._folder.name, self._folder.metrics
        if self._damaged:
            return (
                f"{file} is damaged: none of its {self._damaged} lines is a status of a run. Nothing explains run '{name}' "
                "any more; paceline audit says what it has kept besides."
            )
        return (
            f"Run '{name}' has no figures yet ({file} is {'empty' if file.is_file() else 'not there'}): it has not trained. "
            f"Train it, or look into {self._folder.path}/logs."
        )

    def notes(self, look: Look) -> list[str]:
        """What could not be looked at; `look`: the newest one."""
        found = []
        if self._damaged:
            found.append(f"{self._damaged} damaged lines of {self._folder.metrics} are left out.")
        if look["workers"] and not has_figures(look):
            found.append(
                f"Run '{self._folder.name}' does not say where its time went: an older release has trained it, or it made no "
                "step. Only warnings and restarts are looked at."
            )
        return found


def _read(line: str) -> Look | None:
    """A line as a status; None where it is none."""
    try:
        return look_of(json.loads(line))
    except ValueError:
        return None
