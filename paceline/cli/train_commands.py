"""The commands that train: a task or a script; on this machine, or with others."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from paceline.base.terminal import say
from paceline.cli.arguments import (
    WHAT,
    Data,
    Device,
    Epochs,
    Fresh,
    Json,
    Preset,
    RunFlags,
    Sets,
    What,
    Yes,
)
from paceline.cli.exits import console, exits, print_json
from paceline.cli.machines import Machines, refuse_machines, served
from paceline.cli.option_groups import with_groups
from paceline.processes.tls_option import Tls


@dataclass(frozen=True, slots=True)
class Going:
    """How a run is started and shown."""

    device: Device = "auto"
    tls: Tls = None
    fresh: Fresh = False
    yes: Yes = False
    as_json: Json = False

    def use_keys(self) -> None:
        """From now on all is encrypted, where a folder of keys was given."""
        if self.tls is not None:
            from paceline.launch.settings.read_config import use_keys

            use_keys(self.tls)


@with_groups
def run(
    what: Annotated[str | None, WHAT] = None,
    *,
    training: RunFlags,
    preset: Preset = None,
    epochs: Epochs = None,
    data: Data = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            help="Train this many times, each time with the next seed, and print mean and variance of the results.",
            min=1,
        ),
    ] = None,
    going: Going,
    machines: Machines,
) -> None:
    """Train a task on this machine, and say where its model is.

    Starts servers and workers, and shows progress."""
    with exits():
        from paceline.launch.forks.begin_early import beginning

        with beginning(what) as begun:
            from paceline.cli.resume import kept_config, resumed
            from paceline.cli.run import run as go
            from paceline.launch.folder.run_folder import RUNS
            from paceline.launch.settings.read_config import read_config
            from paceline.launch.supervise.read_config_forked import read_forked
            from paceline.launch.this_machine.capacity import refuse_too_many

            going.use_keys()
            if what is None and preset is None:
                what = kept_config(training.run)
            what, runs = resumed(what, lambda line: say(line, sys.stderr))
            flags = training.flags(preset=preset, epochs=epochs, data=data)
            if machines.are_wanted:
                flags = replace(flags, sets=[*served(what, training.sets or []), *(training.sets or [])])
            if begun is not None and begun.reads and what is not None:
                config = read_forked(begun.workers, what, flags)
            else:
                config = read_config(what, flags)
            others = machines.checked(config)
            refuse_too_many(machines.part_here(config), going.yes)
            fresh, as_json, device = going.fresh, going.as_json, going.device
            if repeats is not None:
                refuse_machines(others, "--repeats")
                from paceline.cli.repeats import repeat

                sys.exit(repeat(config, repeats, fresh, as_json, device, begun))
            runs = runs if training.run is None else RUNS
            sys.exit(go(config, fresh, as_json, device, runs, begun, machines=others))


@with_groups
def launch(
    script: Annotated[
        str, typer.Argument(metavar="SCRIPT.py", help="Your training script (docs/start/own-script.md).")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own arguments (its sys.argv).")
    ] = None,
    *,
    module: Annotated[
        bool, typer.Option("-m", "--module", help="SCRIPT.py is the name of a module instead, as `python -m` takes it.")
    ] = False,
    training: RunFlags,
    going: Going,
    machines: Machines,
) -> None:
    """Run your training script as several workers, with servers.

    Starts servers and a copy of the script for each worker, and shows progress.
    Paceline's options come before SCRIPT.py, the script's own after it. Without `paceline launch` the same script runs alone,
    as plain torch."""
    with exits():
        from paceline.base.own_files import file_of_module
        from paceline.launch.forks.begin_early import beginning

        script = file_of_module(script) if module else script
        with beginning(script, is_script=True) as begun:
            from paceline.base.extras import is_installed, lacks
            from paceline.cli.run import run as go
            from paceline.core.errors import ConfigError
            from paceline.launch.settings.read_config import read_launch
            from paceline.launch.this_machine.capacity import refuse_too_many

            going.use_keys()
            config, given = read_launch(script, arguments or [], training.flags(), fresh=going.fresh)
            others = machines.checked(config)
            if others is None and not is_installed("torch"):
                raise ConfigError(lacks("torch", "A script's worker"))
            refuse_too_many(machines.part_here(config), going.yes)
            fresh, as_json, device = going.fresh, going.as_json, going.device
            sys.exit(go(config, fresh, as_json, device, begun=begun, given=given, machines=others))


def local(
    what: What,
    data: Data = None,
    threads: Annotated[
        int,
        typer.Option(
            min=1, help="Threads that share one array of weights; only with 1 thread every run gives the same bits."
        ),
    ] = 1,
    average: Annotated[
        bool, typer.Option("--average", help="Take the mean of the weights during the last epoch.")
    ] = False,
    epochs: Epochs = None,
    sets: Sets = None,
    out: Annotated[Path, typer.Option(help="Folder for the model; created if missing.")] = Path("model"),
    as_json: Json = False,
) -> None:
    """Train a linear model in this process, without servers.

    Of the task svm, rcv1 or your own sparse task."""
    with exits():
        from paceline.launch.linear_without_servers import train_here
        from paceline.launch.settings.read_config import read_config
        from paceline.settings.flags import Flags

        report = train_here(read_config(what, Flags(epochs=epochs, sets=sets, data=data)), threads, average, out)
        print_json(report.plain()) if as_json else say("\n".join(report.lines()))


def demo(
    data: Data = None, epochs: Annotated[int | None, typer.Option(help="Epochs of each run.", min=1)] = None
) -> None:
    """Train under several policies with slow workers, and compare.

    --data CIFAR-10 trains a ResNet-20 on it."""
    with exits():
        from paceline.cli.demo import cifar_demo, digits_demo

        sys.exit(cifar_demo(console(), data, epochs or 1) if data else digits_demo(console(), epochs))
