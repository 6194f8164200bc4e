"""Mutual TLS: one folder with the CA's certificate, a process's own and its key, read again when they change."""

import ssl
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from paceline.base.bounded import MOST_KEY, read_bytes
from paceline.core.errors import ConfigError

AUTHORITY, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"
_ADVICE = (
    "Every process needs a certificate that the ca.crt in --tls DIR has signed, made out to the names it is called by."
)
_OUT_OF_TIME = (9, 10)
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""
_NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which the module has no name for."""


class Keys(NamedTuple):
    """What the files of a folder hold (PEM), and the lane's settings with them."""

    authority: bytes
    certificate: bytes
    key: bytes
    client: ssl.SSLContext
    server: ssl.SSLContext
    web: ssl.SSLContext
    """A server's that asks for no certificate."""
    name: str
    """Whose the certificate is: its subject's CN; '' where it has none."""


class KeyFolder:
    """The keys in a folder as they are now: files that have changed are read again, and where the new ones are no good the old
    ones stay. Thread-safe. ConfigError: there are no good ones."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen = self._stamps()
        self._keys = read_keys(path)

    def newest(self) -> Keys:
        """The same object until the files change."""
        with self._lock:
            seen = self._stamps()
            if seen != self._seen:
                self._seen = seen
                try:
                    self._keys = read_keys(self._path)
                except (ConfigError, OSError) as error:  # the second: gone again since they were seen
                    print(f"The keys in use stay, for the new ones are no good: {error}", file=sys.stderr, flush=True)
            return self._keys

    def for_channel(self) -> grpc.ChannelCredentials:
        """For a grpcio channel; it keeps them."""
        keys = self.newest()
        return grpc.ssl_channel_credentials(keys.authority, keys.key, keys.certificate)

    def for_server(self) -> grpc.ServerCredentials:
        """For a grpcio server, which asks for the newest with each connection; callers show a certificate, too."""
        used = self.newest()

        def fetch() -> Any:  # a ServerCertificateConfiguration, or None where it is the same
            nonlocal used
            newest = self.newest()
            if newest is used:
                return None
            used = newest
            return _configuration(newest)

        return grpc.dynamic_ssl_server_credentials(_configuration(used), fetch, require_client_authentication=True)

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        try:
            found = [(self._path / name).stat() for name in (AUTHORITY, CERTIFICATE, KEY)]
        except OSError:  # not there just now; reading says which
            return ()
        return tuple((one.st_mtime_ns, one.st_ino) for one in found)


@cache
def key_folder(path: Path) -> KeyFolder:
    """The folder's keys; one object for all who use them in this process."""
    return KeyFolder(path)


def refused(address: str, words: str) -> str:
    """What to tell a user whose certificate a server has refused."""
    return f"The server at {address} refused our certificate: {words}. {_ADVICE}"


def untrusted(address: str, words: str) -> str:
    """What to tell a user about a server whose certificate is not good."""
    return f"The certificate of the server at {address} is not good: {words}. {_ADVICE}"


def not_encrypted(address: str) -> str:
    """What to tell a user about a server that answers in plain text."""
    return f"The server at {address} has no --tls, but this process has. Give it to all processes of a run, or to none."


def read_keys(path: Path) -> Keys:
    """Reads a folder and tries what it holds. ConfigError: something is missing, no PEM, does not fit, or is out of date."""
    if not path.is_dir():
        raise ConfigError(f"There is no folder {path}. --tls takes one with {AUTHORITY}, {CERTIFICATE} and {KEY}.")
    authority = _read(path / AUTHORITY, b"BEGIN CERTIFICATE")
    certificate = _read(path / CERTIFICATE, b"BEGIN CERTIFICATE")
    key = _read(path / KEY, b"PRIVATE KEY")
    if b"ENCRYPTED" in key:
        raise ConfigError(f"{path / KEY} has a passphrase. Write the key without one: openssl pkey -in OLD -out {KEY}.")
    client, server = _context(path, is_server=False), _context(path, is_server=True)
    name = name_in(_tried(path))
    return Keys(authority, certificate, key, client, server, _web_context(path), name)


def name_in(certificate: Mapping[str, Any] | None) -> str:
    """Whose a certificate is (its subject's CN), as ssl gives it; '' where it does not say."""
    fields = [field for part in (certificate or {}).get("subject", ()) for field in part]
    return next((str(value) for name, value in fields if name == "commonName"), "")


def own_folder(folder: Path, name: str, role: str = "") -> Path:
    """Where the keys of the process of this name are: in a folder of that name or role, or those of all in the folder itself.
    ConfigError: the folder has only keys of others."""
    for each in filter(None, (name, role)):
        if (folder / each).is_dir():
            return folder / each
    if not (folder / CERTIFICATE).exists() and any(folder.glob(f"*/{CERTIFICATE}")):
        raise ConfigError(
            f"{folder} has keys of other processes, but no folder {name}, and none for all. Make it: paceline keys certs "
            f"{folder} {name}."
        )
    return folder


def is_named(path: Path, host: str) -> bool:
    """Whether the certificate in a folder of good keys is made out to this name or IP."""
    try:
        _meet(path, host=host)
    except ssl.SSLCertVerificationError:
        return False
    return True


def _read(file: Path, mark: bytes) -> bytes:
    try:
        found = read_bytes(file, MOST_KEY)
    except OSError as error:
        raise ConfigError(
            f"Can't read {file}: {error.strerror}. --tls takes a folder with {AUTHORITY}, {CERTIFICATE} and "
            f"{KEY}, the names that a Kubernetes Secret uses."
        ) from error
    if mark not in found:
        raise ConfigError(f"{file} is not in PEM format: it has no '{mark.decode()}'. Convert it with openssl.")
    return found


def _context(path: Path, is_server: bool) -> ssl.SSLContext:
    """TLS 1.2 or newer with HTTP/2 in it, where both sides show a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(path / AUTHORITY)
    except ssl.SSLError as error:
        raise ConfigError(f"{path / AUTHORITY} holds no readable certificate: {error.reason}.") from error
    try:
        context.load_cert_chain(path / CERTIFICATE, path / KEY)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                f"The key {path / KEY} does not fit the certificate {path / CERTIFICATE}. Use a key and a "
                "certificate that were made together."
            ) from error
        raise ConfigError(
            f"Can't read {path / CERTIFICATE} or {path / KEY}: {error.reason or 'not what its name says'}. Make "
            "them again."
        ) from error
    return context


def _web_context(path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(path / CERTIFICATE, path / KEY)
    return context


def _tried(path: Path) -> dict[str, object]:
    """Lets a client and a server with these keys meet in memory: what they refuse, others would refuse, too. Returns the
    certificate."""
    try:
        return _meet(path)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code not in _OUT_OF_TIME:
            raise ConfigError(
                f"{path / CERTIFICATE} is not valid for {path / AUTHORITY}: {error.verify_message}. That CA must "
                "have signed it, for use by both servers and clients."
            ) from error
        valid = ""
        with suppress(ssl.SSLError):  # it is not good otherwise either
            seen = _meet(path, _NO_CHECK_TIME)
            valid = f" The first is valid from {seen['notBefore']} until {seen['notAfter']}."
        raise ConfigError(
            f"{path / CERTIFICATE} or {path / AUTHORITY}: {error.verify_message}.{valid} Renew it."
        ) from error
    except ssl.SSLError as error:
        raise ConfigError(f"Can't use the keys in {path}: {error.reason}. Make them again.") from error


def _meet(path: Path, flags: int = 0, host: str = "") -> dict[str, object]:
    """What the client has seen of the server's certificate. `host`: what the server is called by, where that is checked."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    contexts = _context(path, is_server=False), _context(path, is_server=True)
    for context in contexts:
        context.verify_flags |= ssl.VerifyFlags(flags)
        context.check_hostname = False
    contexts[0].check_hostname = bool(host)
    client = contexts[0].wrap_bio(back, there, server_hostname=host or None)
    sides = client, contexts[1].wrap_bio(there, back, server_side=True)
    waiting = set(sides)
    while waiting:
        for side in sides:
            try:
                side.do_handshake()
                waiting.discard(side)
            except ssl.SSLWantReadError:
                continue
    return dict(sides[0].getpeercert() or {})


def _configuration(keys: Keys) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(keys.key, keys.certificate)], keys.authority)
