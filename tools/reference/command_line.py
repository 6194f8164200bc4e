"""The page of the command line: what each command's --help says."""

import itertools
import re
import textwrap
from typing import Any

import typer.main
from typer.core import TyperCommand, TyperGroup

from paceline.cli.__main__ import app
from paceline.cli.other_packages import ELSEWHERE, Commands

HEAD = """# Command line

Made by `make pages` from what the commands say at `--help`. Every setting of [the
list](docs/reference/settings.md) can be given as `--set key=value`. Exit codes are on the page of
[errors](docs/reference/errors.md).

`paceline --version` shows the release. `paceline --install-completion` teaches your shell to
complete what you type, and `--show-completion` prints what that would write.
"""


def page() -> str:
    """The whole page; its links are from the repository's root."""
    command = typer.main.get_command(app)
    return HEAD + "".join(_section(command, "paceline"))


def commands_of(group: TyperGroup) -> dict[str, Any]:
    """Returns the commands that the guide is about: the group's own, and those of the packages for Kubernetes and studies."""
    others = [name for name, package in ELSEWHERE.items() if package != "paceline-papers"]
    context = typer.Context(group)
    return {
        **group.commands,
        **{name: group.get_command(context, name) for name in others if isinstance(group, Commands)},
    }


def _section(command: Any, name: str, parent: typer.Context | None = None) -> list[str]:
    context = typer.Context(command, info_name=name.rpartition(" ")[2], parent=parent)
    if isinstance(command, TyperGroup):
        own = [f"\n## `{name}`\n\n{_sentence(command)}\n"] if parent else []
        return own + [
            line
            for key, inner in commands_of(command).items()
            if not inner.hidden
            for line in _section(inner, f"{name} {key}", context)
        ]
    pieces = " ".join(command.collect_usage_pieces(context))
    head = f"\n## `{name}`\n\n{_sentence(command)}\n\n```text\n{name} {pieces}\n```\n"
    return [head, *_options(command, context)]


def _options(command: TyperCommand | TyperGroup, context: typer.Context) -> list[str]:
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            rows.append(f"| `{_cell(record[0])}` | {_prose(record[1])} |")
    return ["\n| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"] if rows else []


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _prose(text: str) -> str:
    """A help text for Markdown, with the default inside its sentence; its long lists of names are shown as code."""
    text = re.sub(r"\.\s+(\[[^\[\]]*\])$", r" \1.", text)
    pieces = re.split(r"((?:\w[\w-]*, ){4,}[\w-]+)", _cell(text))
    return "".join(
        f"`{piece}`" if is_list else re.sub(r"([\[\]<*_])", r"\\\1", piece)
        for piece, is_list in zip(pieces, itertools.cycle((False, True)), strict=False)
    )


def _sentence(command: TyperCommand | TyperGroup) -> str:
    return textwrap.fill(" ".join((command.help or "").replace("\b", "").split()), 100)
