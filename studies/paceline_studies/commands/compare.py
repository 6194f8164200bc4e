"""`paceline compare`: finished runs side by side, or several policies on one task."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli import completions
from paceline.cli.arguments import Data, Device, Epochs, Json, Preset, Servers, Sets, Slow, Workers, Yes
from paceline.cli.exits import exits
from paceline.cli.option_groups import with_groups
from paceline.cli.other_packages import TRAIN
from paceline_studies.commands.options import By, Cores

if TYPE_CHECKING:
    from paceline.core.settings.config import Config

SEEDS = 5
"""Of each policy, where nobody says how many."""
_OF = "With --policies: "
_OPTIONS = {"sets": "set"}
"""Options whose field has another name."""

Named = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN RUN ...|TASK",
        help="Finished runs by name or path (NAME also means NAME-1, NAME-2, ...); with --policies one task or YAML file.",
        autocompletion=completions.runs,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder of the comparison; with --policies one that exists goes on; default: one in compare/.",
    ),
]


@dataclass(frozen=True, slots=True)
class Trained:
    """Options that say how policies are trained; all None where finished runs are compared."""

    policies: Annotated[
        str | None,
        typer.Option(metavar="P1,P2,...", help="Train one task under each of these policies, like bsp,ssp:3,asp."),
    ] = None
    seeds: Annotated[
        int | None, typer.Option(help=f"{_OF}runs of each, with seeds that count up; default: {SEEDS}.")
    ] = None
    real: Annotated[
        bool | None,
        typer.Option("--real/--simulated", help=f"{_OF}real processes, or virtual time with real gradients (default)."),
    ] = None
    speeds: Annotated[
        str | None,
        typer.Option(
            help="Simulated: how slow each worker is: HO, HE0, HE1, HE2, a list like 1x,1x,10x, lognormal:0.3, ..."
        ),
    ] = None
    workers: Workers = None
    servers: Servers = None
    slow: Slow = None
    epochs: Epochs = None
    sets: Sets = None
    data: Data = None
    preset: Preset = None
    cores: Cores = None
    device: Device = "auto"
    fresh: Annotated[bool, typer.Option("--fresh", help="Start the comparison in --out over, and delete its runs.")] = (
        False
    )
    yes: Yes = False


@with_groups
def compare(named: Named = None, *, trained: Trained, by: By = None, out: Out = None, as_json: Json = False) -> None:
    """Compare finished runs, or train policies on a task and compare.

    Means, spread, and what is more than noise."""
    with exits():
        if trained.policies is None:
            _refuse_options(trained)
            from paceline_studies.comparison.compare import compare_runs

            sys.exit(compare_runs(named or [], by, out, as_json))
        sys.exit(_policies(named or [], trained, by, out, as_json))


def _policies(named: list[str], trained: Trained, by: str | None, out: Path | None, as_json: bool) -> int:
    from paceline.core.errors import UsageError
    from paceline_studies.comparison.compare_policies import Manner, compare_policies, read_policies
    from paceline_studies.simulator.scene import Scene

    if len(named) > 1 or not (named or trained.preset):
        raise UsageError(f"--policies takes one task, like digits; got {' '.join(named) or 'none'}.")
    assert trained.policies is not None
    if trained.real and trained.speeds is not None:
        raise UsageError(f"--speeds {trained.speeds} is for simulated runs; with --real give --slow, like --slow he1.")
    scene = None if trained.real else Scene.read(**{"speeds": trained.speeds} if trained.speeds else {})
    manner = Manner(scene, trained.cores, trained.device, trained.yes)
    seeds = SEEDS if trained.seeds is None else trained.seeds
    read = reader(named[0] if named else None, trained)
    policies = read_policies(trained.policies)
    return compare_policies(policies, seeds, read, manner, by=by, out=out, fresh=trained.fresh, as_json=as_json)


def reader(what: str | None, trained: Trained) -> "Callable[[str], Config]":
    """The settings under a policy; one without servers has none unless somebody says how many."""
    from paceline.core.policies.policy import is_served
    from paceline.core.settings.config import Options
    from paceline.launch.settings.read_config import read_config
    from paceline.settings.flags import Flags

    names = ("workers", "sets", "slow", "epochs", "data", "preset")
    flags = Flags(**{name: getattr(trained, name) for name in names})

    def read(policy: str) -> "Config":
        needs_none = trained.servers is None and not is_served(Options(name=policy.partition(":")[0]))
        return read_config(what, replace(flags, servers=0 if needs_none else trained.servers, policy=policy))

    return read


def _refuse_options(trained: Trained) -> None:
    """UsageError where an option is given that has no meaning for finished runs."""
    from paceline.core.errors import UsageError

    given = [field.name for field in fields(trained) if getattr(trained, field.name) != field.default]
    if given:
        options = ", ".join(f"--{_OPTIONS.get(name, name)}" for name in given)
        raise UsageError(
            f"{options}: only for training, and finished runs are trained. To train, give one task and --policies, like: "
            "paceline compare digits --policies bsp,ssp:3"
        )


app = typer.Typer(rich_help_panel=TRAIN)
app.command()(compare)
