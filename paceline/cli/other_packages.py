"""Commands that other packages bring, by entry points of the group `paceline.commands`; each is a function for typer."""

from typing import TYPE_CHECKING, Any

import typer.main
from typer.core import TyperGroup

from paceline.base.installed_points import installed_points

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "paceline.commands"
ELSEWHERE = {"baseline": "paceline-papers", "reproduce": "paceline-papers"}
"""Commands that were in this package until 0.1, and the package that has them now."""


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
        if cmd_name in ELSEWHERE and not ctx.resilient_parsing:
            package = ELSEWHERE[cmd_name]
            ctx.fail(
                f"paceline {cmd_name} is in the package {package}: pip install {package}, or `make setup` in a checkout."
            )
        return None


def _others() -> "dict[str, EntryPoint]":
    return {point.name: point for point in installed_points(GROUP)}


def _command(point: "EntryPoint") -> Any:
    """Returns what typer makes of the function; it has the entry point's name."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(point.name)(point.load())
    return typer.main.get_command(app)
