"""The commands of `paceline`: its own, earlier names for them, and those that other packages bring by entry points of the group
`paceline.commands`, each a function for typer, or a typer.Typer with one that is in another panel, or with several."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer.main
from typer.core import TyperGroup

from paceline.base.installed_points import installed_points, not_loaded
from paceline.cli.exits import exits
from paceline.core.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "paceline.commands"
ELSEWHERE = {
    "baseline": "paceline-papers",
    "compare": "paceline-studies",
    "k8s": "paceline-k8s",
    "plan": "paceline-studies",
    "reproduce": "paceline-papers",
    "search": "paceline-studies",
    "simulate": "paceline-studies",
}
"""Commands that were in this package before 0.1.0, and the package that has them now."""
MOVED = {
    "explain": ("doctor",),
    "shard-report": ("report",),
    "token": ("keys", "token"),
    "certs": ("keys", "certs"),
}
"""Names before 0.1.0, which go on for one release, and what the commands are called now."""
TRAIN, LOOK, BEFORE, TOGETHER = "Train", "Look and change", "Before a run", "Machines and keys"
"""Panels of the help."""
AFTER = "After a run"
"""The panel of a function that an entry point names."""


class Commands(TyperGroup):
    """This package's commands, then those of others. Others are imported where they are run or listed, not before."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns all names, in the order of the help."""
        return [*super().list_commands(ctx), *sorted(_others())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns the command, or None where nobody has it; ends with a sentence where a package has it that is not here."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own

        others = _others()
        if cmd_name in others:
            return _command(others[cmd_name])
        if cmd_name in MOVED:
            if not ctx.resilient_parsing:  # of a completion
                print(f"paceline {cmd_name} is now: paceline {' '.join(MOVED[cmd_name])}", file=sys.stderr)
            return self._moved(ctx, *MOVED[cmd_name])
        if cmd_name in ELSEWHERE and not ctx.resilient_parsing:
            package = ELSEWHERE[cmd_name]
            ctx.fail(
                f"paceline {cmd_name} is in the package {package}: pip install {package}, or `make setup` in a checkout."
            )
        return None

    def _moved(self, ctx: Any, first: str, *others: str) -> Any:
        command: Any = super().get_command(ctx, first)
        for name in others:
            command = command.get_command(ctx, name)
        return command

    def get_params(self, ctx: Any) -> list[Any]:
        """Returns the options, of which --help lists none: its first line names those that matter."""
        params: list[Any] = super().get_params(ctx)
        for param in params:
            param.hidden = not ctx.resilient_parsing  # a completion proposes them
        return params


def _others() -> "dict[str, EntryPoint]":
    return {point.name: point for point in installed_points(GROUP)}


def _command(point: "EntryPoint") -> Any:
    """Returns what typer makes of it; it has the entry point's name."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    try:
        work = point.load()
    except Exception as error:  # anything that another package's file does as it is imported
        any_arguments = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(point.name, context_settings=any_arguments)(_broken(point, error))
    else:
        if isinstance(work, typer.Typer):
            group: Any = typer.main.get_group(work)
            is_one = len(group.commands) == 1 and work.registered_callback is None
            command: Any = next(iter(group.commands.values())) if is_one else group
            command.name = point.name
            command.rich_help_panel = work.rich_help_panel or AFTER
            return command
        app.command(point.name)(work)

    command = typer.main.get_command(app)
    command.rich_help_panel = AFTER
    return command


def _broken(point: "EntryPoint", error: Exception) -> Callable[[], None]:
    """Returns a command that says why there is none."""

    def work() -> None:
        with exits():
            raise ConfigError(f"paceline {point.name} is in {not_loaded(point, error)}")

    package = point.dist.name if point.dist is not None else point.module
    work.__doc__ = f"Can't be loaded: {type(error).__name__} in {package}."
    return work
