"""All policies on one task, with equal and with unequal workers: python -m experiments.policies [--help]"""

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Annotated, Any

import typer

from experiments.cluster import Outcome, run
from paceline.core.settings.config import Config, Options
from paceline.core.sync.policy import from_shorthand, is_served
from paceline.load_settings import load
from paceline.tasks.task import load_task

EVERY = (
    "bsp",
    "ssp:3",
    "dssp",
    "asp",
    "shat",
    "shat_root",
    "ensemble",
    "easgd",
    "kbuffered",
    "backup",
    "rennala",
    "delay_threshold",
    "staleness_aware",
    "dc_asgd",
    "dana",
    "downpour",
    "local_sgd",
    "diloco",
    "allreduce",
    "dpsgd",
    "adpsgd",
    "sgp",
    "gosgd",
    "broadcast",
)
OPTIONS: dict[str, dict[str, Any]] = {
    "downpour": {"push_every": 4},
    "easgd": {"tau": 4},
    "local_sgd": {"dynamic": True},
    "diloco": {"dynamic": True, "outer_lr": 0.7},
}
"""Options that are not the defaults; the table shows them."""
RATES = {"dana": 0.1, "downpour": 0.25}
"""Factors of the rate: DANA's momentum of 0.9 makes ten steps of one, and Downpour's push is the sum of four gradients."""


def main(
    policies: Annotated[
        list[str] | None, typer.Argument(help="Policies, like ssp:3; all of them if not given.")
    ] = None,
    task: Annotated[str, typer.Option(help="What is trained.")] = "digits",
    data: Annotated[str | None, typer.Option(help="Where the data set is.")] = None,
    model: Annotated[str | None, typer.Option(help="Which of the task's models.")] = None,
    workers: Annotated[int, typer.Option(help="How many workers.")] = 8,
    clusters: Annotated[str, typer.Option(help="Emulated clusters [SHAT 4.3], with commas.")] = "ho,he1",
    seeds: Annotated[int, typer.Option(help="Runs of each, with seeds 0, 1, ...")] = 5,
    epochs: Annotated[int, typer.Option(help="Epochs of each run.")] = 10,
    step: Annotated[float, typer.Option(help="Emulated computation of an equal worker's step (seconds).")] = 0.05,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Other settings, like optimizer.lr=0.1.")] = None,
) -> None:
    """Prints one line of a Markdown table as soon as a policy's runs are done."""
    print(
        f"task {task}, {workers} workers, 2 servers (from allreduce on none), {epochs} epochs, seeds 0 to {seeds - 1}, "
        f"step {step * 1000:g} ms\n"
    )
    print("| policy | cluster | test accuracy, mean | sd | worst | seconds | waiting (s) | staleness |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for policy in policies or EVERY:
        for cluster in clusters.split(","):
            options = from_shorthand(policy) | OPTIONS.get(policy, {})
            base = base_config(task, data, model, workers, epochs, step, cluster, options, sets or [])
            rate = base.optimizer.options["lr"] * RATES.get(policy, 1.0)
            base = base.model_copy(update={"optimizer": base.optimizer.model_copy(update={"lr": rate})})
            outcomes = [run(base.model_copy(update={"seed": seed})) for seed in range(seeds)]
            print(row(options, cluster, outcomes), flush=True)


def base_config(
    task: str,
    data: str | None,
    model: str | None,
    workers: int,
    epochs: int,
    step: float,
    cluster: str,
    policy: dict[str, Any],
    sets: Sequence[str],
    codec: dict[str, Any] | None = None,
) -> Config:
    """The settings of one cell. Every worker pauses for a step's length, the slow one for as much longer."""
    from paceline.load_settings import parse_sets

    factor = {"ho": "1x", "he0": "2x", "he1": "10x", "he2": "100x"}[cluster]
    slow = {"all": "2x"} | ({str(workers - 1): factor} if factor != "1x" else {})
    settings: dict[str, Any] = {
        "task": task,
        "model": model,
        "workers": workers,
        "servers": 2 if is_served(Options(**policy)) else 0,
        "epochs": epochs,
        "policy": policy,
        "slow": slow,
        "nominal_step": step,
        "data": {"path": data or "bundled"},
        "checkpoint": {"every": 60.0},
        "codec": codec or {},
    }
    return load(None, settings | parse_sets(list(sets)), load_task(task, model).settings)


def row(options: dict[str, Any], cluster: str, outcomes: list[Outcome]) -> str:
    """One policy on one cluster; for policies whose local models count, the vote's accuracy next to the global one's."""
    found = [outcome.metrics["test_accuracy"] for outcome in outcomes]
    spread = stdev(found) if len(found) > 1 else 0.0
    rest = ", ".join(f"{key} {value}" for key, value in options.items() if key != "name")
    name = f"{options['name']} ({rest})" if rest else str(options["name"])
    figures = [
        f"{mean(found):.4f}",
        f"{spread:.4f}",
        f"{min(found):.4f}",
        f"{mean(outcome.seconds for outcome in outcomes):.1f}",
        f"{mean(outcome.waiting for outcome in outcomes):.1f}",
        f"{mean(outcome.staleness for outcome in outcomes):.1f}",
    ]
    lines = [f"| {name} | {cluster.upper()} | {' | '.join(figures)} |"]
    for kind in ("mean", "vote"):
        local = [
            outcome.metrics[f"{kind}_test_accuracy"]
            for outcome in outcomes
            if f"{kind}_test_accuracy" in outcome.metrics
        ]
        if local:
            lines.append(
                f"| {name}, {kind} of local models | {cluster.upper()} | {mean(local):.4f} | "
                f"{stdev(local) if len(local) > 1 else 0.0:.4f} | {min(local):.4f} | | | |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    typer.run(main)
