"""`paceline keys`: signed tokens for those who may do something in a run, and the certificates that its processes show each
other."""

from pathlib import Path
from typing import Annotated

import typer

from paceline.base.terminal import say
from paceline.cli.arguments import Run
from paceline.cli.exits import exits
from paceline.core.errors import UsageError
from paceline.rpc.roles import Role

app = typer.Typer(help="Make tokens and certificates for a run.", no_args_is_help=True)


@app.command()
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
    """Make a token for a run, or give it another secret.

    Who shows the token (--token-file) may do what its role says, until it expires."""
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


@app.command()
def certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the keys; it also keeps their authority.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME[=HOST,...]]...",
            help="A process (server-0, worker-3, evaluator, admin) and what others call it by; without names, one certificate "
            "for all.",
        ),
    ] = None,
    hosts: Annotated[
        list[str] | None, typer.Option("--host", help="IP or host name of all of them, besides this machine's own.")
    ] = None,
    days: Annotated[float, typer.Option(min=0.01, max=3650, help="Days until they expire.")] = 365.0,
) -> None:
    """Make certificates for --tls DIR, or renew them.

    Each process that you name gets a folder; without names there is one for all."""
    with exits():
        from paceline.rpc.kept_authority import FOLDER, KEY, check_hosts, make_folders, parse_names

        for made in make_folders(folder, parse_names(names or []), check_hosts(hosts or []), days):
            say(f"{made.folder}: {made.name}, called {', '.join(made.hosts)}, valid until {made.until:%Y-%m-%d}")
        what = "the other folders" if names else "ca.crt, tls.crt and tls.key"
        say(f"{folder / FOLDER / KEY} can make more of them: copy {what} to other machines, not this folder.")


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
