"""What each codec costs in accuracy: python -m experiments.codecs [--help]"""

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Annotated, Any

import typer

from experiments.cluster import run
from experiments.policies import base_config
from paceline.core.errors import UsageError
from paceline.core.sync.policy import from_shorthand
from paceline.exits import exits

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
    {"push": {"name": "topk", "share": 0.001}, "momentum": 0.9},
    {"push": {"name": "topk", "share": 0.001}, "momentum": 0.9, "warmup_epochs": 0},
    {"push": "threshold"},
    {"push": {"name": "threshold", "form": "quantised"}},
    {"push": "randomk"},
    {"push": "powersgd"},
    {"push": {"name": "powersgd", "rank": 1}},
)


def main(
    codecs: Annotated[
        list[str] | None, typer.Argument(help="Lines of the table, like 'push int8'; all of them if not given.")
    ] = None,
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
    with exits("experiments.codecs"):
        bases = [
            (
                codec,
                base_config(task, data, model, workers, epochs, 0.0, "ho", from_shorthand(policy), sets or [], codec),
            )
            for codec in chosen_of(codecs)
        ]
    print(f"task {task}, policy {policy}, {workers} workers, 2 servers, {epochs} epochs, seeds 0 to {seeds - 1}\n")
    print("| codec | test accuracy, mean | sd | worst | mean less none's |")
    print("|---|---|---|---|---|", flush=True)
    plain: float | None = None
    for codec, base in bases:
        runs = [run(base.model_copy(update={"seed": seed})) for seed in range(seeds)]
        found = [outcome.metrics["test_accuracy"] for outcome in runs]
        if codec == EVERY[0]:
            plain = mean(found)
        less = "" if plain is None else f"{mean(found) - plain:+.4f}"
        spread = stdev(found) if len(found) > 1 else 0.0
        figures = f"{mean(found):.4f} | {spread:.4f} | {min(found):.4f} | {less}"
        print(f"| {_named(codec)} | {figures} |", flush=True)


def chosen_of(names: Sequence[str] | None) -> list[dict[str, Any]]:
    """The lines of these names, all where there are none. UsageError: there is no such line."""
    known = {_named(codec): codec for codec in EVERY}
    for name in names or ():
        if name not in known:
            raise UsageError(f"There is no line {name!r}; expected some of: {'; '.join(known)}.")
    return [known[name] for name in names or known]


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
