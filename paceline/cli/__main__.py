"""The command `paceline`. Only what reads a command line is imported here, so that help and mistakes show at once."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli import completions, k8s
from paceline.cli.arguments import (
    WHAT,
    By,
    ChiefAddress,
    Cores,
    Data,
    Device,
    Engine,
    Epochs,
    Folds,
    Fresh,
    Grid,
    Json,
    Log,
    Loop,
    Name,
    Policy,
    Preset,
    Run,
    SearchFolder,
    Servers,
    Sets,
    Slow,
    TokenFile,
    What,
    Workers,
    Yes,
)
from paceline.cli.exits import exits as _exits
from paceline.cli.exits import print_json as _json
from paceline.cli.machines import (
    SERVED,
    Here,
    HostsFile,
    Listen,
    ListenAddress,
    ListenPort,
    ServersHere,
    join,
    other_machines,
    refuse_machines,
)
from paceline.cli.model_commands import export, predict
from paceline.core.errors import UsageError
from paceline.tls_option import Tls

if TYPE_CHECKING:
    from paceline.local.run_folder import RunFolder

USAGE_OF_TYPER = 2
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Paceline trains a model with several workers and servers, in lock-step or as loosely as you like.",
)

app.add_typer(k8s.app, name="k8s")
app.command()(k8s.doctor)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        print(f"paceline {version('paceline')}")
        raise typer.Exit


@app.callback()
def paceline(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself."""


@app.command()
def run(
    what: Annotated[str | None, WHAT] = None,
    workers: Workers = None,
    servers: Servers = None,
    policy: Policy = None,
    sets: Sets = None,
    slow: Slow = None,
    preset: Preset = None,
    epochs: Epochs = None,
    data: Data = None,
    name: Name = None,
    loop: Loop = None,
    log: Log = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            help="Train so often, with seeds that count up, and print mean and variance of the results.", min=1
        ),
    ] = None,
    device: Device = "auto",
    listen: Listen = False,
    here: Here = None,
    servers_here: ServersHere = None,
    port: ListenPort = None,
    address: ListenAddress = None,
    hosts: HostsFile = None,
    tls: Tls = None,
    fresh: Fresh = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Train a model on this machine: starts servers and workers, shows how it goes, says where the model is."""
    with _exits():
        from paceline.local.begin_early import beginning

        with beginning(what, loop) as begun:
            from paceline.cli.resume import resumed
            from paceline.cli.run import run as go
            from paceline.local.capacity import refuse_too_many
            from paceline.local.read_config import read_config, use_keys
            from paceline.local.read_config_forked import read_forked
            from paceline.local.run_folder import RUNS

            if tls is not None:
                use_keys(tls)
            what, runs = resumed(what, lambda line: print(line, file=sys.stderr))
            given: dict[str, Any] = {
                "what": what,
                "workers": workers,
                "servers": servers,
                "policy": policy,
                "sets": [*SERVED, *(sets or [])] if listen or hosts else sets or [],
                "slow": slow or [],
                "epochs": epochs,
                "data": data,
                "run": name,
                "preset": preset,
                "loop": loop,
                "log": log or [],
            }
            config = read_forked(begun.workers, given) if begun and begun.reads else read_config(**given)
            machines = other_machines(config, listen, here, servers_here, port, address, hosts)
            refuse_too_many(config, yes)
            if repeats is not None:
                refuse_machines(machines, "--repeats")
                from paceline.cli.repeats import repeat

                sys.exit(repeat(config, repeats, fresh, as_json, device, begun))
            sys.exit(go(config, fresh, as_json, device, runs if name is None else RUNS, begun, machines=machines))


@app.command(context_settings={"allow_interspersed_args": False})
def launch(
    script: Annotated[str, typer.Argument(metavar="SCRIPT.py", help="Your training script (docs/scripts.md).")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="What the script finds in sys.argv.")
    ] = None,
    workers: Workers = None,
    servers: Servers = None,
    policy: Policy = None,
    sets: Sets = None,
    slow: Slow = None,
    name: Name = None,
    log: Log = None,
    device: Device = "auto",
    listen: Listen = False,
    here: Here = None,
    servers_here: ServersHere = None,
    port: ListenPort = None,
    address: ListenAddress = None,
    hosts: HostsFile = None,
    tls: Tls = None,
    fresh: Fresh = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Run a training script of your own as several workers: starts servers and the script as each worker, shows how it goes.

    Options of Paceline stand before SCRIPT.py, the script's own behind it. Without `paceline launch` the same script runs
    alone, as plain torch."""
    with _exits():
        from paceline.cli.run import run as go
        from paceline.local.capacity import refuse_too_many
        from paceline.local.read_config import read_launch, use_keys

        if tls is not None:
            use_keys(tls)
        config, given = read_launch(
            script,
            arguments or [],
            workers=workers,
            servers=servers,
            policy=policy,
            sets=sets or [],
            slow=slow or [],
            run=name,
            log=log or [],
        )
        machines = other_machines(config, listen, here, servers_here, port, address, hosts)
        refuse_too_many(config, yes)
        sys.exit(go(config, fresh, as_json, device, given=given, machines=machines))


@app.command()
def search(
    what: Annotated[str | None, WHAT] = None,
    grid: Grid = None,
    workers: Workers = None,
    servers: Servers = None,
    policy: Policy = None,
    sets: Sets = None,
    preset: Preset = None,
    epochs: Epochs = None,
    data: Data = None,
    folds: Folds = None,
    cores: Cores = None,
    by: By = None,
    engine: Engine = "runs",
    out: SearchFolder = None,
    device: Device = "auto",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start the search in --out over; what it had is deleted.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Train with every combination of some settings, several runs at a time, and compare: a table and a picture."""
    with _exits():
        from paceline.local.read_config import reader_of
        from paceline.search.grid import read_grid
        from paceline.search.search import search as go

        found = read_grid(grid or [])
        read = reader_of(what, workers, servers, policy, sets or [], epochs, data, preset or found.preset)
        sys.exit(go(found, read, folds, cores, out, fresh, as_json, device=device, by=by, engine=engine, yes=yes))


@app.command()
def status(
    name: Run = None,
    address: ChiefAddress = None,
    token_file: TokenFile = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every second until the run ends.")] = False,
    tls: Tls = None,
    as_json: Json = False,
) -> None:
    """Show where a run is, how fast it goes, and how each worker does."""
    with _exits():
        from paceline.local import run_status as looking

        look = looking.watch if watch else looking.show_status
        look(_run_of(name, address, token_file, tls), _console(), as_json)


@app.command()
def stop(name: Run = None, address: ChiefAddress = None, token_file: TokenFile = None, tls: Tls = None) -> None:
    """End a run early but properly: the model is scored and kept as it is then."""
    with _exits():
        from paceline.local.run_status import stop_run

        if not name and not address:
            raise UsageError("Which run is to end? Name it, or give --chief HOST:PORT.")
        print(stop_run(_run_of(name, address, token_file, tls)))


@app.command("set")
def set_(
    name: Annotated[
        str,
        typer.Argument(metavar="RUN", help="Name of the run; not with --chief.", autocompletion=completions.runs),
    ],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="policy.name=ssp policy.bound=5")
    ] = None,
    address: ChiefAddress = None,
    token_file: TokenFile = None,
    tls: Tls = None,
) -> None:
    """Change the policy of a run, or its bounds, while it trains: paceline set RUN policy.name=ssp policy.bound=5."""
    with _exits():
        from paceline.cli.set_policy import set_policy

        wanted = [name, *(settings or [])] if address else settings or []
        print(set_policy(_run_of(name, address, token_file, tls), wanted))


@app.command()
def shard(
    out: Annotated[Path, typer.Option(help="Folder for the shards; made if it is not there.")],
    what: Annotated[str | None, WHAT] = None,
    workers: Workers = None,
    sets: Sets = None,
    data: Data = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace shards that are there already.")] = False,
    literal: Annotated[bool, typer.Option("--literal", help="Deal exactly as [Sharding] writes it.")] = False,
    old: Annotated[
        Path | None, typer.Option("--from", help="Deal the examples of these shards anew, instead of a task's data.")
    ] = None,
) -> None:
    """Cut a data set into one shard for each worker, a validation and a test part."""
    with _exits():
        from paceline.local.read_config import anew, read_config
        from paceline.sharder.progress_bars import progress_of
        from paceline.sharder.reshard import reshard, settings_of
        from paceline.sharder.sharding import LITERAL, make_shards

        sets = [*(sets or []), *([LITERAL] if literal else [])]
        with progress_of(_console()) as progress:
            if old is None:
                make_shards(read_config(what, workers=workers, sets=sets, data=data), out, fresh, progress)
                return
            if what is not None:
                raise UsageError(f"--from {old} and {what}: the task is that of the shards; leave one of them out.")
            reshard(old, anew(settings_of(old), workers, sets, data), out, fresh, progress)


@app.command("shard-report")
def shard_report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Folders of shards, of the same data set.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the report; made if it is not there.")] = Path("report"),
    by: Annotated[
        str | None,
        typer.Option(
            metavar="TASK", help="Show the labels of this task, of the same examples, instead of the shards' own."
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="PATH", help="The data set of --by.")] = None,
) -> None:
    """Show how evenly shards are dealt, several ways of dealing beside each other: pictures and one HTML page."""
    with _exits():
        if data is not None and by is None:
            raise UsageError("--data is the data set of --by's task; give --by TASK too, or leave --data out.")
        from paceline.data.files import BUNDLED
        from paceline.sharder.report.report import write_report

        print(write_report(folders, out, by, data or BUNDLED))


@app.command()
def plan(
    what: What,
    workers: Workers = None,
    servers: Servers = None,
    policy: Policy = None,
    sets: Sets = None,
    shapes: Annotated[
        Path | None,
        typer.Option(
            help='JSON file with the model\'s shapes, [["layer.weight", [64, 64]], ...]; then torch is not needed.'
        ),
    ] = None,
    gbit: Annotated[float, typer.Option(help="Speed of a network link (Gbit/s).", min=0.001)] = 10.0,
    as_json: Json = False,
) -> None:
    """Show what a run will need: each server's slice and memory, and how many steps the network allows."""
    with _exits():
        from paceline.local.read_config import read_config

        config = read_config(what, workers=workers, servers=servers, policy=policy, sets=sets or [])
        from paceline.cli import plan as planning

        found = planning.read_shapes(shapes) if shapes else planning.task_shapes(config)
        report = planning.plan_report(config, found, gbit)
        _json(report) if as_json else planning.print_report(report, _console())


@app.command()
def local(
    what: What,
    data: Data = None,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads on one array of weights; with 1 the same bits each time.")
    ] = 1,
    average: Annotated[
        bool, typer.Option("--average", help="Take the mean of the weights during the last epoch.")
    ] = False,
    epochs: Epochs = None,
    sets: Sets = None,
    out: Annotated[Path, typer.Option(help="Folder for the model; made if it is not there.")] = Path("model"),
    as_json: Json = False,
) -> None:
    """Train a linear model (task svm, rcv1 or a sparse one of yours) on this machine alone, without servers."""
    with _exits():
        from paceline.local.linear_without_servers import train_here
        from paceline.local.read_config import read_config

        report = train_here(read_config(what, epochs=epochs, sets=sets or [], data=data), threads, average, out)
        _json(report.plain()) if as_json else print("\n".join(report.lines()))


app.command()(join)
app.command()(predict)
app.command()(export)


@app.command()
def demo(
    data: Data = None, epochs: Annotated[int | None, typer.Option(help="Epochs of each run.", min=1)] = None
) -> None:
    """Train the same model under several policies with slow workers, and compare; with --data ResNet-20 on CIFAR-10."""
    with _exits():
        from paceline.cli.demo import cifar_demo, digits_demo

        sys.exit(cifar_demo(_console(), data, epochs or 1) if data else digits_demo(_console(), epochs))


def _run_of(name: str | None, address: str | None, token_file: Path | None, tls: Path | None) -> "RunFolder":
    """The run of that name, which knows its own token and keys, or the one whose chief is at the address."""
    from paceline.local.run_folder import find_run
    from paceline.local.run_status import Elsewhere

    return Elsewhere(Path(address), token_file, tls) if address else find_run(name)


def _console() -> Any:
    from rich.console import Console

    return Console()


def main() -> None:
    """The entry point, with the exit codes of all Paceline processes."""
    try:
        app(prog_name="paceline")
    except SystemExit as end:
        sys.exit(UsageError.exit_code if end.code == USAGE_OF_TYPER else end.code)


if __name__ == "__main__":
    main()
