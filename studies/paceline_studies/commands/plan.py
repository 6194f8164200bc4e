"""`paceline plan`: what a run will need and give, and which one to take."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.base.terminal import say
from paceline.cli import completions
from paceline.cli.arguments import Data, Epochs, Json, Preset, Sets
from paceline.cli.exits import console, exits, print_json
from paceline.cli.option_groups import with_groups
from paceline.cli.other_packages import BEFORE

if TYPE_CHECKING:
    from paceline.settings.flags import Flags
    from paceline_studies.planning.plan import Words
    from paceline_studies.planning.readers import Reader

Many = Annotated[
    str | None,
    typer.Option("-w", "--workers", metavar="N[,N...]", help="Numbers of workers to look at, like 4 or 2,4,8."),
]
ManyServers = Annotated[
    str | None, typer.Option("-s", "--servers", metavar="N[,N...]", help="Numbers of servers to look at, like 1,2.")
]
Policies = Annotated[
    str | None,
    typer.Option(
        "--policy",
        "--policies",
        metavar="NAME[:VALUE][,...]",
        help="Policies to look at, like bsp,ssp:3; default: the run's own and a few around it.",
        autocompletion=completions.policies,
    ),
]


@dataclass(frozen=True, slots=True)
class Measures:
    """What replaces the probe."""

    step: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Don't measure: a worker's mini-batch takes this long, like 120ms (with --examples)."
        ),
    ] = None
    examples: Annotated[int | None, typer.Option(help="With --step: the number of training examples.", min=1)] = None
    exchange: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="With --step: a push and a pull, without the network; default: none."),
    ] = None
    shapes: Annotated[
        Path | None,
        typer.Option(
            help='JSON file with the model\'s shapes, [["layer.weight", [64, 64]], ...]; with --step or --no-probe.'
        ),
    ] = None
    probes: Annotated[
        bool,
        typer.Option(
            "--probe/--no-probe", help="Measure by short runs on this machine; without them it says only sizes."
        ),
    ] = True


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where the run will be."""

    link: Annotated[
        str | None,
        typer.Option(
            metavar="BANDWIDTH[,LATENCY]",
            help="Each process has its own machine, with such a link, like 10Gbit,0.1ms; default: all share this machine.",
        ),
    ] = None
    speeds: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="How the workers' speeds differ: HO (alike), HE0, HE1, HE2, 1x,1x,10x, lognormal:0.3, ...",
        ),
    ] = "HO"
    price: Annotated[
        str | None,
        typer.Option(
            metavar="WHO=PRICE/UNIT,...",
            help="What a machine costs, like 'worker=0.35/h, server=0.10/h'; with a discount worker=0.35/h-60%.",
        ),
    ] = None


@with_groups
def plan(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK|CONFIG.yaml|SCRIPT.py",
            help="What `paceline run` or `paceline launch` is to train.",
            autocompletion=completions.tasks,
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS...]", help="A script's own arguments, behind --.")
    ] = None,
    *,
    workers: Many = None,
    servers: ManyServers = None,
    policy: Policies = None,
    preset: Preset = None,
    epochs: Epochs = None,
    sets: Sets = None,
    data: Data = None,
    measures: Measures,
    surroundings: Surroundings,
    patch: Annotated[
        Path | None,
        typer.Option(
            "--write-patch",
            metavar="FILE",
            help="Write memory limits and settings of the advised run, as a patch for Kubernetes; new file.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what a run will need and give, and how many workers to take.

    Measures mini-batches and pushes by short runs on this machine, two minutes at most, and forecasts the rest by the
    simulator: throughput, staleness, waiting, time to finish and cost; slices, memory limits, and what the network allows."""
    with exits():
        from paceline.settings.flags import Flags
        from paceline_studies.planning.choices import ChosenSizes
        from paceline_studies.planning.patch import check_new, write_patch
        from paceline_studies.planning.plan import Circumstances, make_plan
        from paceline_studies.planning.text import print_plan

        asked = ChosenSizes.of(workers, servers, policy)
        if patch is not None:
            check_new(patch)
        given = Circumstances(
            shapes=measures.shapes,
            link=surroundings.link,
            speeds=surroundings.speeds,
            price=surroundings.price,
            step=measures.step,
            examples=measures.examples,
            exchange=measures.exchange,
            is_apart=patch is not None,
            probes=measures.probes,
        )
        flags = Flags(preset=preset, epochs=epochs, data=data, sets=sets)
        read, command = reader_and_words(what, arguments or [], flags)
        found = make_plan(command, asked, read, given, lambda line: say(line, sys.stderr))
        if patch is not None:
            write_patch(patch, found.config, found.sizes, found.title)
        print_json(found.plain()) if as_json else print_plan(found, console(), all_servers=servers is not None)
        if patch is not None:
            say(f"wrote {patch}; its first lines say how to use it", sys.stderr if as_json else sys.stdout)


def reader_and_words(what: str | None, arguments: list[str], flags: "Flags") -> "tuple[Reader, Words]":
    """What reads the settings, and the words of the command that starts the run."""
    from paceline.core.errors import UsageError
    from paceline.tasks.refuse_scripts import is_training_script
    from paceline_studies.planning.plan import Words
    from paceline_studies.planning.readers import ScriptReader, TaskReader

    options = [word for text in flags.sets or [] for word in ("--set", text)]
    words = {"preset": flags.preset, "epochs": flags.epochs, "data": flags.data}
    for name, value in words.items():
        options += [] if value is None else [f"--{name}", str(value)]
    if what is not None and what.endswith(".py") and is_training_script(Path(what)):
        if wrong := [f"--{name}" for name, value in words.items() if value is not None]:
            raise UsageError(
                f"{wrong[0]} does not go with a script, which brings its own data and epochs. Leave it out."
            )
        return ScriptReader(what, arguments, flags), Words(["launch", *options], [what, *arguments])
    if arguments:
        raise UsageError(f"{' '.join(arguments)}: only a script takes arguments, and {what} is none.")
    return TaskReader(what, flags), Words(["run", *([what] if what else []), *options])


app = typer.Typer(rich_help_panel=BEFORE)
app.command()(plan)
