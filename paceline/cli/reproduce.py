"""`paceline reproduce`: the papers' tables and figures, made again."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.arguments import Data
from paceline.cli.exits import console, exits
from paceline.core.errors import UsageError
from paceline.terminal import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from paceline.reproduce.making import Making


EVERY = 10.0
"""Seconds from one line to the next where there is no bar."""


def reproduce(
    what: Annotated[
        str | None,
        typer.Argument(metavar="[NAME|PAPER|all]", help="Which: shat/table-2, shat or all; lists them if not given."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--small", help="The paper's model, data and epochs; needs GPUs.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each row; the recipe's number if not given.")
    ] = None,
    data: Data = None,
    out: Annotated[
        Path, typer.Option(help="Folder of the results, which keeps what is finished; the page is next to it.")
    ] = Path("reproduction"),
) -> None:
    """Make a paper's tables and figures again, with its numbers next to ours. Can be broken off and goes on where it was."""
    with exits():
        from paceline.extras import needing

        with needing("paceline reproduce"):
            from paceline.reproduce.artefacts import wanted
            from paceline.reproduce.making import Making, makings, write_page

            if what is None:
                _show(console(), makings(out))
                return
            every = [Making(each, out, seeds, full, data) for each in wanted(what)]
            lacking = {making.artefact.name: lacks for making in every if (lacks := making.lacks)}
            if what in lacking:
                raise UsageError(f"{what} can't be made here. {lacking[what]}")
            for making in every:
                if making.artefact.name in lacking:
                    say(f"{making.artefact.name} is left out: {lacking[making.artefact.name]}")
                else:
                    _make(making, console())
            if not full:
                say(f"The page is {write_page(out)}.")


def _make(making: "Making", screen: "Console") -> None:
    """Trains one and says what came out."""
    from rich.progress import track

    artefact, runs = making.artefact, len(making.missing)
    say(f"{artefact.name}: {artefact.title}, {making.recipe.shows}")
    last = time.monotonic()
    for done, run in enumerate(
        track(making.train(), artefact.name, runs, console=screen, disable=not screen.is_interactive)
    ):
        if not screen.is_interactive and time.monotonic() - last >= EVERY:
            last = time.monotonic()
            say(f"  {done + 1} of {runs} runs, the last one: {run}")
    making.write()
    for claim, verdict in zip(making.recipe.claims, making.verdicts(), strict=True):
        say(f"  {verdict}: {claim.says}")
    say(f"  {making.seconds:.0f} s of runs; table, picture and JSON are in {making.folder}")


def _show(screen: "Console", every: "Sequence[Making]") -> None:
    from rich.table import Table

    table = Table("name", "paper", "shows", "--full needs", "minutes", "last result", pad_edge=False, box=None)
    for making in every:
        recipe = making.recipe
        done = len(making.keys) - len(making.missing)
        took = making.seconds / 60 if done and not making.missing else recipe.minutes
        if making.missing:
            result = f"{done} of {len(making.keys)} runs" if done else ""
        else:
            verdicts = making.verdicts()
            result = ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(verdicts))
        table.add_row(
            making.artefact.name, recipe.number, recipe.shows, recipe.full.partition(":")[0], f"{took:.1f}", result
        )
    screen.print(table)
    say("Make one: paceline reproduce NAME; all of them: paceline reproduce all")
