"""`paceline token`: signed tokens for those who may do something in a run, and another secret for it."""

from pathlib import Path
from typing import Annotated

import typer

from paceline.base.terminal import say
from paceline.cli.arguments import Run
from paceline.cli.exits import exits
from paceline.core.errors import UsageError
from paceline.rpc.roles import Role


def token(
    name: Run = None,
    role: Annotated[
        Role | None,
        typer.Option(
            help="What it opens: a reader looks and pulls, a worker trains under its name, an admin does everything."
        ),
    ] = None,
    who: Annotated[
        str,
        typer.Option("--name", help="Whose it is: a worker's is worker-3, or worker-* for any; others may have one."),
    ] = "",
    days: Annotated[float, typer.Option(min=0.0, help="Days until it expires.")] = 1.0,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="File for it, which only you can read; default: shown."),
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File with the run's secret, where the run is not of this machine; RUN is its name."
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace-secret", help="Give the run another secret; tokens of the old one stay valid for a minute."
        ),
    ] = False,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="With --replace-secret: tokens of the old secret are worthless.")
    ] = False,
) -> None:
    """Make a token for a run: who shows it may do what its role says, until it expires. Give it as --token-file."""
    with exits():
        if replace == (role is not None):
            raise UsageError(
                "Say which token to make, --role reader for example, or --replace-secret for another secret."
            )
        if at_once and not replace:
            raise UsageError("--at-once goes with --replace-secret.")
        if replace:
            _replace(name, secret_file, at_once)
            return
        from paceline.launch.folder.run_tokens import made

        text = made(name, secret_file, str(role), who, days * 86400.0)
        if out is None:
            print(text, end="")
            return
        from paceline.rpc.token_file import write_token_file

        try:
            write_token_file(out, text)
        except OSError as error:
            raise UsageError(f"Can't write {out}: {error.strerror}. Name another file with -o.") from error
        say(f"wrote {out}; give it with --token-file")


def _replace(name: str | None, secret_file: Path | None, at_once: bool) -> None:
    from paceline.launch.folder.run_folder import find_run
    from paceline.launch.folder.run_tokens import replace_secret
    from paceline.rpc.token_file import OVERLAP

    if secret_file is not None:
        raise UsageError(
            "--replace-secret takes a run of this machine; elsewhere, write another secret in its place (docs/security.md)."
        )
    folder = find_run(name)
    replace_secret(folder, 0.0 if at_once else OVERLAP)
    old = (
        "its tokens are worthless"
        if at_once
        else "its tokens stay valid for a minute, and processes get new ones meanwhile"
    )
    say(f"run {folder.name} has another secret. Of the old one: {old}.")
