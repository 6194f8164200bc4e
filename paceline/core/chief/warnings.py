"""Warns of what goes wrong in a run that continues, as it happens, with advice."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from paceline.core.chief.advice import (
    Advice,
    fewer_drops,
    finite_gradients,
    is_fitted,
    lower_rate,
    other_cap,
    other_labels,
    other_mix,
    other_rate,
    same_bits,
)
from paceline.core.linear.stopping import SETTLING
from paceline.core.policies.policy import Policy
from paceline.core.settings.config import Config
from paceline.core.values import worker_order

ROW = 3
"""Steps in a row of one worker that can't be an accident."""
_ROW_FP16 = 20
"""The same for fp16, whose first steps search for a loss scale (worker/training/device.py)."""
LASTING = 30
"""Bad steps in a row, over all members, that don't pass: without a finite gradient, no mini-batch will have one."""
_DROPPED = 100
"""Pushes of one worker in a row that a policy may drop."""
_CAPPED = 0.5
"""Share of a worker's last pushes above push_norm_cap from which it is warned of (ratio)."""
_ABOVE = 1.1
"""The loss has risen if it exceeds its start by this factor."""
_FEWEST = 50
"""Steps of a worker before its accuracy is judged, except for the final one."""
_UNEVEN = 0.8
"""Share of the largest class beyond which accuracy starts at that share; then only the final one is judged (ratio)."""
_MOVED = 0.01
"""Relative change of the loss below which it has hardly moved (ratio)."""


class Kind(StrEnum):
    """What was seen."""

    NOT_FINITE = "not_finite"
    EXPLODING = "exploding"
    LOSS = "loss_above_start"
    MAJORITY = "majority_class"
    DROPPED = "dropped"


IDLE = "idle_policy"
"""Seen in the settings alone, so it is no alert."""
ROLLED_BACK = "rolled_back"
"""Something was done about it, so it is no alert. The second time is 'rolled_back_2', and so on."""


OTHER_BITS = "other_bits"
"""A worker's figure, and the warning of it: it trains on weights of different rounds. Training is sound, so it is no alert."""
CAPPED = "capped"
"""Pushes of a worker are scaled down most of the time. The model is protected, so it is no alert."""


@dataclass(slots=True)
class RunWarning:
    """One problem of a run; a run has at most one of each kind."""

    kind: str
    said: str
    """What was seen, in words, without a full stop."""
    advice: str
    """What to try, in words, without a full stop."""
    settings: list[str]
    """The first thing to try as 'key=value', as after --set; empty where no setting helps."""
    epoch: float
    """When it was first seen (epochs)."""
    passed: bool = False
    """Whether it has since disappeared."""

    def __str__(self) -> str:
        return f"warning: {self.said}. Try {self.advice}."


class Warnings:
    """Turns the reports of workers and the evaluator into warnings. Not thread-safe."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._row = _ROW_FP16 if config.precision == "fp16" else ROW
        self.large_inputs = ""
        """Columns of the inputs with numbers that no network learns from, as a worker has last said them."""
        self._found: dict[str, RunWarning] = {}
        self._baseline: dict[str, float] = {}
        """The first weights' train_loss, and each split's SPLIT_majority (ratio) and SPLIT_examples."""
        self._rows: dict[str, dict[str, float]] = {}
        """Each worker's last report of its steps in a row."""
        self._often_capped: list[str] = []
        """The workers that the last look found above push_norm_cap most of the time."""
        self._anew: dict[str, int] = {}
        """The clock of each worker that last took steps on weights which have been given up."""

    @property
    def listed(self) -> list[RunWarning]:
        """Oldest first."""
        return list(self._found.values())

    def standing(self, kind: str) -> bool:
        """Whether this was seen and has not passed."""
        return kind in self._found and not self._found[kind].passed

    # workers
    def heard(
        self,
        worker: str,
        figures: Mapping[str, float],
        members: Iterable[str],
        epoch: float,
        clock: float = math.inf,
    ) -> None:
        """A heartbeat of a worker at this clock. Its figures NAME and NAME_longest count steps in a row: `unusable` without a
        finite gradient, `exploding` with a loss or gradient a thousand times its first, `dropped` by the policy."""
        most = max(0.0, clock - self._anew[worker]) if worker in self._anew else math.inf
        rows = {name: value for name, value in figures.items() if name.endswith(("_row", "_longest"))}
        self._rows[worker] = rows | {
            name: min(value, most) for name, value in rows.items() if name in ("unusable_row", "exploding_row")
        }
        here = [self._rows.get(each, {}) for each in members]
        if not here:  # all have left; the last warnings remain
            return
        longest = int(figures.get("unusable_longest", 0))
        if longest >= self._row:
            said = f"{worker}: {longest} steps in a row had no finite gradient (epoch {epoch:.1f})"
            self._see(Kind.NOT_FINITE, said, finite_gradients(self._config, self.large_inputs), epoch)
            self._found[Kind.NOT_FINITE].passed = _over(here, "unusable_row")
        if figures.get("exploding_longest", 0) >= ROW:
            first, now = figures.get("first_loss", math.nan), figures.get("exploding_loss", math.nan)
            rose = f": its loss rose from {first:.4g} to {now:.4g}" if math.isfinite(first + now) else ""
            said = f"{worker}: training explodes{rose} (epoch {epoch:.1f})"
            self._see(Kind.EXPLODING, said, lower_rate(self._config, self.large_inputs, limited=True), epoch)
            self._found[Kind.EXPLODING].passed = _over(here, "exploding_row") and not self.standing(Kind.NOT_FINITE)
        if figures.get("dropped_longest", 0) >= _DROPPED:
            said = (
                f"{worker}: its last {_DROPPED} pushes were all dropped, so it computes for nothing (epoch {epoch:.1f})"
            )
            self._see(Kind.DROPPED, said, fewer_drops(self._config), epoch)
            self._found[Kind.DROPPED].passed = _over(here, "dropped_row")
        if figures.get(OTHER_BITS):
            said = (
                f"{worker}: no snapshots of the servers have the same rounds of it, so it went on with the newest weights "
                f"(epoch {epoch:.1f}); the model is sound, but not bit for bit that of an undisturbed run"
            )
            self._see(OTHER_BITS, said, same_bits(self._config), epoch)

    def hopeless(self, members: Iterable[str]) -> str:
        """Why the run can no longer learn: no member's mini-batches have a finite gradient, so the weights no longer change;
        empty while it can."""
        if not (steps := self._lasting(members, "unusable_row")):
            return ""
        return f"no worker has a finite gradient any more ({steps:.0f} steps in a row), so nothing can be learned"

    def diverged(self, members: Collection[str]) -> str:
        """What lasts on every member: steps without a finite gradient or, where `divergence.losses` is set, that explode;
        empty if nothing does."""
        bad = ("unusable_row", "exploding_row") if self._config.divergence.losses else ("unusable_row",)
        if not (steps := self._lasting(members, *bad)):
            return ""
        is_finite = not all(self._rows[member].get("unusable_row", 0) for member in members)
        what = "the loss explodes" if is_finite else "no worker has a finite gradient any more"
        return f"{what} ({steps:.0f} bad steps in a row)"

    def is_well(self, members: Iterable[str]) -> bool:
        """Whether no member's last step was bad, or exploded."""
        return not any(self._in_a_row(member, "unusable_row", "exploding_row") for member in members)

    def _lasting(self, members: Iterable[str], *bad: str) -> float:
        """Bad steps in a row of all members together; 0 where they may be an accident."""
        rows = [self._in_a_row(member, *bad) for member in members]
        return sum(rows) if rows and min(rows) >= self._row and sum(rows) >= LASTING else 0

    def _in_a_row(self, member: str, *bad: str) -> float:
        rows = self._rows.get(member, {})
        return sum(rows.get(name, 0) for name in bad)

    def rolled_back(self, said: str, clocks: Mapping[str, int], number: int, epoch: float) -> None:
        """The run goes back for the `number`th time. Steps up to these `clocks` don't count any more."""
        self._anew |= clocks
        for member in clocks:
            if member in self._rows:
                self._rows[member] |= {"unusable_row": 0, "exploding_row": 0}
        kind = ROLLED_BACK if number == 1 else f"{ROLLED_BACK}_{number}"
        self._see(kind, said, lower_rate(self._config, self.large_inputs, limited=True), epoch)

    def capped(self, shares: Mapping[str, float], members: Collection[str], epoch: float) -> None:
        """The share of each worker's last pushes that some server scaled down to push_norm_cap (ratio)."""
        often = sorted((each for each in members if shares.get(each, 0.0) > _CAPPED), key=worker_order)
        if not often:
            self._pass(CAPPED)
        elif not self.standing(CAPPED) or self._often_capped != often:
            who = "all workers" if 1 < len(members) == len(often) else " and ".join(often)
            said = (
                f"{who}: most of the last pushes had a norm above push_norm_cap ({self._config.push_norm_cap:g}) and were "
                f"scaled down to it (epoch {epoch:.1f})"
            )
            self._see(CAPPED, said, other_cap(self._config, often, len(members) - len(often)), epoch, renewed=True)
        self._often_capped = often

    def trains(self, policy: Policy, members: int, epoch: float) -> None:
        """Under this policy, with this many members."""
        if said := policy.idles(members):
            self._see(IDLE, said, other_mix(), epoch, renewed=True)
        else:
            self._pass(IDLE)

    # the evaluator
    def begins_with(self, baseline: Mapping[str, float]) -> None:
        """Sets what the scores are compared with; see `_baseline`."""
        self._baseline |= baseline

    def scored(self, metrics: Mapping[str, float], epoch: int, steps: int, final: bool) -> None:
        """A version was scored after `epoch` whole epochs, of which each takes a worker `steps` steps."""
        if epoch >= 1 or final:
            self._judge_loss(metrics, epoch, final)
        if epoch >= 1:
            self._judge_accuracy(metrics, epoch, steps, final)

    def _judge_loss(self, metrics: Mapping[str, float], epoch: int, final: bool) -> None:
        """Judges the lowest loss of the scored models. It may rise before the first whole epoch ends, and with a linear
        model's fitted steps until these are short."""
        losses = [metrics[f"{kind}train_loss"] for kind in ("", "mean_") if f"{kind}train_loss" in metrics]
        start = self._baseline.get("train_loss", math.nan)
        if not losses:
            return
        if not any(map(math.isfinite, losses)):
            said = f"the loss is {losses[0]:g} after epoch {epoch}, no finite number"
            self._see(Kind.NOT_FINITE, said, finite_gradients(self._config, self.large_inputs), epoch)
            return
        loss = min(filter(math.isfinite, losses))
        is_early = epoch < 1 or (self._is_unsettled(epoch) and not final)
        if not is_early and loss > start + (_ABOVE - 1) * abs(start):
            said = f"after epoch {epoch} the loss is {loss:.4g}, above the {start:.4g} that it began with"
            self._see(Kind.LOSS, said, lower_rate(self._config, self.large_inputs), epoch, renewed=True)
        elif loss <= start + (_ABOVE - 1) * abs(start):
            self._pass(Kind.LOSS, Kind.EXPLODING)

    def _judge_accuracy(self, metrics: Mapping[str, float], epoch: int, steps: int, final: bool) -> None:
        """Requires that both the training data and the held-out data are no better, so that luck does not decide."""
        shown = next((split for split in ("validation", "test") if f"{split}_majority" in self._baseline), "train")
        if not all(self._is_at_majority(metrics, split) for split in ("train", shown)):
            self._pass(Kind.MAJORITY)
            return
        majority = self._baseline[f"{shown}_majority"]
        if majority == 1 == self._baseline["train_majority"]:
            said = f"all labels of the training and the {shown} data are of one class, so there is nothing to learn"
            self._see(Kind.MAJORITY, said, other_labels(), epoch)
            return
        is_early = steps < _FEWEST or epoch <= self._config.schedule.warmup_epochs or majority > _UNEVEN
        if (is_early or self._is_unsettled(epoch)) and not final:
            return
        loss, start = metrics.get("train_loss", math.nan), self._baseline.get("train_loss", math.nan)
        has_moved = not abs(loss - start) <= _MOVED * abs(start)
        said = (
            f"after epoch {epoch} {shown} accuracy is {_best(metrics, shown):.4f}, and always naming the largest class gives "
            f"{majority:.4f}: nothing is learned"
        )
        self._see(Kind.MAJORITY, said, other_rate(self._config, has_moved, self.large_inputs), epoch, renewed=True)

    def _is_unsettled(self, epoch: int) -> bool:
        """Whether a linear model's fitted steps are still so long that its scores fluctuate."""
        return is_fitted(self._config) and epoch < SETTLING * self._config.epochs

    def _is_at_majority(self, metrics: Mapping[str, float], split: str) -> bool:
        """Whether no scored model beats naming the largest class by more than luck."""
        majority, accuracy = self._baseline.get(f"{split}_majority"), _best(metrics, split)
        if majority is None or math.isnan(accuracy):
            return False
        recall, precision = metrics.get(f"{split}_recall", 0.0), metrics.get(f"{split}_precision", 0.0)
        positives, examples = min(majority, 1 - majority), self._baseline.get(f"{split}_examples", 1.0)
        more = 2 * positives
        if (
            self._config.svm.class_weights is not None and recall > 0 and precision > 0
        ):  # the training does not aim at accuracy
            more = positives + _luck(positives, examples * positives * recall / precision)
        if recall > 0 and precision > more:
            return False  # a rare class is found, at the cost of accuracy
        return accuracy <= majority + min(_luck(majority, examples), (1 - majority) / 10)

    # snapshots
    def state(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        return {
            "found": [asdict(each) for each in self._found.values()],
            "baseline": self._baseline,
            "anew": self._anew,
            "large_inputs": self.large_inputs,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`."""
        self._found = {each["kind"]: RunWarning(**each) for each in state.get("found", [])}
        self._baseline = dict(state.get("baseline", {}))
        self._anew = dict(state.get("anew", {}))
        self.large_inputs = state.get("large_inputs", "")

    def _see(self, kind: str, said: str, advice: Advice, epoch: float, renewed: bool = False) -> None:
        """Records a warning; `renewed`: a later one replaces it."""
        seen = self._found.get(kind)
        if seen is None or renewed:
            first = round(epoch, 2) if seen is None else seen.epoch
            self._found[kind] = RunWarning(kind, said, advice.text, list(advice.settings), first)
        else:
            seen.passed = False

    def _pass(self, *kinds: str) -> None:
        for kind in kinds:
            if kind in self._found:
                self._found[kind].passed = True


def _luck(share: float, examples: float) -> float:
    """How far a share measured on this many examples may be off by chance: two standard deviations."""
    return 2 * math.sqrt(share * (1 - share) / max(1.0, examples))


def _over(members: Sequence[Mapping[str, float]], row: str) -> bool:
    """Whether no member has the problem any more."""
    return not any(rows.get(row, 0) for rows in members)


def _best(metrics: Mapping[str, float], split: str) -> float:
    """The highest accuracy of the models that are scored; NaN where there is none."""
    found = [
        metrics[f"{kind}{split}_accuracy"] for kind in ("", "mean_", "vote_") if f"{kind}{split}_accuracy" in metrics
    ]
    return max(found, default=math.nan)
