"""The commands before a run: shards, and a look at them."""

from pathlib import Path
from typing import Annotated

import typer

from paceline.base.terminal import say
from paceline.cli.arguments import WHAT, Data, Sets, Workers
from paceline.cli.exits import console, exits
from paceline.core.errors import UsageError
from paceline.sharder.shard_options import Fresh, Literal, Out


def shard(
    what: Annotated[str | None, WHAT] = None,
    out: Out = None,
    workers: Workers = None,
    sets: Sets = None,
    data: Data = None,
    fresh: Fresh = False,
    literal: Literal = False,
    old: Annotated[
        Path | None, typer.Option("--from", help="Deal the examples of these shards again, instead of a task's data.")
    ] = None,
) -> None:
    """Cut a data set into one shard for each worker, a validation and a test part."""
    with exits():
        from paceline.launch.settings.read_config import anew, read_config
        from paceline.sharder.progress_bars import progress_of
        from paceline.sharder.reshard import settings_of
        from paceline.sharder.sharding import LITERAL, write_shards

        sets = [*(sets or []), *([LITERAL] if literal else [])]
        with progress_of(console()) as progress:
            if old is None:
                config = read_config(what, workers=workers, sets=sets, data=data)
            elif what is None:
                config = anew(settings_of(old), workers, sets, data)
            else:
                raise UsageError(
                    f"--from {old} and {what}: the shards already name their task; leave one of the two out."
                )
            write_shards(out, config, old, fresh, progress)


def shard_report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Folders with shards of the same data set.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the report; created if missing.")] = Path("report"),
    by: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            help="Show the labels that this task has for the same examples, instead of the shards' labels.",
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="PATH", help="The data set of the task in --by.")] = None,
) -> None:
    """Show how evenly shards are dealt, and compare several ways of dealing: pictures and one HTML page."""
    with exits():
        if data is not None and by is None:
            raise UsageError("--data is the data set of the task in --by; give --by TASK too, or leave out --data.")
        from paceline.data.files import BUNDLED
        from paceline.sharder.report.report import write_report

        say(write_report(folders, out, by, data or BUNDLED))
