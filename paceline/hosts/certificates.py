"""The certificates of one run, made when it begins to listen and forgotten with it; the authority's key is never written."""

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from paceline.extras import needing
from paceline.hosts.reach_head import DOOR

with needing("A run on several machines"):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_EARLIER = timedelta(days=1)
"""Clocks of machines may differ by so much."""
_LATER = timedelta(days=60)
"""Longer than a run."""


class KeyPair(NamedTuple):
    """A certificate and its key (PEM)."""

    certificate: bytes
    key: bytes


class RunAuthority:
    """Signs the certificates of one run."""

    def __init__(self, now: datetime | None = None) -> None:
        self._now = now or datetime.now(UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("paceline run")
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self._certificate = (
            self._begun(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """By which all others are checked (PEM)."""
        return self._certificate.public_bytes(Encoding.PEM)

    def pair(self, names: Iterable[str]) -> KeyPair:
        """For a machine that is called by these names and addresses, as server and as client."""
        key = ec.generate_private_key(ec.SECP256R1())
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        signed = (
            self._begun(_named("paceline host"), key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(both, critical=False)
            .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return KeyPair(signed.public_bytes(Encoding.PEM), _pem(key))

    def _begun(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _EARLIER)
            .not_valid_after(self._now + _LATER)
        )


def door_pair(now: datetime | None = None) -> tuple[KeyPair, bytes]:
    """What the door shows, which nobody but itself vouches for; and the certificate as DER, for the key that is printed."""
    key, name, begin = ec.generate_private_key(ec.SECP256R1()), _named(DOOR), now or datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - _EARLIER)
        .not_valid_after(begin + _LATER)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(DOOR)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(signed.public_bytes(Encoding.PEM), _pem(key)), signed.public_bytes(Encoding.DER)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
