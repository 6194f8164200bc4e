"""Links of a known speed between processes of one machine: a network namespace for each node, all joined by one switch."""

import ctypes
import math
import os
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from paceline.core.errors import UsageError

Command = tuple[str, ...]
UNLIMITED = math.inf
BURST = 0.002
"""What passes at once, at least two packets; the kernel's timers are not much finer (seconds)."""
PACKETS = 3028
"""Two packets (bytes)."""
QUEUE = "400ms"
"""Longest that a packet waits for its turn; what comes then is dropped, as at a real switch."""
INTERFACE = "eth0"
"""A node's only one besides its loopback."""
NEEDED = (
    "It takes Linux with network namespaces, bridge, veth and tbf, the programs ip and tc (iproute2) and nsenter (util-linux), "
    "and root (CAP_NET_ADMIN and CAP_SYS_ADMIN)."
)
_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of sched.h."""


class Traffic(NamedTuple):
    """What has gone through a node's link, headers included (bytes)."""

    sent: int
    received: int


class Node(NamedTuple):
    """One end of the network, as the processes that live there need it."""

    namespace: str
    """Path of the network namespace."""
    address: str

    def enter(self) -> None:
        """Moves this process into the node; before it starts threads and opens sockets, which stay where they are."""
        with open(self.namespace, "rb") as namespace:
            _call("setns", namespace.fileno(), _NEW_NETWORK)


class Network:
    """Nodes whose links let through what they are said to, in either direction; others are not in the way, latency is the
    machine's own. A context. The namespaces have no names and live no longer than this process and those in them, so nothing
    can be left over. UsageError where this machine or user can't have one."""

    def __init__(self, rates: Mapping[str, float]) -> None:
        """`rates`: each node's name and its link's speed (bit/s)."""
        self._rates = rates
        self._held = ExitStack()
        self.nodes: dict[str, Node] = {}

    def __enter__(self) -> Self:
        with ExitStack() as held:
            switch, *others = (_namespace(held) for _ in range(1 + len(self._rates)))
            self.nodes = nodes(dict(zip(self._rates, others, strict=True)))
            for command in commands(self._rates, self.nodes, switch):
                _do(command)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()


def nodes(namespaces: Mapping[str, str]) -> dict[str, Node]:
    """Where each name lives; no one else sees their addresses."""
    return {name: Node(path, f"10.99.0.{place}") for place, (name, path) in enumerate(namespaces.items(), 1)}


def commands(rates: Mapping[str, float], nodes: Mapping[str, Node], switch: str) -> list[Command]:
    """What joins the nodes, in order. UsageError: more nodes than there are addresses, or a link that nothing can pass."""
    if len(rates) > 254 or not all(rate > 0 for rate in rates.values()):
        raise UsageError(f"Got {len(rates)} links of {min(rates.values()):g} bit/s or more; at most 254, above 0.")
    made = [
        _within(switch, "ip", "link", "add", "bridge", "type", "bridge"),
        _within(switch, "ip", "link", "set", "bridge", "up"),
    ]
    for place, (name, (own, address)) in enumerate(nodes.items()):
        port = f"port{place}"
        made += [
            _within(switch, "ip", "link", "add", port, "type", "veth", "peer", "name", INTERFACE, "netns", own),
            _within(switch, "ip", "link", "set", port, "master", "bridge", "up"),
            _within(own, "ip", "addr", "add", f"{address}/24", "dev", INTERFACE),
            _within(own, "ip", "link", "set", INTERFACE, "up"),
            _within(own, "ip", "link", "set", "lo", "up"),
        ]
        if rates[name] != UNLIMITED:
            made += [_shape(own, INTERFACE, rates[name]), _shape(switch, port, rates[name])]
    return made


def _shape(namespace: str, interface: str, rate: float) -> Command:
    """What leaves by this interface does so at the rate."""
    burst = max(PACKETS, round(rate / 8 * BURST))
    bucket = ("rate", f"{rate:.0f}bit", "burst", f"{burst}b", "latency", QUEUE)
    return _within(namespace, "tc", "qdisc", "add", "dev", interface, "root", "tbf", *bucket)


def _within(namespace: str, *command: str) -> Command:
    return ("nsenter", f"--net={namespace}", *command)


def _namespace(held: ExitStack) -> str:
    """The path of a new network namespace, for as long as `held` is open: a thread moves into one, we hold on to it, and the
    thread ends."""

    def made() -> int:
        _call("unshare", _NEW_NETWORK)
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY)

    with ThreadPoolExecutor(1) as thread:
        descriptor = thread.submit(made).result()
    held.callback(os.close, descriptor)
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def _call(name: str, *words: int) -> None:
    """A call of the C library. UsageError where it is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, name) or libc[name](*words):
        said = os.strerror(ctypes.get_errno()) if hasattr(libc, name) else "there is no such call"
        raise UsageError(f"Can't emulate links: {name} of a network namespace said: {said}. {NEEDED}")


def _do(command: Command) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        said = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        said = str(error)
    if said:
        raise UsageError(f"Can't emulate links: `{' '.join(command)}` said: {said}. {NEEDED}")


def missing() -> str:
    """Why this machine or user can't have emulated links; empty where it can."""
    try:
        with Network({"probe": 1e6}):
            return ""
    except UsageError as error:
        return str(error)


def traffic(table: str | None = None) -> Traffic:
    """Of the node that this process is in; `table`: what /proc/net/dev holds."""
    lines = (Path("/proc/net/dev").read_text() if table is None else table).splitlines()
    (numbers,) = (line.split(":")[1].split() for line in lines if line.strip().startswith(f"{INTERFACE}:"))
    return Traffic(sent=int(numbers[8]), received=int(numbers[0]))
