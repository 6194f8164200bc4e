"""Where other machines come in: a small gRPC service of the launcher's own, always over TLS, open to those with the key."""

import hmac
import ipaddress
import itertools
import platform
import re
import socket
import urllib.parse
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import grpc
import psutil

from paceline.base.bounded import MOST_MODEL
from paceline.base.private import make_private
from paceline.core.errors import BadPush, ConfigError, Unauthenticated
from paceline.data.whole_file import replacing
from paceline.launch.other_machines.hosts import Hosts
from paceline.launch.other_machines.key import JoinKey
from paceline.launch.other_machines.reach_head import DOOR
from paceline.rpc.auth import Authentication, bearer
from paceline.rpc.certificates import Authority, self_signed
from paceline.rpc.host import make_server
from paceline.rpc.protocol_version import PROTOCOL, check_protocol
from paceline.rpc.roles import ANYONE, Caller
from paceline.v1 import host_service_pb2 as pb
from paceline.v1.host_service_pb2_grpc import HostServiceServicer, add_HostServiceServicer_to_server

_PART = 1 << 20
_THREADS = 64
_MODEL = re.compile(r"[a-z]+\.safetensors")
COMPARED = ("paceline", "torch", "numpy")


class KeyAuthentication(Authentication):
    """Lets in anyone who shows the key's secret."""

    def __init__(self, key: JoinKey) -> None:
        self._expected = bearer(key.token)

    def check(self, shown: str | None, method: str) -> Caller:
        if not hmac.compare_digest((shown or "").encode(), self._expected.encode()):
            raise Unauthenticated(
                "This key does not open this run. Use the key that the run printed when it last started."
            )
        return ANYONE


class HostServicer(HostServiceServicer):
    """Speaks with the machines that join. Thread-safe."""

    def __init__(
        self,
        hosts: Hosts,
        authority: Authority,
        token_text: Callable[[str], str],
        run: str,
        files: Callable[[], bytes],
        models: Path,
    ) -> None:
        """`token_text`: the token file of the process of that name; `files`: what `packed` gives; `models`: folder for those
        that are written on other machines."""
        self._hosts = hosts
        self._models = models
        self._authority = authority
        self._token_text = token_text
        self._run = run
        self._files = files

    def Join(self, request: pb.HostServiceJoinRequest, context: Any) -> pb.HostServiceJoinReply:
        check_protocol(request.protocol, f"host {request.name}", "the head")
        address = request.address or caller_of(context.peer())
        host = self._hosts.join(request.name, request.workers, request.servers, address)
        pair = self._authority.pair(dict.fromkeys((address, "localhost", "127.0.0.1", "::1")))
        return pb.HostServiceJoinReply(
            host=host.number,
            name=host.name,
            run=self._run,
            authority=self._authority.certificate,
            certificate=pair.certificate,
            key=pair.key,
            address=address,
            differences=differences(dict(request.versions), versions()),
        )

    def Files(self, request: pb.HostServiceFilesRequest, context: Any) -> Iterator[pb.HostServiceFilesReply]:
        content = self._files()
        for start in range(0, len(content), _PART):
            self._hosts.heard(request.host)
            yield pb.HostServiceFilesReply(data=content[start : start + _PART])

    def Keep(self, parts: Iterator[pb.HostServiceKeepRequest], context: Any) -> pb.HostServiceKeepReply:
        first = next(parts, pb.HostServiceKeepRequest())
        if not _MODEL.fullmatch(first.name):
            raise BadPush(
                f"Host {first.host} sent a model called {first.name!r}; expected a name like last.safetensors."
            )
        make_private(self._models)
        with replacing(self._models / first.name, "a model from another machine") as draft, draft.open("wb") as file:
            for part in itertools.chain((first,), parts):
                if file.tell() + len(part.data) > MOST_MODEL:
                    raise BadPush(
                        f"Host {first.host} sent more than {MOST_MODEL:,} bytes as {first.name}, the most that a model may "
                        "have; the file was not kept."
                    )
                file.write(part.data)
                self._hosts.heard(part.host)
        return pb.HostServiceKeepReply()

    def Report(self, request: pb.HostServiceReportRequest, context: Any) -> pb.HostServiceReportReply:
        reply = self._hosts.report(request)
        begun = {(child.name, child.start) for child in request.children}
        for order in reply.children:
            if (order.name, order.start) not in begun:
                order.token = self._token_text(order.name)
        return reply


class Door:
    """Open from its making until `close`. ConfigError: the port is taken."""

    def __init__(self, port: int, servicer: HostServicer) -> None:
        """`port`: 0 for any free one."""
        pair, certificate = self_signed(DOOR)
        self.key = JoinKey.new(certificate)
        self._server = make_server(_THREADS, KeyAuthentication(self.key), lambda *_: None)
        add_HostServiceServicer_to_server(servicer, self._server)
        credentials = grpc.ssl_server_credentials([(pair.key, pair.certificate)])
        self.port = self._bind(port, credentials)
        if not self.port:
            raise ConfigError(
                f"Can't listen for other machines on port {port}: the port is in use. Choose another one with --port."
            )
        self._server.start()

    def _bind(self, port: int, credentials: grpc.ServerCredentials) -> int:
        try:
            return self._server.add_secure_port(f"[::]:{port}", credentials)
        except RuntimeError:
            return 0

    def close(self) -> None:
        self._server.stop(0.5).wait()


def caller_of(peer: str) -> str:
    """The IP in what grpcio says of a caller, like ipv4:10.0.0.2:41234 or ipv6:%5B::1%5D:41234."""
    host = urllib.parse.unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return "127.0.0.1"
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def own_addresses() -> list[str]:
    """All names and IPs of this machine, the one that others most likely reach it by first."""
    found = [
        one.address.partition("%")[0]
        for each in psutil.net_if_addrs().values()
        for one in each
        if one.family in (socket.AF_INET, socket.AF_INET6)
    ]
    found.sort(key=lambda one: (ipaddress.ip_address(one).is_loopback, ":" in one))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: the kernel says which way it would go
            found.insert(0, probe.getsockname()[0])
        except OSError:  # no such way
            pass
    return list(dict.fromkeys([*found, "127.0.0.1", "localhost", socket.gethostname()]))


def versions() -> dict[str, str]:
    """Of what should be alike on all machines."""
    found = {"python": platform.python_version()}
    for name in COMPARED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found | {"protocol": str(PROTOCOL)}


def differences(theirs: dict[str, str], mine: dict[str, str]) -> list[str]:
    """'torch 2.10.0 here, 2.11.0 on the head' for each that is not the same."""
    return [
        f"{name} {theirs[name]} here, {mine[name]} on the head"
        for name in mine
        if name in theirs and theirs[name] != mine[name]
    ]
