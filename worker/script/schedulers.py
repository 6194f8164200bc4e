"""A script's schedulers, brought to where the run is in a worker that is started again.

Those of torch are noticed when they are made; others are named in `paceline.wrap`. Nobody tells Paceline when a script steps
one, so each worker notes that while it trains, in a small file that outlives it. By these notes a new process steps its own.
One whose steps take a score, or that is not torch's, gets its state back."""

import functools
import inspect
import itertools
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CyclicLR, LRScheduler, OneCycleLR

from paceline.base.private import make_private, write_private
from paceline.core.errors import ConfigError
from paceline.core.optimizers.groups import MOVING
from paceline.worker.script.tell import tell

_SPARSELY = 1.1
"""By what factor its position grows between two notes of a scheduler that is stepped irregularly."""
_MADE = WeakValueDictionary[int, LRScheduler]()
"""Torch's schedulers of this process, in the order in which they were made."""
_NUMBERS = itertools.count()
Noted = list[dict[str, Any]]
"""One for each scheduler: kind, and what it is stepped after: "epoch", "step", [its steps, at which position] or None; or how
its state looks."""


def notice() -> None:
    """Has each scheduler of torch remembered that is made from now on: neither torch nor an optimizer has a list of them."""

    def new(kind: type[LRScheduler], *_: Any, **__: Any) -> LRScheduler:
        one: LRScheduler = object.__new__(kind)
        _MADE[next(_NUMBERS)] = one
        return one

    setattr(LRScheduler, "__new__", staticmethod(new))  # noqa: B010  mypy refuses a plain assignment


class Schedulers:
    """Those of one optimizer that the script steps itself; parts of others have none. Not thread-safe."""

    def __init__(
        self, optimizer: Optimizer, file: Path | None, epoch_of: Callable[[int], int], named: Sequence[Any] = ()
    ) -> None:
        """`file`: outlives the process; `epoch_of`: the script's epoch, from 0, after that number of steps of the worker;
        `named`: by the script."""
        self._optimizer = optimizer
        self._file = file
        self._epoch_of = epoch_of
        self._named = named
        self._notices = True
        self._rates = self._present_rates()
        self._changed_before = False
        """Whether an earlier process's script has set the rate, without a scheduler."""
        self._all: list[Any] = []
        self._noted: Noted = []
        self._guessed: list[tuple[LRScheduler, int, int]] = []
        """Those that are taken for stepped after each epoch, the position where this process began, and their steps there."""

    def only_named(self) -> None:
        """Leaves the others to what steps them."""
        self._notices = False

    def go_on(self, position: int) -> None:
        """When this process joins, after `position` steps of the worker. A scheduler of torch that the script has brought
        somewhere itself stays there. ConfigError: a state can't be kept."""
        self._all = sorted(
            self._all_schedulers(), key=has_state
        )  # with a state come the rates that all of them have made
        before = self._read() if position else None
        for scheduler, known in zip(self._all, self._matching(before), strict=True):
            if has_state(scheduler):
                _check_state(scheduler)
                if position:
                    self._restore(scheduler, known, position)
            elif position and not _steps(scheduler):
                after = (known and known["after"]) or self._guess(scheduler, position)
                self._reach(scheduler, self._due(after, position))
        self._changed_before = not self._all and bool(before)

    def note(self, position: int) -> None:
        """After `position` steps: writes down how often each is stepped, or its state, where that is news."""
        self._check(position)
        if self._guessed:
            return
        found = [self._facts(*each, position) for each in enumerate(self._all)]
        if not self._all:
            found = self._without_any(position)
        if found != self._noted:
            self._noted = found
            self._write()

    def _all_schedulers(self) -> Iterator[Any]:
        """Those that the script has named, and torch's over these parameter groups, but for those that others of torch hold
        and step."""
        groups = self._optimizer.param_groups
        noticed = [one for one in _MADE.values() if getattr(vars(one).get("optimizer"), "param_groups", None) is groups]
        every = [*self._named, *(noticed if self._notices else ())]
        parts = {
            id(part)
            for one in every
            if isinstance(one, LRScheduler)
            for held in vars(one).values()
            for part in (held if isinstance(held, list | tuple) else (held,))
        }
        return iter({id(one): one for one in every if id(one) not in parts}.values())

    def _without_any(self, position: int) -> Noted:
        """What is noted where the script sets the rate itself; says once where it begins again."""
        if self._noted or self._present_rates() != self._rates:
            self._changed_before = False
            return [{"kind": "", "after": None}]
        if self._changed_before:
            self._changed_before = False
            tell(
                f"after {position:,} steps this worker begins with the rate of the script's first step: nothing says what sets "
                "it. If that is a scheduler, name it: paceline.wrap(optimizer, model, schedulers=[scheduler]); otherwise set "
                "the rate by the number that paceline.epochs gives."
            )
        return []

    def _facts(self, number: int, scheduler: Any, position: int) -> dict[str, Any]:
        kind = type(scheduler).__name__
        if has_state(scheduler):
            return {"kind": kind, "looks": repr((scheduler.state_dict(), self._options()))}
        return {"kind": kind, "after": self._after(number, scheduler, position)}

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

    def _guess(self, scheduler: LRScheduler, position: int) -> str:
        each = "step" if isinstance(scheduler, OneCycleLR | CyclicLR) else "epoch"
        if each == "epoch" and self._epoch_of(position) != position:
            self._guessed.append((scheduler, position, self._epoch_of(position)))
        tell(
            f"{type(scheduler).__name__} goes on after {position:,} steps as one that is stepped after each {each}: this "
            "worker has no notes of how it was stepped."
        )
        return each

    def _check(self, position: int) -> None:
        """Whether schedulers that were taken for those of epochs are, which their steps since then say."""
        for guess in [*self._guessed]:
            scheduler, began, steps = guess
            made, name = _steps(scheduler) - steps, type(scheduler).__name__
            fits = made == self._epoch_of(position) - self._epoch_of(began)
            if fits and not (made and position > began + 1):
                continue
            self._guessed.remove(guess)
            if not fits and made == position - began:
                self._reach(scheduler, position)
                tell(f"{name} is stepped after each step, and goes on at step {position:,}.")
            elif not fits:
                tell(
                    f"{name} is stepped irregularly, and goes on from its step {steps:,}; its rate may be another one."
                )

    def _restore(self, scheduler: Any, known: dict[str, Any] | None, position: int) -> None:
        if known is None or len(known["options"]) != len(self._optimizer.param_groups):
            tell(
                f"{type(scheduler).__name__} starts again after {position:,} steps, with the rate of the script's first step: "
                "this worker has no notes of its state."
            )
            return
        scheduler.load_state_dict(known["state"])
        for group, options in zip(self._optimizer.param_groups, known["options"], strict=True):
            for name, value in options.items():
                before = group[name]
                group[name] = before.fill_(value) if isinstance(before, Tensor) else type(before)(value)

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
            part = "state" if has_state(scheduler) else "after"
            yield next((rest.pop(at) for at, each in enumerate(rest) if each["kind"] == kind and part in each), None)

    def _present_rates(self) -> list[float]:
        return [float(group.get("lr", 1.0)) for group in self._optimizer.param_groups]

    def _options(self) -> list[dict[str, Any]]:
        """What schedulers may have moved, of each group."""
        groups = self._optimizer.param_groups
        return [{name: group[name] for name in ("lr", *MOVING) if name in group} for group in groups]

    def _read(self) -> Noted | None:
        """None: there is nothing to read."""
        try:
            found: Noted | None = json.loads(self._file.read_text(), object_hook=_whole) if self._file else None
            return found
        except (OSError, ValueError):
            return None

    def _write(self) -> None:
        """Whole or not at all. Where the disk does not take it, the next process guesses and says so."""
        if self._file is None:
            return
        states = [
            {"state": _plain(one.state_dict()), "options": _plain(self._options())} if has_state(one) else {}
            for one in self._all
        ]
        notes = [{**facts, **state} for facts, state in zip(self._noted, states or [{}], strict=True)]
        try:
            make_private(self._file.parent)
            write_private(self._file, json.dumps(notes).encode())
        except OSError:
            self._file = None


def has_state(scheduler: Any) -> bool:
    """Whether its state is kept, since its steps can't be made again: they take a score, or it is not torch's."""
    kind: Any = type(scheduler)
    return not issubclass(kind, LRScheduler) or _needs_score(kind)


@functools.cache
def _needs_score(kind: Any) -> bool:
    _, *options = inspect.signature(kind.step).parameters.values()
    return any(one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD for one in options)


def _check_state(scheduler: Any) -> None:
    """ConfigError where its state can't be kept."""
    try:
        json.dumps(_plain(scheduler.state_dict()))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"The state_dict of {type(scheduler).__name__} can't be kept for a worker that is started again: {error}. It may "
            "hold numbers, texts, lists and dicts of these."
        ) from error


def _plain(value: Any) -> Any:
    """As JSON takes it; a dict's keys may be numbers."""
    if isinstance(value, Mapping):
        return {"": [[_plain(key), _plain(each)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    return value.tolist() if hasattr(value, "tolist") else value  # of torch, or of numpy


def _whole(found: dict[str, Any]) -> dict[Any, Any]:
    """A dict that `_plain` has taken apart."""
    return dict(found[""]) if "" in found else found


def _steps(scheduler: LRScheduler) -> int:
    """How often it was stepped."""
    if "last_epoch" in vars(scheduler):
        return int(scheduler.last_epoch)
    within: Any = next(iter(getattr(scheduler, "_schedulers", ())), None)  # of ChainedScheduler
    return 0 if within is None else _steps(within)
