"""Policy auto next to fixed policies, in virtual time: from equal workers to a link that is slow for a while.

`python -m paceline_papers.experiments.auto`. Its table is in docs/choose/policies.md."""

from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from paceline.core.policies.policy import from_shorthand
from paceline.processes.exits import exits, run_command
from paceline.sharder.sharding import make_shards
from paceline.tasks.task import load_config
from paceline_papers.experiments.options import among
from paceline_studies.simulator.problem import problem_of
from paceline_studies.simulator.scene import Scene
from paceline_studies.simulator.training import training_of

POLICIES = ("auto", "bsp", "ssp:3", "backup:1", "kbuffered", "asp", "local_sgd:8")
STEP = 0.05
"""Of an equal worker (seconds)."""
SITUATIONS: dict[str, dict[str, Any]] = {
    "HO": {},
    "HE0": {"speeds": "HE0"},
    "HE1": {"speeds": "HE1"},
    "HE2": {"speeds": "HE2"},
    "unequal": {},
    "random": {"stragglers": "5x@5%"},
    "jitter": {"jitter": 0.4},
    "link": {"link": "20Mbit,5ms"},
    "while": {},
}
FAULTS = {"while": ["link worker-1=300kbit@10s:30s"]}


def main(
    situations: Annotated[str, typer.Option(help="Situations, with commas.")] = ",".join(SITUATIONS),
    policies: Annotated[str, typer.Option(help="Policies, with commas.")] = ",".join(POLICIES),
    workers: Annotated[int, typer.Option(help="Workers.", min=2)] = 4,
    seeds: Annotated[int, typer.Option(help="Trainings of each, with seeds 0, 1, ...", min=1)] = 3,
    epochs: Annotated[int, typer.Option(help="Of each training.", min=1)] = 60,
) -> None:
    """Prints a row of time and test accuracy for each situation, and then what auto said with seed 0."""
    with exits("experiments.auto"):
        names, said = policies.split(","), list[str]()
        print(f"| {workers} workers | {' | '.join(names)} |\n|{'---|' * (1 + len(names))}")
        for situation in among(situations, SITUATIONS, "--situations"):
            cells = []
            for policy in names:
                runs = [_trained(policy, situation, workers, seed, epochs) for seed in range(seeds)]
                cells.append(f"{mean(time for time, *_ in runs):,.0f} s, {mean(score for _, score, _ in runs):.3f}")
                said += [f"{situation}: {choice}" for choice in runs[0][2]]
            print(f"| {situation} | {' | '.join(cells)} |", flush=True)
        print(*said, sep="\n")


def _trained(policy: str, situation: str, workers: int, seed: int, epochs: int) -> tuple[float, float, tuple[str, ...]]:
    """Training time (seconds), test accuracy, and what was chosen."""
    asked = {"policy": from_shorthand(policy), "faults": FAULTS.get(situation, []), "seed": seed, "epochs": epochs}
    config = load_config(overrides={"task": "digits", "workers": workers, "servers": 1, **asked})
    with TemporaryDirectory() as folder:
        make_shards(config, Path(folder))
        facts = dict(SITUATIONS[situation])
        if situation == "unequal":
            facts["speeds"] = [2 ** (4 * rank // workers) for rank in range(workers)]
        scene = Scene(step=STEP, **facts)
        training = training_of(config, problem_of(config, Path(folder), exact=True), scene=scene)
        training.advance()
    return training.time.now, training.measures(["test"])["test_accuracy"], training.choices


if __name__ == "__main__":
    run_command(main)
