"""Which rate a task's own settings should have: plain torch in one process, one training for each rate and momentum of a grid.

`python -m paceline_papers.experiments.rates cifar10 --data DATA --model resnet20 --rates 0.03,0.1,0.3`. Figures: results.md."""

from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from paceline.processes.exits import exits, run_command
from paceline.tasks.task import load_config
from paceline_papers.experiments.defaults_cells import plain_torch, score_of


def main(
    task: Annotated[str, typer.Argument(help="A task with SGD in its settings.")],
    rates: Annotated[str, typer.Option(help="Rates, with commas.")],
    data: Annotated[str | None, typer.Option(help="As of `paceline run`.")] = None,
    model: Annotated[str | None, typer.Option(help="Of the task; its own if not given.")] = None,
    momenta: Annotated[str, typer.Option(help="Momenta, with commas.")] = "0.9",
    epochs: Annotated[int, typer.Option(help="Of each training.", min=1)] = 3,
    seeds: Annotated[int, typer.Option(help="Trainings of each, with seeds 0, 1, ...", min=1)] = 1,
    metric: Annotated[str, typer.Option(help="Of the task, on its test examples.")] = "accuracy",
    threads: Annotated[int, typer.Option(help="CPU threads for torch.", min=1)] = 1,
    out: Annotated[Path, typer.Option(help="Where shards are kept.")] = Path("runs/rates"),
) -> None:
    """Prints a line for each training as it ends: model, rate, momentum, seed, score."""
    with exits("experiments.rates"):
        torch.set_num_threads(threads)
        asked: dict[str, Any] = {"task": task, "epochs": epochs, "workers": 1, "policy": "bsp"}
        asked |= {"model": model} if model else {}
        asked |= {"data": {"path": data}} if data else {}
        for seed in range(seeds):
            config = load_config(overrides={**asked, "seed": seed})
            for rate in rates.split(","):
                for momentum in momenta.split(","):
                    steps = {**config.optimizer.model_dump(), "lr": float(rate), "momentum": float(momentum)}
                    one = load_config(overrides={**asked, "seed": seed, "optimizer": steps})
                    folder = out / f"{Path(task).stem}-{seed}"
                    score = score_of(one, plain_torch(one, 0, folder), metric, folder)
                    print(f"{one.model or task} rate {rate} momentum {momentum} seed {seed}: {score:.4f}", flush=True)


if __name__ == "__main__":
    run_command(main)
