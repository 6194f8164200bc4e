"""What policy auto makes of workers that are equal, slow, slow at random or far away, and of what does not help."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from paceline.core.chief.run import Run
from paceline.core.chief.workers import WorkerReport
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Times, build_policy, from_shorthand
from paceline.core.settings.config import Config, Options

EQUAL = (0.1, 0.1, 0.1, 0.1)
FACTS = (1000, 10, "digest")


@dataclass
class Cluster:
    """Four workers in virtual time, whose heartbeats say what they would under the policy in force."""

    run: Run
    steps: tuple[float, ...] = EQUAL
    """Mean times to compute a mini-batch (seconds)."""
    spread: float = 0.005
    """Of these (standard deviation)."""
    exchange: float = 0.01
    busy: float = np.inf
    """Mini-batches a second that the workers' common machine can do."""
    now: float = 0.0
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    trained: list[str] = field(default_factory=list)
    """Policies in the order in which they came."""

    def pass_time(self, seconds: float) -> list[str]:
        """Lets time pass; returns the policies that came since then."""
        before = len(self.trained)
        for tick in range(round(seconds / 0.25)):
            self.now += 0.25
            if tick % 8 == 0:
                self._beat(2.0)
            policy = self.run.choose_policy(Clocks, self.now)
            if policy is not None:
                self.trained.append(policy.name)
                self.run.switched()
        return self.trained[before:]

    def _beat(self, passed: float) -> None:
        policy, clocks = build_policy(self.run.policy), self._clocks()
        pushes = min(policy.throughput(clocks), self.busy / policy.most_steps)
        own = clocks.mean(axis=0)
        shares = np.full(len(own), 1 / len(own)) if policy.rounds or policy.bounds_lead else (1 / own) / (1 / own).sum()
        for place, took in enumerate(own):
            steps = passed * pushes * shares[place]
            longer = passed / steps if self.busy < np.inf and not policy.rounds else took  # it shares its machine
            spent = self.figures.setdefault(f"worker-{place}", {})
            for name, value in {
                "steps": steps,
                "compute_seconds": steps * (longer - self.exchange),
                "exchange_seconds": steps * self.exchange,
                "wait_seconds": max(0.0, passed - steps * longer),
                "own_squares": steps * (longer**2 + np.var(clocks[:, place])),
            }.items():
                spent[name] = spent.get(name, 0.0) + value
            self.run.beat(f"worker-{place}", 1, WorkerReport(1, "compute", 0.1, dict(spent), self.now), self.now)

    def _clocks(self) -> Times:
        most, draws = build_policy(self.run.policy).most_steps, np.random.default_rng(1)
        columns = []
        for step in self.steps:
            variance = most * self.spread**2
            mean = most * step
            columns.append(draws.gamma(mean**2 / variance, variance / mean, 2000) + self.exchange)
        return np.stack(columns, axis=1)


def cluster(policy: str = "auto", done: int = 1, **facts: Any) -> Cluster:
    """`facts`: settings of the run, and fields of Cluster. `done`: examples that have been trained."""
    settings = {key: facts.pop(key) for key in list(facts) if key in Config.model_fields}
    run = Run(Config(**({"workers": 4, "epochs": 1000, "policy": Options(**from_shorthand(policy))} | settings)))
    run.ready(0.0)
    for place in range(4):
        incarnation = run.join(f"worker-{place}", False, *FACTS, 0.0)
        run.seat(f"worker-{place}", incarnation, 0, Clocks, 0.0)
    run.budget.examples = done
    return Cluster(run, **facts)


@pytest.mark.parametrize(
    ("facts", "policies"),
    [
        ({}, []),
        ({"steps": (0.001,) * 4, "spread": 0.0001, "exchange": 0.004}, []),
        ({"spread": 0.03}, ["ssp"]),
        ({"steps": (0.1, 0.1, 0.1, 1.0)}, ["kbuffered"]),
        ({"steps": (0.1, 0.2, 0.4, 0.8)}, ["kbuffered"]),
        ({"exchange": 0.8}, ["local_sgd"]),
        ({"exchange": 0.8, "budget": "per_worker"}, []),
        ({"steps": (0.1, 0.1, 0.1, 1.0), "budget": "per_worker"}, []),
        ({"steps": (0.1, 0.1, 0.1, 1.0), "done": 999_900}, []),
    ],
    ids=[
        "equal",
        "short steps",
        "random",
        "one slow",
        "unequal",
        "slow link",
        "link, own budgets",
        "own budgets",
        "end",
    ],
)
def test_the_tightest_policy_takes_over_that_is_as_fast_as_the_fastest(facts: dict[str, Any], policies: list[str]):
    assert cluster(**facts).pass_time(300) == policies


def lock_step(one: Cluster, first: float, each: float, seconds: int) -> list[str]:
    """Lets time pass in lock-step whose mini-batches take .1 s, but those of worker-3: the first one `first` seconds, and
    then `each`. Returns the policies that came."""
    for now in range(2, seconds, 2):
        one.now = float(now)
        steps = max(0, int((now - first) // each) + 1)
        since = now - first - (steps - 1) * each if steps else now
        for place in range(4):
            own = 0.1 * (steps + 1) if place < 3 else (first + (steps - 1) * each) * (steps > 0)
            figures = {"steps": steps, "compute_seconds": own, "wait_seconds": max(0.0, now - own) * (place < 3)}
            figures["own_squares"] = 0.01 * steps if place < 3 else (first**2 + (steps - 1) * each**2) * (steps > 0)
            report = WorkerReport(steps, "exchange" if place < 3 else "compute", since, figures, one.now)
            one.run.beat(f"worker-{place}", 1, report, one.now)
        policy = one.run.choose_policy(Clocks, one.now)
        if policy is not None:
            return [policy.name]
    return []


def test_a_first_step_that_takes_long_is_no_sign_of_a_slow_worker():
    assert lock_step(cluster(), first=12.0, each=0.1, seconds=60) == []


def test_a_very_slow_worker_is_seen_while_it_computes_its_second_mini_batch():
    one = cluster()

    assert lock_step(one, first=10.0, each=10.0, seconds=20) == ["kbuffered"]
    assert one.now < 20


def test_equal_workers_whose_steps_take_long_stay_in_lock_step_whenever_their_heartbeats_come():
    one = cluster()
    for tick in range(1, 400):
        one.now = tick / 4
        place, steps = tick % 4, int(one.now // 3)
        figures = {"steps": steps, "compute_seconds": 3.0 * steps, "own_squares": 9.0 * steps, "wait_seconds": 0.0}
        one.run.beat(f"worker-{place}", 1, WorkerReport(steps, "compute", one.now % 3, figures, one.now), one.now)
        assert one.run.choose_policy(Clocks, one.now) is None


def test_the_run_goes_back_to_lock_step_when_the_slow_worker_is_as_fast_as_the_others_again():
    one = cluster(steps=(0.1, 0.1, 0.1, 1.0))
    assert one.pass_time(20) == ["kbuffered"]

    one.steps = EQUAL

    assert one.pass_time(100) == ["auto"]
    assert "lock-step: " in one.run.policy_choice.said[-1]


def test_a_policy_that_has_not_made_the_run_faster_is_taken_back_and_not_tried_again_soon():
    one = cluster(spread=0.03, busy=28.0)

    assert one.pass_time(30) == ["ssp", "auto"]
    assert "ssp:3 has made the run" in one.run.policy_choice.said[-1]
    assert len(one.pass_time(1000)) < 8


def test_where_it_is_to_stay_exact_it_says_once_what_would_be_better():
    one = cluster("auto:exact", steps=(0.1, 0.1, 0.1, 1.0))

    assert one.pass_time(60) == []
    (said,) = one.run.policy_choice.said
    assert "worker-3" in said
    assert "policy=kbuffered" in said


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_a_worker_that_reports_nonsense_changes_nothing_and_ends_nothing(value: float):
    one = cluster(steps=(0.1, 0.1, 0.1, 1.0))
    one.figures["worker-2"] = {"compute_seconds": value}

    assert one.pass_time(60) == []


def test_whoever_sets_a_policy_overrules_it_and_auto_chooses_again_once_it_is_set():
    one = cluster(steps=(0.1, 0.1, 0.1, 1.0))
    one.run.switch(Options(name="ssp"), Clocks)
    one.run.switched()
    assert one.pass_time(60) == []

    one.run.switch(Options(name="auto"), Clocks)
    one.run.switched()

    assert one.pass_time(60) == ["kbuffered"]


def test_a_chief_that_was_started_again_goes_on_choosing_and_knows_what_it_has_said():
    one = cluster(steps=(0.1, 0.1, 0.1, 1.0))
    one.pass_time(20)
    again = Run(one.run.config)

    again.restore(json.loads(json.dumps(one.run.state())), 0.0)

    assert (again.policy.name, again.policy_choice.said) == ("kbuffered", one.run.policy_choice.said)
    assert again.policy_choice.home == Options(name="auto")


def test_a_policy_that_the_runs_settings_refuse_is_named_once_with_what_refuses_it():
    one = cluster(steps=(0.1, 0.1, 0.1, 1.0), clip={"norm": 1.0, "of": "mean"})

    assert one.pass_time(60) == []

    (said,) = one.run.policy_choice.said
    assert re.search(r"kbuffered would train about \d.\d times as fast.*clip\.of", said)


def test_only_policies_that_go_with_the_runs_settings_are_chosen():
    assert cluster(spread=0.03, clip={"norm": 1.0, "of": "mean"}, plan={"slices": "whole"}).pass_time(60) == []
