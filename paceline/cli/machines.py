"""Options and the command by which other machines take part in a run."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.base.terminal import say
from paceline.base.variables import KEY, TLS
from paceline.cli.arguments import Device
from paceline.cli.exits import exits
from paceline.core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from paceline.core.settings.config import Config
    from paceline.launch.other_machines.listening import Listening

_SERVED = ("data.source=server",)
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
        help="With --listen: how many of the run's workers (-w) this machine starts itself; default: none.",
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
        help="With --listen: port for machines that join; default: 7077, or a free port if 7077 is in use.",
        rich_help_panel="Several machines",
    ),
]
ListenAddress = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST",
        help="With --listen: IP or name under which the others reach this machine; default: found automatically.",
        rich_help_panel="Several machines",
    ),
]
HostsFile = Annotated[
    Path | None,
    typer.Option(
        "--hosts",
        metavar="FILE",
        help="Start on the machines in this file by ssh; a line is NAME [workers=N] [servers=N] [python=PROGRAM].",
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
        from paceline.launch.other_machines.listening import Listening, check_listening
        from paceline.launch.other_machines.ssh import read_hosts

        wish = Listening(
            port=self.port,
            address=self.address or "",
            workers_here=self.here or 0,
            servers_here=self.servers_here,
            hosts=() if self.hosts is None else read_hosts(self.hosts),
            options=self._words(),
        )
        check_listening(config, wish, TLS in os.environ)
        return wish

    def part_here(self, config: "Config") -> "Config":
        """The run as far as this machine starts its workers and servers."""
        if not self.are_wanted:
            return config
        servers = config.servers if self.servers_here is None else self.servers_here
        return config.model_copy(update={"workers": self.here or 0, "servers": servers})

    def _words(self) -> str:
        """The options on a command line."""
        given = {**self._details(), "--hosts": self.hosts}
        words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
        return shlex.join(["--listen"] * self.listen + words)

    def _details(self) -> dict[str, int | str | None]:
        """How to listen, by option."""
        return {
            "--here": self.here,
            "--servers-here": self.servers_here,
            "--port": self.port,
            "--address": self.address,
        }

    def _refuse_details(self) -> None:
        """UsageError where an option says how to listen, and none says that the run listens."""
        if said := [name for name, value in self._details().items() if value is not None]:
            raise UsageError(f"{said[0]} needs --listen or --hosts; without them the run uses this machine only.")


def served(what: str | None, sets: Sequence[str]) -> Sequence[str]:
    """Settings of the data where other machines take part; none where a script brings it, as a run that goes on says in its
    config.yaml, and a task is no script, and where shards are in an object store, as settings or a task's own file say.
    `sets`: what else was set. ConfigError: the file can't be read."""
    from paceline.launch.settings.read_config import ENDINGS
    from paceline.settings.load_settings import read_yaml
    from paceline.tasks.written_settings import written_settings

    data: Any = None
    if what is not None and what.endswith(ENDINGS):
        data = read_yaml(Path(what)).get("data")
    elif what is not None and what.endswith(".py"):
        with suppress(ConfigError):  # a value that is computed; `read_config` says what is wrong
            data = written_settings(Path(what), None, {}).get("data")
    found = data if isinstance(data, Mapping) else {}
    is_stored = bool(found.get("shards_at")) or any(each.startswith("data.shards_at=") for each in sets)
    return () if is_stored or found.get("source") == "script" else _SERVED


def refuse_machines(machines: "Listening | None", option: str) -> None:
    """UsageError where an option goes with runs on one machine only."""
    if machines is not None:
        raise UsageError(f"{option} trains on this machine only; leave out --listen and --hosts.")


def join(
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOST:PORT]",
            help="Where the run listens, as it printed it, or the file of `paceline k8s key`; not needed in a Slurm job.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help=f"The key that the run printed, better in {KEY}: all users see options in ps; - reads it from stdin.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "-w",
            "--workers",
            help="Workers to lend; default: one for each GPU, or one for each core if there is no GPU.",
            min=0,
        ),
    ] = None,
    servers: Annotated[int, typer.Option("-s", "--servers", help="Servers to lend.", min=0)] = 0,
    device: Device = "auto",
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST", help="IP or name under which the others reach this machine; default: found automatically."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of this machine in the run; default: its host name.")] = None,
    patience: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Longest that the run's machine may be away; default: 60 (docs/run/outside-workers.md: on Kubernetes).",
        ),
    ] = None,
) -> None:
    """Lend this machine's workers to a run on another machine.

    Of `paceline run --listen`, or on Kubernetes (`paceline k8s key`); ends with the run."""
    with exits():
        from paceline.launch.folder.cluster_key import ClusterKey
        from paceline.launch.other_machines.agent import PATIENCE, make_offer, read_key
        from paceline.launch.other_machines.agent import join as go
        from paceline.launch.other_machines.hosts import lent
        from paceline.launch.other_machines.join_cluster import join as join_cluster
        from paceline.launch.other_machines.key import JoinKey
        from paceline.launch.other_machines.reach_head import address_of
        from paceline.launch.other_machines.slurm import this_task, wait_for_run

        task = this_task(os.environ)
        if where is None and task is None:
            raise UsageError(
                "Missing argument 'HOST:PORT': the address that the run listens on. Copy it from the line that the run "
                "printed."
            )
        offer, why = make_offer(workers, servers, device, address or "", name or "", task)
        _say(f"this machine lends {lent(offer.workers, offer.servers)} ({why}), device {offer.device}")
        if where is not None and Path(where).is_file():
            if key is not None:
                raise UsageError(f"--key: the file {where} is the key itself; leave out --key.")
            sys.exit(join_cluster(ClusterKey.read(Path(where)), offer, patience, _say))
        if where is None and task is not None:
            where, found = wait_for_run(task, _say)
        else:
            found = read_key(key, os.environ)
            os.environ.pop(KEY, None)  # scripts of the run don't need it
            if key not in (None, "-"):
                _say(
                    f"note: all users of this machine see --key in the list of processes; better: {KEY}=... paceline join"
                )
        sys.exit(
            go(address_of(str(where)), JoinKey.read(found), offer, PATIENCE if patience is None else patience, _say)
        )


def _say(text: str) -> None:
    say(f"paceline join: {text}")
