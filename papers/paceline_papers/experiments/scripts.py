"""A user's script on Paceline, and the same in plain torch: python -m paceline_papers.experiments.scripts [--help]"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Annotated

import typer

from paceline.core.errors import TryAgain
from paceline.processes.exits import exits, run_command
from paceline_papers.experiments.options import among

EXAMPLES = Path(__file__).parents[3] / "examples/scripts"
SCRIPTS = ("cnn", "transformer")
TORCH = "plain torch"
DEFAULT = "default"
"""No --policy."""
POINT = 0.01
_SCORE = re.compile(r"^last (?P<score>[0-9.]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cell:
    """One run."""

    script: str
    policy: str
    """Or plain torch."""
    workers: int
    seed: int


def main(
    scripts: Annotated[str, typer.Option(help="Scripts of examples/scripts, with commas.")] = ",".join(SCRIPTS),
    policies: Annotated[str, typer.Option(help="Policies with commas; 'default': none is named.")] = f"bsp,{DEFAULT}",
    workers: Annotated[int, typer.Option(help="Workers of each run.", min=1)] = 2,
    seeds: Annotated[int, typer.Option(help="Runs of each, with seeds 0, 1, ...", min=1)] = 5,
    out: Annotated[Path, typer.Option(help="Where finished runs are kept.")] = Path("runs/scripts"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget finished runs.")] = False,
    jobs: Annotated[int, typer.Option(help="Runs side by side.", min=1)] = 1,
) -> None:
    """Runs what is missing, in real processes, and prints a Markdown table of the accuracies at the end."""
    with exits("experiments.scripts"):
        cells = list(planned(among(scripts, SCRIPTS, "--scripts"), policies.split(","), workers, seeds))
        out.mkdir(parents=True, exist_ok=True)
        kept = out / "runs.jsonl"
        if fresh:
            kept.unlink(missing_ok=True)
        found = read(kept)
        missing = [cell for cell in cells if cell not in found]
        with ThreadPoolExecutor(jobs) as pool, kept.open("a") as lines:
            for cell, score in zip(missing, pool.map(partial(run_cell, out=out.resolve()), missing), strict=True):
                found[cell] = score
                print(json.dumps(asdict(cell) | {"score": score}), file=lines, flush=True)
                print(f"{cell.script}, {cell.policy}, seed {cell.seed}: {score:.4f}", file=sys.stderr, flush=True)
        print(table({cell: found[cell] for cell in cells}))


def planned(scripts: Sequence[str], policies: Sequence[str], workers: int, seeds: int) -> Iterator[Cell]:
    """Every script by itself, then under each policy."""
    for script in scripts:
        yield from (Cell(script, TORCH, 1, seed) for seed in range(seeds))
        for policy in policies:
            yield from (Cell(script, policy, workers, seed) for seed in range(seeds))


def read(kept: Path) -> dict[Cell, float]:
    """Finished runs and their scores."""
    lines = map(json.loads, kept.read_text().splitlines()) if kept.exists() else ()
    return {Cell(**{key: line[key] for key in line if key != "score"}): line["score"] for line in lines}


def run_cell(cell: Cell, out: Path) -> float:
    """Test accuracy of the final model (ratio). TryAgain: the run failed; its last words are in the text."""
    arguments = ["--seed", str(cell.seed)]
    folder = out / f"{cell.script}-{cell.policy}-{cell.seed}".replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    if cell.policy == TORCH:
        printed = _printed([str(EXAMPLES / f"{cell.script}_plain.py"), *arguments], folder)
    else:
        policy = [] if cell.policy == DEFAULT else ["--policy", cell.policy]
        launch = [
            "-m",
            "paceline.cli",
            "launch",
            "-w",
            str(cell.workers),
            *policy,
            "--set",
            f"seed={cell.seed}",
            "--fresh",
        ]
        run = folder / "runs/trained"
        _printed([*launch, "--run", run.name, str(EXAMPLES / f"{cell.script}.py"), *arguments], folder)
        return _scored(run)
    score = _SCORE.search(printed)
    if score is None:
        raise TryAgain(f"{cell.script} ended without a line 'last ACCURACY': {printed[-500:]}")
    return float(score["score"])


def _scored(run: Path) -> float:
    """What the evaluator has found for the final model."""
    from paceline.results.result import Result

    return Result(run).metrics["validation_accuracy"]


def _printed(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise TryAgain(f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout)[-1500:]}")
    return done.stdout


def table(found: Mapping[Cell, float]) -> str:
    """A line for each script and policy: every seed's accuracy, their mean, and by how much it is off plain torch's."""
    rows: dict[tuple[str, str, int], list[float]] = {}
    for cell, score in found.items():
        rows.setdefault((cell.script, cell.policy, cell.workers), []).append(score)
    seeds = max(map(len, rows.values()))
    lines = [["script", "policy", "workers", *(f"seed {seed}" for seed in range(seeds)), "mean", "beside torch"]]
    for (script, policy, workers), scores in rows.items():
        off = mean(scores) - mean(rows[script, TORCH, 1])
        verdict = f"{off:+.4f}" + ("" if abs(off) <= POINT else ", more than a point")
        lines.append(
            [script, policy, str(workers), *(f"{score:.4f}" for score in scores), f"{mean(scores):.4f}", verdict]
        )
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    run_command(main)
