"""Where a process listens: on this machine alone by default; elsewhere by TLS, or in plain text where that is said."""

import ipaddress
import socket

from paceline.core.errors import UsageError

LOOPBACK = "127.0.0.1"
EVERYWHERE = "::"
"""All addresses of this machine, IPv4 and IPv6."""


PLAIN_TEXT = (
    "calls from other machines are plain text: who is on their way can read the model and the tokens. Give all processes --tls "
    "DIR (`paceline keys certs` makes it; on Kubernetes the component tls)"
)


def is_loopback(host: str, option: str = "--bind") -> bool:
    """Whether only this machine reaches this IP address. `option`: where it was given. UsageError: it is none."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise UsageError(
            f"{option} {host}: expected an IP address of this machine: {LOOPBACK} for this machine alone, {EVERYWHERE} for all "
            "that reach it."
        ) from None


def reaches(host: str) -> bool:
    """Whether other machines may call this one by that address or name."""
    try:
        return not is_loopback(host)
    except UsageError:  # a name
        return True


def check_bind(host: str, has_keys: bool, may_be_plain: bool, option: str = "--bind") -> None:
    """UsageError: others could read what is sent to this address, and nobody has said that they may."""
    if not (is_loopback(host, option) or has_keys or may_be_plain):
        raise UsageError(
            f"{option} {host} without TLS: everybody on the way could read the model and the tokens. Give --tls DIR (`paceline "
            "certs` makes it), or --plain-text where nobody else is on that network."
        )


def listening_socket(host: str, port: int, backlog: int) -> socket.socket:
    """A TCP socket that listens there; that of `EVERYWHERE` takes IPv4 as well. OSError."""
    if host == EVERYWHERE and not socket.has_dualstack_ipv6():
        return socket.create_server(("", port), backlog=backlog)
    if host == EVERYWHERE:
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=backlog)


def bracketed(host: str) -> str:
    """The host as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def with_port(host: str, port: int) -> str:
    """host:port, also of an IPv6 address."""
    return f"{bracketed(host)}:{port}"
