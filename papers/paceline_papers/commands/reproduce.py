"""`paceline reproduce`: the papers' tables and figures, made again."""

import os
import shlex
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.base.terminal import say
from paceline.cli.arguments import Data, Sets, Yes
from paceline.cli.exits import console, exits
from paceline.core.errors import PacelineError, Stopped, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from paceline.core.settings.config import Config
    from paceline.launch.folder.run_folder import RunFolder
    from paceline.launch.supervise.outcome import Outcome
    from paceline_papers.reproduce.making import Making


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
    sets: Sets = None,
    out: Annotated[
        Path, typer.Option(help="Folder of the results, which keeps what is finished; the page is next to it.")
    ] = Path("reproduction"),
    yes: Yes = False,
) -> None:
    """Make a paper's tables and figures again, next to its numbers.

    Can be broken off and goes on where it was."""
    with exits():
        from paceline.base.extras import needing

        with needing("paceline reproduce"):
            from paceline.settings.load_settings import variables
            from paceline_papers.reproduce.artefacts import wanted
            from paceline_papers.reproduce.making import Making, check_full, checksum, makings, page_of, write_page

            page_of(out)
            if what is None:
                if seeds is not None or data is not None or sets:
                    raise UsageError("--seeds, --data and --set are for making something: name it, like shat/table-2.")
                _show(console(), makings(out, full))
                return
            if sets and not full:
                raise UsageError(f"--set {sets[0]}: settings are for --full; the small size has its own.")
            if data is not None and not full:
                raise UsageError(f"--data {data}: data sets are for --full; the small size has what it needs.")
            if given := variables():
                raise UsageError(f"{given[0]} is set, and would change what the recipes say. Unset it.")
            artefacts = list(wanted(what))
            if full and what != artefacts[0].name:
                for artefact in [artefact for artefact in artefacts if artefact.recipe.full is None]:
                    say(f"{artefact.name} is left out: it has no --full size.")
                    artefacts.remove(artefact)
            if full:
                check_full(artefacts, data)
            content = checksum(data) if data is not None else None
            every = [Making(artefact, out, seeds, full, sets or (), content) for artefact in artefacts]
            for making in every:
                making.kept.check()
            lacking = {making.artefact.name: lacks for making in every if not full and (lacks := making.lacks)}
            if what in lacking:
                raise UsageError(f"{what} can't be made here. {lacking[what]}")
            failed: dict[str, PacelineError] = {}
            try:
                with _raising():
                    for making in every:
                        name = making.artefact.name
                        if name in lacking:
                            say(f"{name} is left out: {lacking[name]}")
                            continue
                        try:
                            runs = _trained(making, data, sets or (), yes) if full else _shown(making, console())
                            _make(making, runs)
                        except PacelineError as error:
                            if isinstance(error, Stopped) or len(every) == 1:
                                raise
                            failed[name] = error
                            say(f"{name} has failed, the others go on: {type(error).__name__}: {error}", sys.stderr)
            except (KeyboardInterrupt, Stopped):
                say(f"Ended early. Finished runs are kept; this goes on: {_command()}", sys.stderr)
                raise
            say(f"The page is {write_page(out)}.")
            _say_refusals([*makings(out), *makings(out, True)])
            if failed:
                raise type(next(iter(failed.values())))(
                    f"{', '.join(failed)} failed, as said above. Finished runs are kept; this makes the rest: {_command()}"
                )


def _command() -> str:
    """As it was typed."""
    return shlex.join(["paceline", *sys.argv[1:]])


def _make(making: "Making", runs: "Iterable[str]") -> None:
    """Goes through these runs and says what came out."""
    artefact = making.artefact
    say(f"{artefact.name}: {artefact.title}, {making.recipe.shows}")
    for _ in runs:
        pass
    making.seeds = max(making.seeds, making.whole)  # as on the page
    making.write()
    for claim, verdict in zip(making.recipe.claims, making.verdicts(), strict=True):
        say(f"  {verdict}: {claim.says}")
    say(f"  {making.seconds:.0f} s of runs; table, picture and JSON are in {making.folder}")


def _shown(making: "Making", screen: "Console") -> "Iterator[str]":
    """The runs of the small size, behind a bar or a line now and then."""
    from rich.progress import track

    runs, last = len(making.missing), time.monotonic()
    for done, run in enumerate(
        track(making.train(), making.artefact.name, runs, console=screen, disable=not screen.is_interactive)
    ):
        if not screen.is_interactive and time.monotonic() - last >= EVERY:
            last = time.monotonic()
            say(f"  {done + 1} of {runs} runs, the last one: {run}")
        yield run


def _trained(making: "Making", data: str | None, sets: "Sequence[str]", yes: bool) -> "Iterator[str]":
    """The runs of the full size, each shown as `paceline run` shows it."""
    from paceline.cli.run import finish
    from paceline.launch.this_machine.capacity import refuse_too_many

    def go(config: "Config", runs: Path) -> "tuple[RunFolder, Outcome]":
        refuse_too_many(config, yes)
        return finish(config, False, console(), runs=runs)

    assert data is not None
    runs = len(making.missing)
    say(f"  {runs} of {len(making.keys)} runs are left. {_devices()}")
    for done, run in enumerate(making.train_full(data, sets, go), 1):
        say(f"  {done} of {runs}: {run}")
        yield run


def _devices() -> str:
    """What full runs compute on."""
    from paceline.launch.this_machine.processors import DEVICES, VISIBLE, visible_gpus

    gpus = visible_gpus(os.environ, DEVICES)
    if gpus:
        return f"Workers share {len(gpus)} visible GPU{'s' * (len(gpus) > 1)}: {', '.join(gpus)}."
    seen = f"{VISIBLE} is {os.environ[VISIBLE]!r}" if VISIBLE in os.environ else f"there is no {DEVICES}/nvidia0"
    return f"No GPU is visible ({seen}), so workers compute on {os.cpu_count()} CPU cores; expect it to take days or weeks."


def _show(screen: "Console", every: "Sequence[Making]") -> None:
    from rich.table import Column, Table

    from paceline_papers.reproduce.rule import Verdict

    numbers = [Column(head.replace(" ", "\n"), justify="right") for head in ("minutes", *Verdict)]
    table = Table("name, what it shows", "--full needs", *numbers, pad_edge=False, box=None)
    for making in every:
        recipe, done = making.recipe, len(making.keys) - len(making.missing)
        verdicts = making.verdicts() if not making.missing else []
        begun = f" ({done} of {len(making.keys)} runs)" if done and making.missing else ""
        table.add_row(
            f"[bold]{making.artefact.name}[/bold]{begun}\n{recipe.number}: {recipe.shows}",
            recipe.full.needs.partition(":")[0] if recipe.full else "",
            "" if making.minutes is None else f"{making.minutes:.1f}",
            *(str(verdicts.count(each) or "") for each in Verdict),
        )
    screen.print(table)
    _say_refusals(every)
    more = " --full --data PATH" if any(making.is_full for making in every) else ""
    say(f"Make one: paceline reproduce NAME{more}; all of them: paceline reproduce all{more}")


def _say_refusals(every: "Sequence[Making]") -> None:
    for refusal in dict.fromkeys(making.kept.refusal for making in every if making.kept.refusal):
        say(refusal)


@contextmanager
def _raising() -> "Iterator[None]":
    """While entered, SIGTERM raises Stopped, as Ctrl-C raises KeyboardInterrupt: so each block ends what it has started."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped("SIGTERM")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
