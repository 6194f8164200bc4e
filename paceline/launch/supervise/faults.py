"""Inflicts the faults of a run's settings on its processes, each once, and keeps what each of them cost."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paceline.core.fault import LINK_SECONDS, Fault, RunClock, Signal, faults_of
from paceline.launch.supervise.children import Child


@dataclass(slots=True)
class Inflicted:
    """What became of one fault."""

    fault: str
    at: float | None = None
    """Training time of the run when it happened (seconds); None: it has not."""
    lasted: float | None = None
    """Until the process ran again, or a new one in its place (seconds); None: it never did, or went on all the time."""
    waited: float | None = None
    """For an emulated link (seconds)."""

    def __str__(self) -> str:
        """In words."""
        if self.at is None:
            return f"{self.fault}: did not happen, since the run ended before"
        ran = "" if self.lasted is None else f", the process ran again after {self.lasted:.1f} s"
        waited = "" if self.waited is None else f", the worker waited {self.waited:.1f} s for it"
        return f"{self.fault}: at {self.at:.1f} s{ran}{waited}"

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> "Inflicted":
        """From run.json."""
        return cls(**kept)


@dataclass(slots=True)
class _Pending:
    """A fault with what is left of it to do."""

    fault: Fault
    left: list[Signal]
    record: Inflicted
    pid: int | None = None
    """The process that it happened to."""
    since: float = 0.0
    """When (on the launcher's clock)."""


class Faults:
    """Of one launch; the time is handed in (seconds on any steady clock)."""

    def __init__(
        self,
        texts: Sequence[str],
        before: Sequence[Mapping[str, Any]],
        say: Callable[[str], None],
        note: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        """`before`: what earlier launches of the run have noted; `note`: keeps what has happened."""
        self._say = say
        self._note = note
        self._clock = RunClock()
        known = {each.fault: each for each in map(Inflicted.of, before) if each.at is not None}
        self.records = [known.get(text, Inflicted(text)) for text in texts]
        self._pending = [
            _Pending(fault, list(fault.signals), record)
            for fault, record in zip(faults_of(texts), self.records, strict=True)
            if record.at is None
        ]
        self._is_resumed = bool(before)

    def hear(self, seconds: float | None, now: float) -> None:
        """The chief has answered; as RunClock.hear."""
        is_first = self._clock.read(now) < 0
        self._clock.hear(seconds, now)
        if is_first and seconds and self._is_resumed:
            for each in [each for each in self._pending if each.fault.signals and each.fault.begins < seconds]:
                self._say(f"fault {each.fault.text!r} is left out: the run was at {seconds:.0f} s when it was resumed")
                self._pending.remove(each)

    def inflict(self, children: Sequence[Child], now: float) -> None:
        """What is due."""
        run = self._clock.read(now)
        for each in self._pending:
            child = next((child for child in children if child.name == each.fault.who), None)
            self._open(each, run)
            if child is None or not child.running:
                continue
            if each.pid is not None and each.record.lasted is None and child.pid != each.pid:
                each.record.lasted = now - each.since
            while each.left and each.left[0].at <= run:
                self._act(each, each.left.pop(0), child, run, now)

    def thaw(self, children: Sequence[Child]) -> None:
        """The run is over: what is still frozen goes on, so that it can end."""
        for each in self._pending:
            for child in children:
                if each.left and child.name == each.fault.who and child.pid == each.pid:
                    child.signal(signal.SIGCONT)

    def end(self, figures: Mapping[str, Mapping[str, float]]) -> list[Inflicted]:
        """What became of all of them. `figures`: the last ones of each worker."""
        for each in self._pending:
            if each.record.at is not None and not each.fault.signals:
                each.record.waited = figures.get(each.fault.who, {}).get(LINK_SECONDS, 0.0)
        return self.records

    def _open(self, each: _Pending, run: float) -> None:
        """A fault without signals happens in the process itself."""
        if not each.fault.signals and each.record.at is None and each.fault.begins <= run:
            self._happened(each, run)

    def _act(self, each: _Pending, due: Signal, child: Child, run: float, now: float) -> None:
        is_first = each.record.at is None
        if is_first:
            each.pid, each.since = child.pid, now
            self._happened(each, run)
        elif child.pid != each.pid:
            return  # it was ended meanwhile, and the new one has nothing to do with it
        if due.name == "SIGKILL":
            child.end(f"was killed at {run:.1f} s by the fault '{each.fault.text}'")
        else:
            child.signal(signal.Signals[due.name])
        if not is_first and not each.left:
            each.record.lasted = now - each.since

    def _happened(self, each: _Pending, run: float) -> None:
        each.record.at = run
        self._say(f"fault: {each.fault.text}, at {run:.1f} s")
        self._note([asdict(record) for record in self.records])
