"""What each codec costs in accuracy: python -m experiments.codecs [--help]"""

from statistics import mean, stdev
from typing import Annotated, Any

import typer

from experiments.cluster import run
from experiments.policies import base_config
from paceline.core.policy import from_shorthand

EVERY: tuple[dict[str, Any], ...] = (
    {"push": "none"},
    {"push": "fp16", "pull": "fp16"},
    {"push": "bf16", "pull": "bf16"},
    {"push": "int8"},
    {"push": "int8", "pull": "int8"},
    {"push": "sign"},
    {"push": "topk"},
    {"push": "topk", "error_feedback": False},
    {"push": {"name": "topk", "share": 0.001}},
    {"push": "threshold"},
    {"push": {"name": "threshold", "form": "quantised"}},
    {"push": "randomk"},
)


def main(
    task: Annotated[str, typer.Option(help="What is trained.")] = "digits",
    data: Annotated[str | None, typer.Option(help="Where the data set is.")] = None,
    model: Annotated[str | None, typer.Option(help="Which of the task's models.")] = None,
    policy: Annotated[str, typer.Option(help="The policy, like bsp.")] = "bsp",
    workers: Annotated[int, typer.Option(help="How many workers.")] = 4,
    seeds: Annotated[int, typer.Option(help="Runs of each, with seeds 0, 1, ...")] = 5,
    epochs: Annotated[int, typer.Option(help="Epochs of each run.")] = 10,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Other settings, like optimizer.lr=0.1.")] = None,
) -> None:
    """Prints one line of a Markdown table as soon as a codec's runs are done."""
    print(f"task {task}, policy {policy}, {workers} workers, 2 servers, {epochs} epochs, seeds 0 to {seeds - 1}\n")
    print("| codec | test accuracy, mean | sd | worst | mean less none's |")
    print("|---|---|---|---|---|", flush=True)
    plain = 0.0
    for codec in EVERY:
        base = base_config(task, data, model, workers, epochs, 0.0, "ho", from_shorthand(policy), sets or [], codec)
        runs = [run(base.model_copy(update={"seed": seed})) for seed in range(seeds)]
        found = [outcome.metrics["test_accuracy"] for outcome in runs]
        plain = plain or mean(found)
        spread = stdev(found) if len(found) > 1 else 0.0
        figures = f"{mean(found):.4f} | {spread:.4f} | {min(found):.4f} | {mean(found) - plain:+.4f}"
        print(f"| {_named(codec)} | {figures} |", flush=True)


def _named(codec: dict[str, Any]) -> str:
    """The codec as it would be set."""
    words = []
    for key, value in codec.items():
        options = value if isinstance(value, dict) else {"name": value}
        rest = ", ".join(f"{name} {option}" for name, option in options.items() if name != "name")
        words.append(f"{key} {options['name']}{f' ({rest})' if rest else ''}")
    return ", ".join(words)


if __name__ == "__main__":
    typer.run(main)
