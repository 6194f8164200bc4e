"""The commands for a run that trains or has ended: status, stop, another policy, audit, report."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.base.terminal import say
from paceline.cli import completions
from paceline.cli.arguments import ChiefAddress, Json, Run, TokenFile
from paceline.cli.exits import console, exits, print_json
from paceline.core.errors import UsageError
from paceline.processes.tls_option import Tls

if TYPE_CHECKING:
    from paceline.launch.folder.run_folder import RunFolder


Ending = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="Name of the run; not with --chief.", autocompletion=completions.runs),
]


def status(
    name: Run = None,
    address: ChiefAddress = None,
    token_file: TokenFile = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second until the run ends.")] = False,
    tls: Tls = None,
    as_json: Json = False,
) -> None:
    """Show where a run is, how fast it goes, how each worker does."""
    with exits():
        from paceline.launch.status import run_status as looking

        look = looking.watch if watch else looking.show_status
        look(_run_of(name, address, token_file, tls), console(), as_json)


def audit(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|FOLDER]",
            help="Name of the run, or a server's folder; the newest run if not given.",
            autocompletion=completions.runs,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check what a run has kept, and say what a resume would find.

    It looks at checksums, clocks and terms. Exit code 1: something is wrong."""
    with exits():
        from paceline.launch.folder.audit import audit_run, audit_server
        from paceline.launch.folder.run_folder import find_run

        folder = Path(name or "")
        is_server = name is not None and folder.is_dir() and not _holds_run(folder)
        found = audit_server(folder) if is_server else audit_run(find_run(name))
        print_json(found.plain()) if as_json else say("\n".join(found.lines()))
        sys.exit(found.exit_code)


def report(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN|SHARDS...]",
            help="A run, or folders with shards of one data set, dealt in several ways; default: the newest run.",
            autocompletion=completions.runs,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE|FOLDER",
            help="Of a run the page (default: report.html in its folder), of shards a folder (default: report).",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            help="Of shards: show the labels that this task has for the same examples, instead of the shards' own.",
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="PATH", help="The data set of the task in --by.")] = None,
) -> None:
    """Write a page on a run, or on how evenly shards are dealt.

    On a run: scores, staleness, where the time went, recoveries, sharding, settings, a model card. On shards: pictures of
    several ways of dealing, side by side."""
    with exits():
        names = what or []
        if data is not None and by is None:
            raise UsageError("--data is the data set of the task in --by; give --by TASK too, or leave out --data.")

        from paceline.data.manifest import MANIFEST
        from paceline.launch.folder.run_folder import RUNS, find_run

        others = [name for name in names if not (Path(name) / MANIFEST).is_file()]
        if len(names) > 1 or (names and not others):
            if run := next((name for name in others if _holds_run(Path(name)) or _holds_run(RUNS / name)), None):
                raise UsageError(
                    f"report takes one run, and {run} is one; compare several by: paceline compare {' '.join(names)}"
                )
            from paceline.data.files import BUNDLED
            from paceline.sharder.report.report import write_report as write_shard_report

            say(write_shard_report([*map(Path, names)], out or Path("report"), by, data or BUNDLED))
            return
        if by is not None:
            raise UsageError("--by is for folders with shards; name them, or leave out --by.")
        from paceline.results.report.report import write_report

        say("\n".join(write_report(find_run(names[0] if names else None), out).lines))


def _holds_run(folder: Path) -> bool:
    """Returns whether it is a run's folder, and not one with shards, or a server's."""
    return (folder / "config.yaml").is_file()


def stop(name: Ending = None, address: ChiefAddress = None, token_file: TokenFile = None, tls: Tls = None) -> None:
    """End a run early but properly: score its model, and keep it."""
    with exits():
        from paceline.launch.status.run_status import stop_run

        if not name and not address:
            raise UsageError("Which run should end? Name it, or give --chief HOST:PORT.")
        say(stop_run(_run_of(name, address, token_file, tls)))


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
    """Change a run's policy, or its bounds, while it trains.

    paceline set RUN policy.name=ssp policy.bound=5"""
    with exits():
        from paceline.cli.set_policy import set_policy

        wanted = [name, *(settings or [])] if address else settings or []
        say(set_policy(_run_of(None if address else name, address, token_file, tls), wanted))


def _run_of(name: str | None, address: str | None, token_file: Path | None, tls: Path | None) -> "RunFolder":
    """The run of that name, which knows its own token and keys, or the one whose chief is at the address."""
    from paceline.launch.folder.run_folder import find_run
    from paceline.launch.status.run_status import Elsewhere

    if name and address:
        raise UsageError(f"Got both run {name!r} and --chief {address}. Give one of them.")
    if token_file is not None and not address:
        raise UsageError("--token-file belongs to --chief HOST:PORT; the run that you name knows its own.")
    return Elsewhere(Path(address), token_file, tls) if address else find_run(name)
