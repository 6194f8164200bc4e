"""Options and the command by which other machines take part in a run."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.arguments import Device
from paceline.cli.exits import exits
from paceline.core.errors import UsageError
from paceline.terminal import say
from paceline.variables import KEY, TLS

if TYPE_CHECKING:
    from paceline.core.settings.config import Config
    from paceline.hosts.listening import Listening

SERVED = ("data.source=server",)
"""Machines that join have no folder of shards in common."""
Listen = Annotated[
    bool,
    typer.Option(
        "--listen",
        help="Let other machines lend workers: prints the command to type there (docs/run/several-machines.md).",
        rich_help_panel="Several machines",
    ),
]
Here = Annotated[
    int | None,
    typer.Option(
        "--here",
        metavar="N",
        help="With --listen: workers that this machine starts itself, of the -w of the run; default: none.",
        rich_help_panel="Several machines",
    ),
]
ServersHere = Annotated[
    int | None,
    typer.Option(
        "--servers-here",
        metavar="N",
        help="With --listen: servers on this machine; default: all of them.",
        rich_help_panel="Several machines",
    ),
]
ListenPort = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=1,
        max=65535,
        help="With --listen: port for machines that join; default: 7077, or a free one where that is taken.",
        rich_help_panel="Several machines",
    ),
]
ListenAddress = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST",
        help="With --listen: IP or name by which the others reach this machine; default: found out.",
        rich_help_panel="Several machines",
    ),
]
HostsFile = Annotated[
    Path | None,
    typer.Option(
        "--hosts",
        metavar="FILE",
        help="Begin on the machines of this file by ssh: a line each, NAME [workers=N] [servers=N] [python=PROGRAM].",
        rich_help_panel="Several machines",
    ),
]


@dataclass(frozen=True, slots=True)
class Machines:
    """Options by which other machines take part."""

    listen: Listen = False
    here: Here = None
    servers_here: ServersHere = None
    port: ListenPort = None
    address: ListenAddress = None
    hosts: HostsFile = None

    @property
    def are_wanted(self) -> bool:
        """Whether the run is not on this machine alone."""
        return self.listen or self.hosts is not None

    def checked(self, config: "Config") -> "Listening | None":
        """What the options say; None: the run is on this machine alone. UsageError."""
        if not self.are_wanted:
            self._refuse_details()
            return None
        from paceline.hosts.listening import Listening, check_listening
        from paceline.hosts.ssh import read_hosts

        wish = Listening(
            port=self.port,
            address=self.address or "",
            workers_here=self.here or 0,
            servers_here=self.servers_here,
            hosts=() if self.hosts is None else read_hosts(self.hosts),
        )
        check_listening(config, wish, TLS in os.environ)
        return wish

    def _refuse_details(self) -> None:
        """UsageError where an option says how to listen, and none says that the run listens."""
        details = {
            "--here": self.here,
            "--servers-here": self.servers_here,
            "--port": self.port,
            "--address": self.address,
        }
        if said := [name for name, value in details.items() if value is not None]:
            raise UsageError(f"{said[0]} goes with --listen or --hosts; this run is on this machine alone.")


def refuse_machines(machines: "Listening | None", option: str) -> None:
    """UsageError where an option goes with runs on one machine only."""
    if machines is not None:
        raise UsageError(f"{option} trains on this machine alone; leave --listen and --hosts out.")


def join(
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOST:PORT]", help="Where the run listens, as it has printed; not needed in a Slurm job."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help=f"The key that the run has printed; - reads it from stdin; default: {KEY}."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("-w", "--workers", help="Workers to lend; default: one for each GPU, else for each core.", min=0),
    ] = None,
    servers: Annotated[int, typer.Option("-s", "--servers", help="Servers to lend.", min=0)] = 0,
    device: Device = "auto",
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="IP or name by which the others reach this machine; default: found out."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What to call this machine; default: its own name.")] = None,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long the run's machine may be gone before this one gives up.")
    ] = 60.0,
) -> None:
    """Lend this machine's workers to a run on another one (`paceline run --listen`); ends with the run."""
    with exits():
        from paceline.hosts.agent import join as go
        from paceline.hosts.hosts import lent
        from paceline.hosts.key import JoinKey
        from paceline.hosts.offer import make_offer, read_key
        from paceline.hosts.reach_head import address_of
        from paceline.hosts.slurm import this_task, wait_for_run

        task = this_task(os.environ)
        if where is None and task is None:
            raise UsageError("Missing argument 'HOST:PORT': where the run listens, as it has printed.")
        offer, why = make_offer(workers, servers, device, address or "", name or "", task)
        _say(f"this machine lends {lent(offer.workers, offer.servers)} ({why}), device {offer.device}")
        if where is None and task is not None:
            where, found = wait_for_run(task, _say)
        else:
            found = read_key(key, os.environ)
        sys.exit(go(address_of(str(where)), JoinKey.read(found), offer, patience, _say))


def _say(text: str) -> None:
    say(f"paceline join: {text}")
