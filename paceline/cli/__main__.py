"""The command `paceline`. Only what reads a command line is imported here, so that help and mistakes show at once."""

import os
from typing import Annotated

import typer

from paceline.cli import k8s
from paceline.cli.certs import certs
from paceline.cli.compare import compare
from paceline.cli.completions import ASKED_BY, without_blank
from paceline.cli.explain import doctor, explain
from paceline.cli.machines import join
from paceline.cli.model_commands import export, predict, pull, serve
from paceline.cli.other_packages import Commands
from paceline.cli.plan import plan
from paceline.cli.prepare_commands import shard, shard_report
from paceline.cli.run_commands import audit, report, set_, status, stop
from paceline.cli.simulate import simulate
from paceline.cli.token import token
from paceline.cli.train_commands import demo, launch, local, run, search
from paceline.core.errors import UsageError
from paceline.launch.this_machine.leave import leave
from paceline.processes.exits import USAGE_OF_TYPER

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Paceline trains a model with several workers and servers, in lock-step or as loosely as you like.",
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


app.add_typer(k8s.app, name="k8s")
app.command()(run)
app.command(context_settings={"allow_interspersed_args": False})(launch)
app.command()(search)
app.command()(compare)
app.command()(status)
app.command()(explain)
app.command()(doctor)
app.command()(stop)
app.command()(report)
app.command()(audit)
app.command("set")(set_)
app.command()(token)
app.command()(certs)
app.command()(shard)
app.command("shard-report")(shard_report)
app.command()(plan)
app.command()(simulate)
app.command()(local)
app.command()(join)
app.command()(predict)
app.command()(export)
app.command()(pull)
app.command()(serve)
app.command()(demo)


def main() -> None:
    """The entry point, with the exit codes of all Paceline processes."""
    try:
        with without_blank(os.environ.get(ASKED_BY)):
            app(prog_name="paceline")
    except SystemExit as end:
        leave(UsageError.exit_code if end.code == USAGE_OF_TYPER else end.code)


if __name__ == "__main__":
    main()
