"""`paceline shard`: shards before a run."""

from pathlib import Path
from typing import Annotated

import typer

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
    """Cut a data set into shards for workers, and a test part."""
    with exits():
        from paceline.launch.settings.read_config import anew, read_config
        from paceline.settings.flags import Flags
        from paceline.sharder.progress_bars import progress_of
        from paceline.sharder.reshard import settings_of
        from paceline.sharder.sharding import LITERAL, write_shards

        flags = Flags(workers=workers, data=data, sets=[*(sets or []), *([LITERAL] if literal else [])])
        with progress_of(console()) as progress:
            if old is None:
                config = read_config(what, flags)
            elif what is None:
                config = anew(settings_of(old), flags)
            else:
                raise UsageError(
                    f"--from {old} and {what}: the shards already name their task; leave one of the two out."
                )
            write_shards(out, config, old, fresh, progress)
