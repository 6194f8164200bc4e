"""`paceline search`: several settings, side by side."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.arguments import WHAT, Device, Json, Yes
from paceline.cli.exits import exits
from paceline.cli.option_groups import with_groups
from paceline.cli.other_packages import TRAIN
from paceline_studies.commands.options import By, Cores, TaskFlags
from paceline_studies.search.grids import paper_grids

Grid = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=V1,V2,...|NAME",
        help="A setting and its values (repeat it to run all combinations), or a paper's grid: "
        f"{', '.join(paper_grids())}.",
    ),
]
Folds = Annotated[
    int | None,
    typer.Option(help="Cross-validate: run each point this many times, each time tested on another part.", min=2),
]
Halving = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Successive halving: each point begins with few epochs; the best one in N goes on, N times as long.",
        min=2,
    ),
]
Sample = Annotated[
    str | None,
    typer.Option(
        metavar="SAMPLER",
        help="Draw points instead of running all combinations: random, or tpe, which learns from results; also from "
        "ranges like --grid optimizer.lr=log:0.001..1.",
    ),
]
Points = Annotated[int | None, typer.Option(help="How many points --sample draws.", min=1)]
SampleSeed = Annotated[
    int | None,
    typer.Option("--seed", help="Of --sample: another seed draws other points; default: 0.", min=0),
]
Engine = Annotated[
    str, typer.Option(help="runs: each point is a run; local: linear models only, in this process, without servers.")
]
SearchFolder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Folder of the search; an existing search is resumed; default: a new folder in searches/.",
    ),
]


@with_groups
def search(
    what: Annotated[str | None, WHAT] = None,
    grid: Grid = None,
    *,
    task: TaskFlags,
    folds: Folds = None,
    halving: Halving = None,
    sample: Sample = None,
    points: Points = None,
    seed: SampleSeed = None,
    cores: Cores = None,
    by: By = None,
    engine: Engine = "runs",
    out: SearchFolder = None,
    device: Device = "auto",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start the search in --out over, and delete its old results.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Train with several settings, side by side, and compare them.

    Every combination, or a sample; several runs at a time; a table and a picture."""
    with exits():
        from paceline.launch.settings.read_config import read_config
        from paceline_studies.search.grid import read_grid
        from paceline_studies.search.results import measure_by
        from paceline_studies.search.search import search as go
        from paceline_studies.search.study import Plan

        found = read_grid(grid or [])
        flags = replace(task.flags(), preset=task.preset or found.preset)
        plan = Plan(
            grid=found,
            read=lambda more: read_config(what, flags.with_sets(more)),
            folds=folds,
            halving=halving,
            sample=sample,
            points=points,
            seed=seed,
            engine=engine,
            by=measure_by(by) if by else None,
        )
        sys.exit(go(plan, out, fresh, cores=cores, device=device, yes=yes, as_json=as_json))


app = typer.Typer(rich_help_panel=TRAIN)
app.command()(search)
