"""The command `paceline`. Only what reads a command line is imported here, so that help and mistakes show at once."""

import os
from typing import Annotated

import typer

from paceline.cli import keys
from paceline.cli.completions import ASKED_BY, without_blank
from paceline.cli.doctor import doctor
from paceline.cli.machines import join
from paceline.cli.model_commands import export, predict, pull, serve
from paceline.cli.other_packages import AFTER, BEFORE, LOOK, TOGETHER, TRAIN, Commands
from paceline.cli.run_commands import audit, report, set_, status, stop
from paceline.cli.shard import shard
from paceline.cli.train_commands import demo, launch, local, run
from paceline.core.errors import UsageError
from paceline.launch.this_machine.leave import leave
from paceline.processes.exits import USAGE_OF_TYPER

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train with several workers and servers. COMMAND --help says more; --version.",
)


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


app.command(rich_help_panel=TRAIN)(run)
app.command(rich_help_panel=TRAIN, context_settings={"allow_interspersed_args": False})(launch)
app.command(rich_help_panel=TRAIN)(local)
app.command(rich_help_panel=TRAIN)(demo)
app.command(rich_help_panel=LOOK)(status)
app.command(rich_help_panel=LOOK)(doctor)
app.command("set", rich_help_panel=LOOK)(set_)
app.command(rich_help_panel=LOOK)(stop)
app.command(rich_help_panel=BEFORE)(shard)
app.command(rich_help_panel=AFTER)(report)
app.command(rich_help_panel=AFTER)(audit)
app.command(rich_help_panel=AFTER)(predict)
app.command(rich_help_panel=AFTER)(export)
app.command(rich_help_panel=AFTER)(pull)
app.command(rich_help_panel=AFTER)(serve)
app.command(rich_help_panel=TOGETHER)(join)
app.add_typer(keys.app, name="keys", rich_help_panel=TOGETHER)


def main() -> None:
    """The entry point, with the exit codes of all Paceline processes."""
    try:
        with without_blank(os.environ.get(ASKED_BY)):
            app(prog_name="paceline")
    except SystemExit as end:
        leave(UsageError.exit_code if end.code == USAGE_OF_TYPER else end.code)


if __name__ == "__main__":
    main()
