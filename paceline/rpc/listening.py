"""Where a process listens: on this machine alone by default; elsewhere by TLS, or in plain text where that is said."""

import ipaddress

from paceline.core.errors import UsageError

LOOPBACK = "127.0.0.1"
EVERYWHERE = "::"
"""All addresses of this machine, IPv4 and IPv6."""


PLAIN_TEXT = (
    "calls from other machines are plain text: who is on their way can read the model and the tokens. Give all processes --tls "
    "DIR (`paceline certs` makes it; on Kubernetes the component tls)"
)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches this IP address. UsageError: it is none."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise UsageError(
            f"--bind {host}: expected an IP address of this machine: {LOOPBACK} for this machine alone, {EVERYWHERE} for all "
            "that reach it."
        ) from None


def check_bind(host: str, has_keys: bool, may_be_plain: bool) -> None:
    """UsageError: others could read what is sent to this address, and nobody has said that they may."""
    if not (has_keys or may_be_plain or is_loopback(host)):
        raise UsageError(
            f"--bind {host} without TLS: everybody on the way could read the model and the tokens. Give --tls DIR (`paceline "
            "certs` makes it), or --plain-text where nobody else is on that network."
        )


def with_port(host: str, port: int) -> str:
    """host:port, also of an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
