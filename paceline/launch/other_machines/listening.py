"""Opens a run to other machines: keys, the door, and what its launcher needs to know of them."""

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial

from paceline.base.variables import KEY, TLS
from paceline.core.errors import UsageError
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.folder.run_tokens import token_text
from paceline.launch.other_machines.hosts import Hosts
from paceline.launch.other_machines.lent import LentProcesses
from paceline.launch.other_machines.private_folder import KEYS, private_folder
from paceline.launch.other_machines.slurm import told_to_tasks
from paceline.launch.other_machines.ssh import SshHost, begin_by_ssh
from paceline.launch.settings.read_config import use_keys
from paceline.launch.supervise.others import Others
from paceline.launch.this_machine.free_ports import FreePorts, is_free
from paceline.rpc.listening import with_port

PORT = 7077
"""Where other machines come in if nobody says another port and this one is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """How a run is open to other machines."""

    port: int | None = None
    """None: the usual one, or a free one where that is taken."""
    address: str = ""
    """Under which other machines reach this one; empty: found out."""
    workers_here: int = 0
    servers_here: int | None = None
    """None: all of them."""
    hosts: Sequence[SshHost] = ()
    """Machines to begin on by ssh."""
    options: str = "--listen"
    """The same on a command line."""


def check_listening(config: Config, wish: Listening, has_keys: bool) -> None:
    """UsageError: what was asked for does not go together."""
    if has_keys:
        raise UsageError(
            "A run with --listen makes TLS keys for all its machines itself; leave out --tls (PACELINE_TLS)."
        )
    if not 0 <= wish.workers_here <= config.workers:
        raise UsageError(
            f"--here {wish.workers_here}: the run has {config.workers} workers (-w); expected 0 to {config.workers}."
        )
    servers = config.server_processes
    if wish.servers_here is not None and not 1 <= wish.servers_here <= servers:
        raise UsageError(
            f"--servers-here {wish.servers_here}: expected 1 to {servers} (the run's servers, -s); server 0 "
            "always runs here."
        )


@contextmanager
def listening(config: Config, folder: RunFolder, wish: Listening) -> Iterator[Others]:
    """Other machines may join while this is open; all keys are forgotten at the end."""
    from paceline.launch.other_machines.door import Door, HostServicer, own_addresses
    from paceline.launch.other_machines.packed_files import packed
    from paceline.rpc.certificates import Authority
    from paceline.rpc.key_files import write_keys

    known = own_addresses()
    address = wish.address or known[0]
    with ExitStack() as stack:
        files = cache(lambda: packed(config, folder.path))
        files()  # what can't be sent is said before anything is started
        authority = Authority.new()
        keys = stack.enter_context(private_folder(KEYS))
        pair = authority.pair(dict.fromkeys([address, *known]))
        use_keys(write_keys(keys, authority.certificate, *pair))
        stack.callback(os.environ.pop, TLS, None)
        servers_here = config.server_processes if wish.servers_here is None else wish.servers_here
        wanted = {"worker": config.workers - wish.workers_here, "server": config.server_processes - servers_here}
        hosts = Hosts(folder.name, wanted, time.monotonic)
        servicer = HostServicer(hosts, authority, partial(token_text, folder), folder.name, files, folder.models)
        door = Door(usual_port(config) if wish.port is None else wish.port, servicer)
        stack.callback(door.close)
        where = with_port(address, door.port)
        also: Sequence[Callable[[], Sequence[str]]] = ()
        told = stack.enter_context(told_to_tasks(os.environ, where, door.key.text()))
        if wish.hosts:
            also = [stack.enter_context(begin_by_ssh(wish.hosts, where, door.key, hosts, folder.log))]
        yield LentProcesses(
            hosts,
            workers_here=wish.workers_here,
            servers_here=servers_here,
            address=address,
            command=f"{KEY}={door.key.text()} paceline join {where}"
            if told is None
            else f"srun paceline join  # in this job; address and key are in {told}",
            name=socket.gethostname(),
            limit=config.start_timeout,
            also=also,
            options=wish.options,
        )


def usual_port(config: Config) -> int:
    """The usual one, or a free one where that is taken. ConfigError: `ports` names some, and none of them is free."""
    return PORT if is_free(PORT) else FreePorts(config.ports).take()
