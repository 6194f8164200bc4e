"""`paceline demo`: the same training under each policy, so that one sees what the policies are for."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from paceline.base.terminal import show
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import open_run
from paceline.launch.forks.run_forkers import forking
from paceline.launch.supervise.launcher import run_local
from paceline.launch.supervise.outcome import Outcome
from paceline.settings.load_settings import load
from paceline.tasks.task import load_task

GOAL = 0.95
"""Test accuracy that the digits must pass."""
POLICIES = ("bsp", "ssp", "shat")
DIGITS: dict[str, Any] = {
    "task": "digits",
    "workers": 4,
    "servers": 2,
    "epochs": 24,
    "batch_size": 128,
    "nominal_step": 0.005,
}
DIGITS_SECONDS = 65
"""What the six runs take together on 2 cores."""
CIFAR_POLICIES = ("bsp", "ssp", "asp", "shat")
CIFAR: dict[str, Any] = {
    "task": "cifar10",
    "workers": 2,
    "servers": 2,
    "batch_size": 64,  # more steps in the one epoch than the task's own 128
    "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 1e-4},
}
CIFAR_SPEED = 250
"""Images per second that 2 cores train ResNet-20 with."""
CIFAR_START = 20
"""Seconds that a run takes besides (start and scores)."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What is wrong with the workers."""

    name: str
    title: str
    slow: dict[str, str]


CONDITIONS = (
    Condition("slow", "worker 2 is 10 times slow", {"2": "10x"}),
    Condition("random", "random stragglers: 5 % of the steps of each worker are 10 times slow", {"all": "10x@5%"}),
)
Results = dict[str, Outcome]
"""By policy."""


def digits_demo(console: Console, epochs: int | None, run: Callable[..., Outcome] = run_local) -> int:
    """Both conditions under each policy; the exit code, 1 when any accuracy is not above 95 % after the demo's own epochs."""
    show(console, f"digits: 4 workers, 2 servers, 6 runs; about {DIGITS_SECONDS} s on 2 cores.")
    slow_step = f"{1000 * DIGITS['nominal_step']:g} ms, ten times slow {9000 * DIGITS['nominal_step']:g} ms more"
    show(console, f"Slowness is made by pauses: a step counts as {slow_step}.")
    accurate = True
    with forking(load(None, DIGITS)) as forkers:
        for condition in CONDITIONS:
            settings = DIGITS | {"slow": condition.slow} | ({"epochs": epochs} if epochs else {})
            results, code = _runs(console, settings, POLICIES, condition.name, partial(run, forkers=forkers))
            if code:
                return code
            console.print(comparison(results, condition.title))
            show(console, lesson(condition, results))
            accurate &= all((outcome.accuracy or 0.0) > GOAL for outcome in results.values())
    if accurate or epochs is not None:
        return 0
    show(console, f"An accuracy is not above {GOAL:.0%}: something is wrong with this build.")
    return 1


def cifar_demo(console: Console, data: str, epochs: int, run: Callable[..., Outcome] = run_local) -> int:
    """ResNet-20 on CIFAR-10 files under each policy, without a bar for the accuracy."""
    images = len(load_task("cifar10").data(data).train)
    seconds = len(CIFAR_POLICIES) * (images * epochs / CIFAR_SPEED + CIFAR_START)
    plural = "epoch" if epochs == 1 else "epochs"
    what = (
        f"CIFAR-10, ResNet-20: {images:,} images, {epochs} {plural}, 2 workers, 2 servers, {len(CIFAR_POLICIES)} runs"
    )
    show(console, f"{what}; about {seconds / 60:.0f} min on 2 cores.")
    settings = CIFAR | {"epochs": epochs, "data": {"path": data}}
    results, code = _runs(console, settings, CIFAR_POLICIES, "cifar10", run)
    if not code:
        console.print(comparison(results, f"ResNet-20, {epochs} {plural}"))
    return code


def _runs(
    console: Console, settings: dict[str, Any], policies: Sequence[str], name: str, run: Callable[..., Outcome]
) -> tuple[Results, int]:
    """The outcomes, and the exit code of a run that failed. All runs read the shards that the first one writes."""
    results: Results = {}
    shards: Path | None = None
    for policy in policies:
        config, start = _config(settings, policy, name), time.monotonic()
        folder, config = open_run(config)
        outcome = run(config, folder.path, say=lambda text: show(console, f"  {text}"), shards=shards)
        if outcome.exit_code:
            show(console, f"{folder.name}: {outcome.reason}")
            return results, outcome.exit_code
        results[policy] = outcome
        shards = shards or folder.shards
        show(
            console,
            f"  {policy}: {_accuracy(outcome)} after {outcome.seconds:.1f} s of training "
            f"({time.monotonic() - start:.1f} s with the start of all processes)",
        )
    return results, 0


def _config(settings: dict[str, Any], policy: str, name: str) -> Config:
    run = f"demo-{name}-{policy}-{time.strftime('%Y%m%d-%H%M%S')}"
    return load(None, settings | {"policy": {"name": policy}, "run": run}, load_task(settings["task"]).settings)


def comparison(results: Results, title: str) -> Table:
    """One row for each policy."""
    columns = (Column(name, justify="right") for name in ("accuracy", "to 95 %", "total", "examples/s", "waiting"))
    table = Table("policy", *columns, title=title, caption="waiting for other workers: mean of all workers")
    for policy, outcome in results.items():
        reached = seconds_to(outcome, GOAL)
        table.add_row(
            policy,
            _accuracy(outcome),
            "-" if reached is None else f"{reached:.1f} s",
            f"{outcome.seconds:.1f} s",
            f"{outcome.examples / outcome.seconds:,.0f}" if outcome.seconds else "-",
            f"{waiting(outcome):.1f} s",
        )
    return table


def lesson(condition: Condition, results: Results) -> str:
    """Two sentences with what the numbers show."""
    bsp, ssp, shat = (results[policy] for policy in POLICIES)
    waits = ", ".join(f"{policy} {waiting(outcome):.1f} s" for policy, outcome in results.items())
    if condition.name == "slow":
        first = f"Lock-step and bounded staleness go at the slow worker's pace, SHAT does not: a worker waited {waits}."
        second = f"So SHAT took {_ratio(shat, bsp)} of BSP's time and SSP {_ratio(ssp, bsp)} of it."
    else:
        first = (
            f"In lock-step a slow step holds up all; a bound lets the others go on meanwhile: a worker waited {waits}."
        )
        second = f"So SSP took {_ratio(ssp, bsp)} of BSP's time and SHAT {_ratio(shat, bsp)} of it."
    return f"{first} {second}"


def waiting(outcome: Outcome) -> float:
    """Seconds that a worker waited for others, as the mean of the workers."""
    waits = [figures.get("wait_seconds", 0.0) for figures in outcome.figures.values()]
    return sum(waits) / len(waits) if waits else 0.0


def seconds_to(outcome: Outcome, goal: float) -> float | None:
    """Training time at which a score on the test data was first above the goal."""
    return next((score.seconds for score in outcome.scores if score.metrics.get("test_accuracy", 0.0) > goal), None)


def _accuracy(outcome: Outcome) -> str:
    return "not scored" if outcome.accuracy is None else f"{outcome.accuracy:.4f}"


def _ratio(one: Outcome, other: Outcome) -> str:
    return f"{one.seconds / other.seconds:.2f}" if other.seconds else "?"
