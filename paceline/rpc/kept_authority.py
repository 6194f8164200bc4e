"""An authority in a folder, and a folder of keys for each process that it signs for: what `paceline keys certs` writes."""

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from paceline.base.bounded import MOST_KEY, read_bytes
from paceline.base.private import make_private, write_private
from paceline.core.errors import ConfigError, DiskError, UsageError
from paceline.rpc.certificates import AUTHORITY_DAYS, HERE, Authority, KeyPair
from paceline.rpc.key_files import write_keys
from paceline.rpc.roles import ANY_PROCESS
from paceline.rpc.tls import AUTHORITY

FOLDER, KEY = "ca", "ca.key"
"""Where the authority is in a folder of keys, and what its key is called there."""
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_HOST = re.compile(r"(?:\*\.)?(?!-)[A-Za-z0-9-]{1,63}(?:\.(?!-)[A-Za-z0-9-]{1,63})*")


class Made(NamedTuple):
    """A folder for `--tls`."""

    name: str
    folder: Path
    hosts: Sequence[str]
    """What others may call the process by."""
    until: datetime


def parse_names(words: Iterable[str]) -> dict[str, list[str]]:
    """'worker-0' or 'server-0=10.0.0.5,server-a.lan' each, as hosts by name. UsageError: one is neither."""
    found: dict[str, list[str]] = {}
    for word in words:
        name, equals, hosts = word.partition("=")
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{word!r}: expected a process's name, like worker-0, server-1 or evaluator, and after = the hosts that others "
                "call it by, like server-0=10.0.0.5,server-a.lan."
            )
        found[name] = [*found.get(name, []), *(check_hosts(hosts.split(",")) if equals else [])]
    if FOLDER in found:
        raise UsageError(f"No process may be called {FOLDER!r}: the folder of that name holds the authority.")
    return found


def check_hosts(hosts: Iterable[str]) -> list[str]:
    """The same. UsageError: one is no host name and no IP address."""
    checked = list(hosts)
    for host in checked:
        with suppress(ValueError):
            ipaddress.ip_address(host)
            continue
        if not _HOST.fullmatch(host):
            raise UsageError(f"{host!r} is no host name and no IP address. Expected one like server-a.lan or 10.0.0.5.")
    return checked


def make_folders(place: Path, names: Mapping[str, Sequence[str]], hosts: Sequence[str], days: float) -> list[Made]:
    """A folder in `place` for each name, or `place` itself for all processes alike where there are none; the authority is made
    at the first time. `names`: as `parse_names` gives them; `hosts`: of all of them. ConfigError: the authority there is no
    good; DiskError."""
    try:
        make_private(place)
        authority = _authority(place / FOLDER)
        wanted = {name: place / name for name in names} or {ANY_PROCESS: place}
        found = []
        for name, folder in wanted.items():
            called = list(dict.fromkeys([*names.get(name, ()), *hosts, *HERE]))
            write_keys(folder, authority.certificate, *authority.pair(called, name, days))
            found.append(Made(name, folder, called, authority.end_of(days)))
        return found
    except OSError as error:
        raise DiskError(
            f"Can't write keys to {place}: {error.strerror}. Give a folder that you may write to."
        ) from error


def _authority(folder: Path) -> Authority:
    certificate, key = folder / AUTHORITY, folder / KEY
    if not certificate.exists() and not key.exists():
        made = Authority.new(AUTHORITY_DAYS)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(certificate, made.own.certificate)
        write_private(key, made.own.key)
        return made
    if not (certificate.exists() and key.exists()):
        there, lacks = (certificate, key) if certificate.exists() else (key, certificate)
        raise ConfigError(
            f"{there} exists, but {lacks} does not, and one signs with both. Put it back, or remove {folder} for a new "
            "authority; all processes need new folders then."
        )
    try:
        found = Authority.of(KeyPair(read_bytes(certificate, MOST_KEY), read_bytes(key, MOST_KEY)))
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{certificate} and {key} are no authority's: {str(error)[:200]}. Remove {folder} for a new one; all processes "
            "need new folders then."
        ) from error
    if found.until <= datetime.now(UTC):
        raise ConfigError(
            f"The authority in {folder} expired at {found.until:%Y-%m-%d %H:%M} UTC. Remove that folder for a new one: all "
            "processes need new folders then."
        )
    return found
