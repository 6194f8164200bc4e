"""Makes certificates: those of one run, forgotten with it, and those that `paceline keys certs` writes into folders."""

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from paceline.rpc.roles import ANY_PROCESS

HERE = ("localhost", "127.0.0.1", "::1")
"""What each machine calls itself."""
_EARLIER = timedelta(days=1)
"""Clocks of machines may differ by so much."""
RUN_DAYS = 60
"""How long the certificates of one run are valid: longer than it lasts."""
AUTHORITY_DAYS = 3650
"""The same of an authority that is kept."""


class KeyPair(NamedTuple):
    """A certificate and its key (PEM)."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs the certificates of one run, or of all whose folders it has made."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, now: datetime) -> None:
        self._key = key
        self._certificate = certificate
        self._now = now

    @classmethod
    def new(cls, days: float = RUN_DAYS, now: datetime | None = None) -> Self:
        """One that nobody knows yet."""
        begin, key, name = now or datetime.now(UTC), ec.generate_private_key(ec.SECP256R1()), _named("paceline CA")
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        signed = (
            _begun(name, name, key, begin, begin + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, signed, begin)

    @classmethod
    def of(cls, pair: KeyPair, now: datetime | None = None) -> Self:
        """One that was written down. ValueError: these are no certificate and key of one."""
        key, certificate = load_pem_private_key(pair.key, None), x509.load_pem_x509_certificate(pair.certificate)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise ValueError("the key is not that of the certificate")
        return cls(key, certificate, now or datetime.now(UTC))

    @property
    def certificate(self) -> bytes:
        """By which all others are checked (PEM)."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def own(self) -> KeyPair:
        """What has to be kept to sign more of them later."""
        return KeyPair(self.certificate, _pem(self._key))

    @property
    def until(self) -> datetime:
        """When it expires."""
        return self._certificate.not_valid_after_utc

    def end_of(self, days: float) -> datetime:
        """When a certificate for this number of days expires: not after its authority."""
        return min(self._now + timedelta(days=days), self.until)

    def pair(self, hosts: Iterable[str], name: str = ANY_PROCESS, days: float = RUN_DAYS) -> KeyPair:
        """For the process of this name, which others call by these names and addresses; as server and as client."""
        key = ec.generate_private_key(ec.SECP256R1())
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        signed = (
            _begun(_named(name), self._certificate.subject, key, self._now, self.end_of(days))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(both, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._certificate.public_key()),  # type: ignore[arg-type]
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName([_general(host) for host in hosts]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return KeyPair(signed.public_bytes(Encoding.PEM), _pem(key))


def self_signed(host: str, now: datetime | None = None) -> tuple[KeyPair, bytes]:
    """A certificate that nobody but itself vouches for, and the same as DER. `host`: what it is made out to."""
    key, name, begin = ec.generate_private_key(ec.SECP256R1()), _named(host), now or datetime.now(UTC)
    signed = (
        _begun(name, name, key, begin, begin + timedelta(days=RUN_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(signed.public_bytes(Encoding.PEM), _pem(key)), signed.public_bytes(Encoding.DER)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(until)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
