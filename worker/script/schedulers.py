"""A script's torch schedulers, brought to where the run is in a worker that is started again.

Nobody tells Paceline when a script steps a scheduler, so each worker notes it while it trains, in a small file that outlives
it. What a new process finds there, it steps its new schedulers by."""

import gc
import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CyclicLR, LRScheduler, OneCycleLR, ReduceLROnPlateau

from paceline.base.private import make_private
from paceline.worker.script.tell import tell

_OF_SCORES = ("best", "cooldown_counter", "num_bad_epochs", "last_epoch")
"""What ReduceLROnPlateau remembers of the scores that it was given."""
_SPARSELY = 1.1
"""By what factor its position grows between two notes of a scheduler that is stepped irregularly."""
Noted = list[dict[str, Any]]
"""One for each scheduler: kind and what it is stepped after: "epoch", "step", [its steps, at which position] or None."""


class _Guess(NamedTuple):
    """That a scheduler is stepped after each epoch."""

    position: int
    """Where this process began."""
    steps: int
    """Those that were due there."""


class Schedulers:
    """Those of one optimizer that the script steps itself; parts of others have none. Not thread-safe."""

    def __init__(self, optimizer: Optimizer, file: Path | None, epoch_of: Callable[[int], int]) -> None:
        """`file`: outlives the process; `epoch_of`: the script's epoch, from 0, after that number of steps of the worker."""
        self._optimizer = optimizer
        self._file = file
        self._epoch_of = epoch_of
        self._rates = self._present_rates()
        self._changed_before = False
        """Whether an earlier process's script has set the rate, without a scheduler."""
        self._all: list[LRScheduler] = []
        self._noted: Noted = []
        self._guessed: dict[int, _Guess] = {}
        """By the number of a scheduler of which nothing was noted."""

    def go_on(self, position: int) -> None:
        """When this process joins, after `position` steps of the worker. A scheduler that the script has brought
        somewhere itself stays there."""
        self._all = list(_found(self._optimizer))
        before = self._read() if position else None
        for number, (scheduler, known) in enumerate(zip(self._all, self._matching(before), strict=True)):
            if not position or _steps(scheduler):
                continue
            if isinstance(scheduler, ReduceLROnPlateau):
                self._restore(scheduler, known, position)
                continue
            if known is None or known["after"] is None:
                self._guess(number, scheduler, position)
            else:
                self._reach(scheduler, self._due(known["after"], position))
        self._changed_before = not self._all and bool(before)

    def note(self, position: int) -> None:
        """Before the step after `position`: writes down how often each is stepped, where that is news."""
        for number in list(self._guessed):
            self._check(number, position)
        if self._guessed:
            return
        found = [self._facts(*each, position) for each in enumerate(self._all)]
        if not self._all:
            found = self._without_any(position)
        if found != self._noted:
            self._noted = found
            self._write()

    def _without_any(self, position: int) -> Noted:
        """What is noted where the script sets the rate itself; says once where it begins again."""
        if self._noted or self._present_rates() != self._rates:
            self._changed_before = False
            return [{"kind": "", "after": None}]
        if self._changed_before:
            self._changed_before = False
            tell(
                f"after {position:,} steps this worker begins with the rate of the script's first step: it has no scheduler "
                "of torch. Set the rate by the epoch that paceline.epochs gives."
            )
        return []

    def _facts(self, number: int, scheduler: LRScheduler, position: int) -> dict[str, Any]:
        facts: dict[str, Any] = {"kind": type(scheduler).__name__, "after": self._after(number, scheduler, position)}
        if isinstance(scheduler, ReduceLROnPlateau):
            facts["scores"] = {name: getattr(scheduler, name) for name in _OF_SCORES}
            facts["rates"] = self._present_rates()
        return facts

    def _after(self, number: int, scheduler: LRScheduler, position: int) -> str | list[int] | None:
        """None: it can't be known yet."""
        if not position:
            return None
        steps = _steps(scheduler)
        if steps == self._epoch_of(position):
            return "epoch"
        if steps == position:
            return "step"
        old = self._noted[number]["after"] if number < len(self._noted) else None
        return old if isinstance(old, list) and position < old[1] * _SPARSELY else [steps, position]

    def _due(self, after: str | list[int], position: int) -> int:
        """The steps that a scheduler would have made until then."""
        if after == "epoch":
            return self._epoch_of(position)
        return position if isinstance(after, str) else round(after[0] * position / after[1])

    def _guess(self, number: int, scheduler: LRScheduler, position: int) -> None:
        each = "step" if isinstance(scheduler, OneCycleLR | CyclicLR) else "epoch"
        self._reach(scheduler, self._due(each, position))
        if each == "epoch" and self._epoch_of(position) != position:
            self._guessed[number] = _Guess(position, _steps(scheduler))
        tell(
            f"{type(scheduler).__name__} goes on after {position:,} steps as one that is stepped after each {each}: this "
            "worker has no notes of how it was stepped."
        )

    def _check(self, number: int, position: int) -> None:
        """Whether a scheduler that was taken for one of epochs is one, which its steps since then say."""
        scheduler, guess = self._all[number], self._guessed[number]
        made = _steps(scheduler) - guess.steps
        if made == self._epoch_of(position) - self._epoch_of(guess.position):
            if made and position > guess.position + 1:
                del self._guessed[number]
            return
        del self._guessed[number]
        name = type(scheduler).__name__
        if made == position - guess.position:
            self._reach(scheduler, position)
            tell(f"{name} is stepped after each step, and goes on at step {position:,}.")
        else:
            tell(
                f"{name} is stepped irregularly, and goes on from its step {guess.steps:,}; its rate may be another one."
            )

    def _restore(self, scheduler: ReduceLROnPlateau, known: dict[str, Any] | None, position: int) -> None:
        if known is None or len(known["rates"]) != len(self._optimizer.param_groups):
            tell(
                f"ReduceLROnPlateau starts again after {position:,} steps, with the rate of the script's first step: the "
                "scores that it was given are gone."
            )
            return
        vars(scheduler).update(known["scores"])
        for group, rate in zip(self._optimizer.param_groups, known["rates"], strict=True):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        scheduler._last_lr = list(known["rates"])

    def _reach(self, scheduler: LRScheduler, count: int) -> None:
        """Steps until it has been stepped `count` times, or has ended."""
        setattr(self._optimizer, "_opt_called", True)  # noqa: B010  torch warns of a scheduler that steps first
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                while _steps(scheduler) < count:
                    scheduler.step()
            except ValueError:  # OneCycleLR, beyond its end; the script's next step says so
                return

    def _matching(self, noted: Noted | None) -> Iterator[dict[str, Any] | None]:
        """For each scheduler what was noted of it."""
        rest = list(noted or ())
        for scheduler in self._all:
            kind = type(scheduler).__name__
            yield next((rest.pop(at) for at, each in enumerate(rest) if each["kind"] == kind), None)

    def _present_rates(self) -> list[float]:
        return [float(group.get("lr", 1.0)) for group in self._optimizer.param_groups]

    def _read(self) -> Noted | None:
        """None: there is nothing to read."""
        try:
            found: Noted | None = json.loads(self._file.read_text()) if self._file else None
            return found
        except (OSError, ValueError):
            return None

    def _write(self) -> None:
        """Whole or not at all. Where the disk does not take it, the next process guesses and says so."""
        if self._file is None:
            return
        new = self._file.with_suffix(".new")
        try:
            make_private(self._file.parent)
            new.write_text(json.dumps(self._noted))
            os.replace(new, self._file)
        except OSError:
            self._file = None


def _found(optimizer: Optimizer) -> Iterator[LRScheduler]:
    """The schedulers over these parameter groups, but for those that others hold and step."""
    groups = optimizer.param_groups
    every = [
        one
        for one in gc.get_objects()
        if issubclass(type(one), LRScheduler) and getattr(vars(one).get("optimizer"), "param_groups", None) is groups
    ]
    parts = {
        id(part)
        for one in every
        for held in vars(one).values()
        for part in (held if isinstance(held, list | tuple) else (held,))
    }
    return (one for one in every if id(one) not in parts)


def _steps(scheduler: LRScheduler) -> int:
    """How often it was stepped."""
    if "last_epoch" in vars(scheduler):
        return int(scheduler.last_epoch)
    within: Any = next(iter(getattr(scheduler, "_schedulers", ())), None)  # of ChainedScheduler
    return 0 if within is None else _steps(within)
