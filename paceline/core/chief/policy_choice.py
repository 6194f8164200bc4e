"""Chooses a policy while a run trains, for one that has alternatives (`auto`): the tightest that loses little by waiting."""

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from paceline.core.chief.straggler import slow_workers
from paceline.core.chief.worker_time import LEAST, OWN, SPENT, WorkerTime, middle, share_of
from paceline.core.chief.workers import WorkerPhase, WorkerReport
from paceline.core.errors import ConfigError
from paceline.core.policies.policy import Policy, Times, alternatives_of, build_policy
from paceline.core.settings.config import Config, Options

_ENOUGH = 3
"""Steps of each worker after its first one below which its times say nothing: a very slow one should show soon."""
_STANDS = 5.0
"""How many times as long as the middle worker's step a mini-batch takes that shows a slow worker before it is over."""
_RECENT = 10.0
"""Training time that is looked at, if enough steps lie in it (seconds)."""
_WORTH, _LIKE = 1.15, 1.1
"""How many times as fast another policy must be to replace the present one; up to which factor two are alike, so that the
tighter one is better."""
_GAINED, _LONGER = 1.05, 1.05
"""How many times as fast a looser policy must have made the run after all, if each step takes that many times as long now."""
_LEAST_TRUST = 0.5
"""Of what is foretold of a policy at least, however wrong it was (ratio)."""
_COST = 1.0
"""Training time that a change must save besides two steps of the slowest worker; meanwhile all stand (seconds)."""
_EVERY = 1.0
"""Between two looks (seconds)."""
_LATE = 0.02
"""What an exchange takes at least over a slow link (seconds)."""
_PAUSE, _LONGEST = 10.0, 320.0
"""Training time from the first change to the next, and at most; it doubles with each (seconds)."""
_CLOCKS, _DRAWS = (50, 400), 20_000
"""Clocks of each worker by which a policy is judged, at least and at most, and of all workers if that leaves as many."""
_ABSURD = 1e15
"""Figures of a worker that is not listened to."""

Checked = Callable[[Options], Options]
"""A policy with its options checked; ConfigError where it can't train this run."""


@dataclass(frozen=True, slots=True)
class _Bet:
    """A looser policy that has yet to prove itself."""

    before: Options
    rate: float
    """Mini-batches of all workers a second before it."""
    gain: float
    """How many times as fast it was to be."""
    step: float
    """What the middle worker's computation of a mini-batch took before it (seconds)."""


class PolicyChoice:
    """Fed with heartbeats. It foretells what the times of the workers' steps would give under another policy, and trusts less
    what has turned out otherwise. Not thread-safe."""

    def __init__(self, config: Config, checked: Checked) -> None:
        self.said: list[str] = []
        """What was chosen and why, in sentences, oldest first."""
        self._config = config
        self._checked = checked
        self._reports: dict[str, deque[WorkerReport]] = {}
        self._members: object = None
        self._since = self._looked = math.inf
        """When the present policy began with the present members; inf: it has not. When it was judged last."""
        self._changes = 0
        self.is_on: bool
        """Whether anything is chosen."""
        self._bet: _Bet | None
        self._advised: Options | None
        self._trust: dict[Options, float] = {}
        """What policies gave by what was foretold of them (ratio), where that was less."""
        self.follow(config.policy)

    def follow(self, policy: Options) -> None:
        """A person has chosen this policy. It has alternatives, or nothing is chosen any more."""
        self.home = policy
        self._bet = self._advised = None
        self._known: list[Options] = []
        self._refused: dict[Options, str] = {}
        """Policies that the run's other settings refuse, and why."""
        self.is_on = bool(build_policy(policy).alternatives)

    def heard(self, worker: str, report: WorkerReport) -> None:
        """A member reports. Its first step, in which a device warms up or a network is compiled, says nothing."""
        if self.is_on and report.figures.get("steps", 0) >= 1:
            self._reports.setdefault(worker, deque()).append(report)

    def choose(self, present: Options, members: Collection[object], left: float, now: float) -> Options | None:
        """What is to train instead of `present`; None where nothing is worth a change, or too little is known. `members`:
        where they are others, all begins again; `left`: training time that is left (seconds)."""
        if members != self._members or self._since == math.inf:
            self._members = members
            self._since = self._looked = now
            self._reports.clear()
        pause = min(_LONGEST, _PAUSE * 2 ** (self._changes - 1)) if self._changes else LEAST
        if now - self._since < pause or now - self._looked < _EVERY:
            return None
        self._looked = now
        times, enough = self._times(now), max(2, len(members))
        if len(times) < enough and build_policy(present).rounds:
            times = self._times_so_far()
        if len(times) < enough:
            return None
        return self._lost_bet(present, times) or self._best(present, times, left)

    def wait(self) -> None:
        """The run is not steady: all begins again once it is."""
        self._since = math.inf

    def _times(self, now: float) -> list[WorkerTime]:
        """Where the time of each worker went that has made enough steps lately."""
        found = []
        for worker, reports in self._reports.items():
            last = reports[-1].figures
            while (
                len(reports) > 2
                and reports[1].seen <= now - _RECENT
                and last["steps"] - reports[1].figures["steps"] >= _ENOUGH
            ):
                reports.popleft()
            spent = _spent(last, reports[0].figures)
            if spent["steps"] >= _ENOUGH and _is_sound(spent):
                found.append(WorkerTime(name=worker, has_link=False, **spent))
        return found

    def _times_so_far(self) -> list[WorkerTime]:
        """A step of each worker in lock-step, where some compute a mini-batch for so long that more steps need not be waited
        for: theirs have lasted as long as that, and the others have waited for the rest of it."""
        newest = {worker: reports[-1] for worker, reports in self._reports.items()}
        totals = {worker: spent for worker, report in newest.items() if _is_sound(spent := _spent(report.figures))}
        steps = {worker: {part: spent[part] / spent["steps"] for part in OWN} for worker, spent in totals.items()}
        usual = middle(sum(step.values()) for step in steps.values())

        stand = {
            worker: report.phase_seconds
            for worker, report in newest.items()
            if report.phase in (WorkerPhase.DATA, WorkerPhase.COMPUTE)
            and _STANDS * usual < report.phase_seconds < _ABSURD
        }
        if not stand or len(steps) < len(newest):
            return []
        steps |= {worker: {"compute": seconds} for worker, seconds in stand.items()}
        longest = max(sum(step.values()) for step in steps.values())
        return [
            WorkerTime(worker, 1.0, wait=longest - sum(step.values()), has_link=False, **step)
            for worker, step in steps.items()
        ]

    def _lost_bet(self, present: Options, times: Sequence[WorkerTime]) -> Options | None:
        """The policy before the present one, where that one only lets workers slow each other down: they share a machine."""
        if self._bet is None:
            return None
        bet, policy = self._bet, build_policy(present)
        self._bet = None
        gain, longer = _rate(policy, times) / bet.rate, _step(policy, times) / bet.step
        if gain >= _GAINED or longer < _LONGER:
            return None
        self._trust[present] = min(1.0, max(_LEAST_TRUST, gain / bet.gain))
        why = f"{_named(present)} has made the run {gain:.2f} times as fast, and each step takes {longer:.1f} times as long"
        return self._change(bet.before, why)

    def _best(self, present: Options, times: Sequence[WorkerTime], left: float) -> Options | None:
        """The tightest policy that is about as fast as the fastest one, if it is another and worth a change."""
        self._known = self._known or self._candidates()
        order = [each for each in self._known if each == present or _suits(build_policy(each), times)]
        if present not in order:
            return None
        foretold = {each: self._foretold(each, present, times) for each in order}
        rates = {each: found * self._trust.get(each, 1.0) for each, found in foretold.items()}
        rates[present] = rate = _rate(build_policy(present), times)
        best = max(rates.values())
        self._say_refused(best, present, times, left)
        wanted = next(each for each in order if _LIKE * rates[each] >= best)
        is_tighter = order.index(wanted) < order.index(present)
        if wanted == present or not (is_tighter or best > _WORTH * rate):
            return None
        gain = rates[wanted] / rate
        if not _saves(left, gain, times):
            return None
        if is_tighter:
            return self._change(wanted, f"it is about as fast as {_named(present)} now")
        why = _seen(build_policy(wanted), build_policy(present), times)
        gives = f"{why}; it trains about {gain:.1f} times as fast, and saves about {left * (1 - 1 / gain):,.0f} s"
        if build_policy(self.home).stays:
            self._advise(wanted, gives)
            return None
        self._bet = _Bet(present, rate, gain, _step(build_policy(present), times))
        self._trust[present] = min(1.0, max(_LEAST_TRUST, rate / foretold[present]))
        return self._change(wanted, gives)

    def _candidates(self) -> list[Options]:
        """The policies that may train this run, the tightest first. Where last clocks are named in advance, own steps
        would make the run longer."""
        is_named = self._config.budget == "per_worker" and not self._config.is_script
        fit = [self.home]
        for each in alternatives_of(self.home):
            try:
                checked = self._checked(each)
            except ConfigError as error:
                self._refused[each] = str(error).partition("\n")[0]
                continue
            if not is_named or build_policy(checked).most_steps == 1:
                fit.append(checked)
        return fit

    def _say_refused(self, best: float, present: Options, times: Sequence[WorkerTime], left: float) -> None:
        """Says once which policy that can't train this run would be clearly faster than all that can. `best`: mini-batches of
        all workers a second of the fastest of these."""
        gains = {
            each: self._foretold(each, present, times) / best
            for each in self._refused
            if _suits(build_policy(each), times)
        }
        fastest = max(gains, key=gains.__getitem__, default=None)
        if fastest is None or gains[fastest] <= _WORTH or not _saves(left, gains[fastest], times):
            return
        faster = f"{_named(fastest)} would train about {gains[fastest]:.1f} times as fast"
        self._say(f"{faster}, but the run's other settings refuse it: {self._refused[fastest]}")
        self._refused.clear()

    def _change(self, policy: Options, why: str) -> Options:
        self._changes += 1
        self._since = math.inf
        self._say(f"{'back ' if policy == self.home else ''}to {_named(policy)}: {why}")
        return policy

    def _advise(self, policy: Options, why: str) -> None:
        """Says once what would be better."""
        if policy != self._advised:
            self._advised = policy
            self._say(f"{_named(policy)} would be better (paceline set RUN policy={_named(policy)}): {why}")

    def _say(self, sentence: str) -> None:
        self.said.append(f"policy {self.home.name}: {sentence.rstrip('.')}.")

    def _foretold(self, policy: Options, present: Options, times: Sequence[WorkerTime]) -> float:
        """Mini-batches of all workers a second under another policy: their steps as random draws with the same mean and
        spread. Where each has its own budget, the run is as long as the slowest takes."""
        other, steps = build_policy(policy), build_policy(present).most_steps
        generator, longer = np.random.default_rng(0), other.most_steps / steps
        count = int(np.clip(_DRAWS // len(times), *_CLOCKS))
        clocks: Times = np.empty((count, len(times)))
        for column, each in enumerate(times):
            variance = longer * (each.squares / each.steps - each.each(*OWN) ** 2)
            mean = longer * each.each("compute", "data") + each.each("exchange")
            shape = mean**2 / max(variance, 1e-6 * mean**2)
            clocks[:, column] = generator.gamma(shape, mean / shape, count)
        pushes = other.throughput(clocks)
        if self._config.budget == "per_worker":
            pushes = min(pushes, len(times) / float(clocks.mean(axis=0).max()))
        return pushes * other.most_steps

    # snapshots
    def state(self) -> dict[str, Any]:
        """The state as plain JSON values; what it has seen of the workers begins again."""
        return {"choice": {"home": self.home.model_dump(), "said": self.said, "changes": self._changes}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`."""
        if "choice" in state:
            found = state["choice"]
            self.follow(Options(**found["home"]))
            self.said, self._changes = list(found["said"]), found["changes"]


def _spent(last: Mapping[str, float], first: Mapping[str, float] = MappingProxyType({})) -> dict[str, float]:
    """What a worker has spent between two reports of its figures, by the parts of its time."""
    return {part: sum(last.get(name, 0.0) - first.get(name, 0.0) for name in SPENT[part]) for part in SPENT}


def _is_sound(spent: Mapping[str, float]) -> bool:
    """Whether a worker's figures can be true."""
    return spent["compute"] + spent["data"] > 0 and all(0 <= each < _ABSURD for each in spent.values())


def _rate(policy: Policy, times: Sequence[WorkerTime]) -> float:
    """Mini-batches of all workers a second, as measured."""
    return sum(policy.most_steps * each.steps / each.total for each in times)


def _step(policy: Policy, times: Sequence[WorkerTime]) -> float:
    """What the middle worker's computation of a mini-batch takes (seconds)."""
    return middle(each.each("compute", "data") for each in times) / policy.most_steps


def _saves(left: float, gain: float, times: Sequence[WorkerTime]) -> bool:
    """Whether to train `gain` times as fast is worth a change, with so much training time left (seconds)."""
    return left * abs(1 - 1 / gain) >= _COST + 2 * max(each.each(*OWN) for each in times)


def _suits(policy: Policy, times: Sequence[WorkerTime]) -> bool:
    """Rare exchanges suit a link that is slow for all, not a small model whose steps are short."""
    return policy.most_steps == 1 or middle(each.each("exchange") for each in times) >= _LATE


def _seen(wanted: Policy, present: Policy, times: Sequence[WorkerTime]) -> str:
    """What speaks for a change, in words."""
    steps = {each.name: each.each(*OWN) for each in times}
    slow, usual = slow_workers(steps), middle(steps.values())
    if wanted.most_steps > present.most_steps:
        return f"pushes and pulls take {share_of(times, 'exchange'):.0%} of the workers' time"
    if slow:
        worst = max(steps[name] for name in slow) / usual
        return f"{' and '.join(slow)} take{'s' * (len(slow) == 1)} up to {worst:.1f} times as long for a step as the others"
    return f"{share_of(times, 'wait'):.0%} of the workers' time goes into waiting for each other, though none is slow for good"


def _named(policy: Options) -> str:
    """As on the command line; what it begins with is lock-step."""
    built = build_policy(policy)
    value = policy.options.get(built.shorthand or "")
    return "lock-step" if built.alternatives else policy.name if value is None else f"{policy.name}:{value}"
