"""Options that several of these commands take; light, so that help shows at once."""

from dataclasses import dataclass
from typing import Annotated

import typer

from paceline.cli.arguments import Data, Epochs, FlagOptions, Policy, Preset, Servers, Sets, Workers

Cores = Annotated[
    int | None,
    typer.Option(
        help="CPU cores for all runs together, one for each worker and server; default: all available cores.",
        min=1,
    ),
]
By = Annotated[
    str | None,
    typer.Option(metavar="METRIC", help="Compare points by this metric, like f1 or 'min mae'; default: the run's own."),
]


@dataclass(frozen=True, slots=True)
class TaskFlags(FlagOptions):
    """Which run of a task is looked at, in any way."""

    workers: Workers = None
    servers: Servers = None
    policy: Policy = None
    epochs: Epochs = None
    data: Data = None
    preset: Preset = None
    sets: Sets = None
