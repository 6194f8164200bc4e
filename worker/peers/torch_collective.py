"""Gradients added up by torch.distributed, as far as a policy wants that (allreduce, `by: torch`)."""

import math
import os
import queue
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from paceline.core import kernels
from paceline.core.errors import BadPush, ConfigError
from paceline.core.peers.peer_policy import Meeting, Message, PeerPolicy
from paceline.core.values import Vector
from paceline.rpc.auth import Credentials

c10d: Any = dist
"""What stubs leave out."""
_LOOK = 0.02
"""Time between two looks whether the others have come (seconds)."""
_GLANCE = 0.0005
"""The same while a GPU adds up (seconds)."""
_CONNECT = timedelta(seconds=30)
"""Longest that those who have come may take to connect."""
_ADD = timedelta(seconds=300)
"""Longest wait for the others in one round. Who dies is noticed at once, or when the lease has lapsed."""
_WORD = 3.0
"""Longest wait, once a group has failed, for the chief's word that a member has left: more than a heartbeat (seconds)."""
_CPU = "cpu"
Act = Callable[[Callable[[PeerPolicy], list[Message]]], None]
"""Does something with the policy, under its driver's lock, and sends the messages."""
T = TypeVar("T")


class Collective:
    """Follows a policy's meetings: a group for each, in its own thread. Both are abandoned as soon as the policy goes on
    without them, since Gloo can't cancel an operation. Not thread-safe. Raises ConfigError if torch can't do that here, or the
    run has TLS, which torch.distributed does not support."""

    def __init__(
        self, elements: int, device: torch.device, credentials: Credentials, act: Act, say: Callable[..., None]
    ) -> None:
        """`elements`: of a gradient; `device`: where this worker computes; `act`: takes the lock that `follow` is called in."""
        if not (dist.is_available() and dist.is_gloo_available()):
            raise ConfigError(
                "policy.by is torch, but this torch was built without torch.distributed or without Gloo. Set policy.by=ring, "
                "or install a torch that has both."
            )
        if credentials.tls is not None:
            raise ConfigError(
                "policy.by is torch, but torch.distributed encrypts nothing, and this run has TLS. Set policy.by=ring, or run "
                "without --tls."
            )
        self._elements = elements
        self._device = device
        self._act = act
        self._say = say
        self._team: _Team | None = None
        say("gradients are sent over torch.distributed, which asks for no token and encrypts nothing")

    def follow(self, meeting: Meeting | None, addresses: Mapping[int, str]) -> None:
        """The policy's meeting just now, and where its members are (host:port). Never blocks."""
        if self._team is not None and not self._team.meeting.is_same(meeting):
            self._team.leave()
            self._team = None
        if meeting is None or meeting.round is None or not addresses.keys() >= set(meeting.members):
            return
        if self._team is None:
            hosts = [addresses[member].rpartition(":")[0].strip("[]") for member in meeting.members]
            self._team = _Team(meeting, hosts, self._elements, self._device, self._act, self._say)
        self._team.take(meeting)


class _Left(Exception):
    """The policy goes on without this group."""


class _Team:
    """One meeting: forms the group, then adds up round after round."""

    def __init__(
        self,
        meeting: Meeting,
        hosts: list[str],
        elements: int,
        device: torch.device,
        act: Act,
        say: Callable[..., None],
    ) -> None:
        self.meeting = meeting
        self._hosts = hosts
        self._elements = elements
        self._device = device
        self._act = act
        self._say = say
        self._ports: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._rounds: queue.SimpleQueue[Meeting | None] = queue.SimpleQueue()
        self._has_port = False
        self._last = 0
        self._left = threading.Event()
        threading.Thread(target=self._work, name="collective", daemon=True).start()

    def take(self, meeting: Meeting) -> None:
        """What the policy says of it now."""
        if meeting.port is not None and not self._has_port:
            self._has_port = True
            self._ports.put(meeting.port)
        if meeting.round is not None and meeting.round > self._last:
            self._last = meeting.round
            self._rounds.put(meeting)

    def leave(self) -> None:
        """Its policy goes on without it."""
        self._left.set()
        self._ports.put(None)
        self._rounds.put(None)
        self._say("torch.distributed adds up no more", view=self.meeting.view, round=self._last)

    def _work(self) -> None:
        """Runs in a thread. Says why it failed in torch's words, unless a member has just left: the ring takes over."""
        wanted = self.meeting
        try:
            wanted = _next(self._rounds)
            group = self._form()
            while True:
                self._sum(wanted, *group.add_up(wanted.gradient, wanted.share, self._left))
                wanted = _next(self._rounds)
        except _Left:
            return
        except Exception as error:
            if not self._left.wait(_WORD):
                self._say("torch.distributed failed; the ring takes over", round=self._last, why=str(error)[:300])
                self._sum(wanted, None)

    def _sum(self, wanted: Meeting, total: Vector | None, count: float = 0.0) -> None:
        self._act(lambda policy: policy.summed(wanted, total, count))

    def _form(self) -> "_Group":
        """Once all have come to the first one's store."""
        meeting, store, size = self.meeting, self._store(), len(self._hosts)
        doors = [str(place) for place in range(size)]
        store.set(doors[meeting.place], _name(self._device))
        while not store.check(doors):
            if self._left.wait(_LOOK):
                raise _Left
        devices = [store.get(door).decode() for door in doors]
        kind = _Nccl if _CPU not in devices and len(set(devices)) == size else _Gloo
        group = kind(store, meeting.place, self._hosts, self._elements, self._device)
        self._say("torch.distributed adds up", backend=kind.name, view=meeting.view, round=meeting.first, members=size)
        return group

    def _store(self) -> Any:
        here = self._hosts[0]
        if self.meeting.place:
            return c10d.TCPStore(here, _next(self._ports), timeout=_CONNECT, wait_for_workers=False)
        door = socket.create_server((here, 0), family=socket.AF_INET6 if ":" in here else socket.AF_INET)
        port = int(door.getsockname()[1])
        store = c10d.TCPStore(
            here, port, is_master=True, timeout=_CONNECT, wait_for_workers=False, master_listen_fd=door.detach()
        )
        self._act(lambda policy: policy.meet_at(self.meeting, port))
        return store


class _Group(ABC):
    """The members of a meeting, connected."""

    name: ClassVar[str]

    def __init__(self, store: Any, place: int, hosts: list[str], elements: int, device: torch.device) -> None:
        """All call it at the same time."""
        self._size = len(hosts)
        self._elements = elements
        self._device = device
        self._options = c10d.AllreduceOptions()
        self._options.timeout = _ADD
        self._connect(store, place, hosts[place])

    def add_up(self, gradient: Vector | None, share: float, left: threading.Event) -> tuple[Vector, float]:
        """The sum of all gradients, in new memory, the same bits for all members; and what they count together. `share`: what
        mine does."""
        row = torch.empty(self._elements + 1)
        values: Vector = row.numpy()
        np.copyto(values[:-1], 0.0 if gradient is None else gradient)
        values[-1] = 0.0 if gradient is None else share
        self._reduce(row, left)
        total, count = values[:-1], float(values[-1])
        if not (0 <= count < math.inf and kernels.all_finite(total)):
            raise BadPush(f"The sum of gradients of {self._size} workers, which count {count:g}, has NaN or infinity.")
        return total, count

    @abstractmethod
    def _connect(self, store: Any, place: int, host: str) -> None: ...

    @abstractmethod
    def _reduce(self, row: torch.Tensor, left: threading.Event) -> None:
        """In place."""


class _Gloo(_Group):
    """From main memory, by TCP."""

    name = "gloo"

    def _connect(self, store: Any, place: int, host: str) -> None:
        options = c10d.ProcessGroupGloo._Options()
        options._timeout = _CONNECT
        options._threads = 1
        options._devices = [c10d.ProcessGroupGloo.create_device(hostname=host)]
        self._group = c10d.ProcessGroupGloo(store, place, self._size, options)

    def _reduce(self, row: torch.Tensor, left: threading.Event) -> None:
        self._group.allreduce([row], self._options).wait()


class _Nccl(_Group):
    """From the memory of GPUs, one for each member."""

    name = "nccl"

    def _connect(self, store: Any, place: int, host: str) -> None:
        os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # otherwise a failure ends the process
        os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")
        torch.cuda.set_device(self._device)
        options = c10d.ProcessGroupNCCL.Options()
        options._timeout = _CONNECT
        self._group = c10d.ProcessGroupNCCL(store, place, self._size, options)
        self._reduce(torch.zeros(1), threading.Event())  # connects

    def _reduce(self, row: torch.Tensor, left: threading.Event) -> None:
        there = row.to(self._device)
        work = self._group.allreduce([there], self._options)
        while not work.is_completed():
            if left.wait(_GLANCE):
                self._group.abort()
                raise _Left
        work.wait()
        row.copy_(there)


def _next(waiting: "queue.SimpleQueue[T | None]") -> T:
    found = waiting.get()
    if found is None:
        raise _Left
    return found


def _name(device: torch.device) -> str:
    """Of the GPU that this worker computes on, or of none."""
    return _CPU if device.type == "cpu" else str(torch.cuda.get_device_properties(device).uuid)
