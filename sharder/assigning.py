"""`python -m paceline.sharder assign`: says which shard each of some new examples goes to."""

from pathlib import Path
from typing import Annotated

import typer

from paceline.base.terminal import say
from paceline.processes.exits import exits, run_command
from paceline.sharder.arriving import assign


def deal(
    shards: Annotated[Path, typer.Option(help="Folder of shards made with data.strategy=distribution_aware.")],
    features: Annotated[Path, typer.Option(help="The new examples, an npy file.")],
    out: Annotated[Path, typer.Option(help="An npy file for the shard of each example; -1: all shards.")],
) -> None:
    """Deal new examples by the neighbourhoods that were found when the shards were made."""
    with exits("sharder"):
        found = assign(shards, features, out)
        say(f"{sum(found.values()):,} examples: {', '.join(f'{name} {count:,}' for name, count in found.items())}")


def main() -> None:
    """The command line."""
    run_command(deal)
