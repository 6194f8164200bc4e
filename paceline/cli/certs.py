"""`paceline certs`: the certificates that a run's processes show each other."""

from pathlib import Path
from typing import Annotated

import typer

from paceline.base.terminal import say
from paceline.cli.exits import exits


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
    """Make certificates for --tls DIR: a folder for each process that you name, or one for all. Do it again to renew them."""
    with exits():
        from paceline.rpc.kept_authority import FOLDER, KEY, check_hosts, make_folders, parse_names

        for made in make_folders(folder, parse_names(names or []), check_hosts(hosts or []), days):
            say(f"{made.folder}: {made.name}, called {', '.join(made.hosts)}, valid until {made.until:%Y-%m-%d}")
        what = "the other folders" if names else "ca.crt, tls.crt and tls.key"
        say(f"{folder / FOLDER / KEY} can make more of them: copy {what} to other machines, not this folder.")
