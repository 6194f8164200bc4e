"""Signed tokens: who somebody is in a run, and until when. A run's secret signs them, its public key checks them."""

import base64
import hashlib
import math
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import jwt
from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from paceline.core.errors import ConfigError, TryAgain, Unauthenticated

_ALGORITHM = "EdDSA"
_SALT = b"paceline: the key of a run, from its secret\n"
UNREAD = 150.0
"""How long after a Secret of a cluster has changed some pods may not see it (seconds): two minutes, and a bit more."""
_CLAIMS = ["run", "role", "sub", "iat", "exp"]
_ANOTHER = "The holder of the run's secret makes another one: paceline keys token."


class Claims(NamedTuple):
    """What a token says."""

    run: str
    role: str
    name: str
    """Of the process that shows it; `worker-*` stands for any worker's."""
    made: float
    until: float
    """Both in seconds since 1970, by the clock of its maker."""


def public_key(secret: str) -> str:
    """With what tokens of this secret are checked, as text."""
    return _text(private_key(secret).public_key())


def sign(secret: str, claims: Claims) -> str:
    """The token that says this: a JSON Web Token (RFC 7519), signed with Ed25519 (RFC 8037)."""
    said = {
        "run": claims.run,
        "role": claims.role,
        "sub": claims.name,
        "iat": int(claims.made),
        "exp": int(claims.until),
    }
    return jwt.encode(said, private_key(secret), algorithm=_ALGORITHM)


def read(token: str, keys: tuple[str, ...], unread: float = math.inf) -> tuple[Claims, str]:
    """Returns what a token says, and which of these keys has signed it. `unread`: since when there may be another secret that
    is not read yet (seconds since 1970). Raises Unauthenticated if it is no token, or none of them has signed it; TryAgain if
    it is as new as such a secret."""
    for key in keys:
        try:
            return _claims(jwt.decode(token, _public(key), algorithms=[_ALGORITHM], options=_unchecked(True))), key
        except jwt.InvalidSignatureError:
            continue
        except jwt.InvalidTokenError as error:
            raise Unauthenticated(
                f"The call's token can't be read: {error}. Give the whole file that `paceline keys token` has made "
                "with --token-file."
            ) from error
    try:
        said = _claims(jwt.decode(token, options=_unchecked(False)))
    except jwt.InvalidTokenError as error:
        raise Unauthenticated(f"The call's token can't be read: {error}. {_ANOTHER}") from error
    whose = f"{_shown(said.name or said.role)} of run {_shown(said.run) or 'without a name'}, made {moment(said.made)}"
    if said.made >= unread:
        raise TryAgain(
            f"The call's token is for {whose}, by a secret that this server has not read. If the secret has just been "
            f"replaced, it will, within {UNREAD:.0f} s of that. If not, the token is of another run. {_ANOTHER}"
        )
    raise Unauthenticated(f"The call's token is of another run, or of an older secret: it is for {whose}. {_ANOTHER}")


def claimed(token: str) -> Claims:
    """What a token says, unchecked. ConfigError: it can't be read."""
    try:
        return _claims(jwt.decode(token, options=_unchecked(False)))
    except (jwt.InvalidTokenError, Unauthenticated) as error:
        raise ConfigError(f"The token can't be read: {error}. {_ANOTHER}") from error


def check_time(claims: Claims, now: float) -> None:
    """Unauthenticated: its time is over, by this machine's clock. One that is made later than that is good: either clock may
    have been set back since, and a run goes on then."""
    if claims.until <= now:
        raise Unauthenticated(
            f"The token of {claims.name or claims.role} expired {moment(claims.until)}; this server's clock says "
            f"{moment(now)}. {_ANOTHER} If it has just been made, set both clocks by NTP."
        )


def is_public_key(text: str) -> bool:
    """Whether this is what `public_key` gives."""
    try:
        _public(text)
    except (ValueError, InvalidKey):
        return False
    return True


def looks_signed(text: str) -> bool:
    """Whether this has the form of a token: three parts with dots."""
    return text.count(".") == 2 and text.startswith("ey")


def moment(seconds: float) -> str:
    """A time for people."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # anybody can write a token that nobody has signed
        return f"{seconds:g} s after 1970"


def _claims(found: dict[str, object]) -> Claims:
    try:
        run, role, name, made, until = (found[name] for name in _CLAIMS)
        if not (isinstance(run, str) and isinstance(role, str) and isinstance(name, str)):
            raise TypeError("run, role and sub are texts")
        return Claims(run, role, name, float(str(made)), float(str(until)))
    except (KeyError, TypeError, ValueError) as error:
        raise Unauthenticated(
            f"The call's token lacks something: {error}. A token of a run says {', '.join(_CLAIMS)}."
        ) from error


def _unchecked(signature: bool) -> Any:
    """Times are checked by `check_time`, with words of our own."""
    return {"verify_signature": signature, "verify_exp": False, "verify_iat": False, "verify_nbf": False}


def _shown(text: str) -> str:
    """What somebody who is not known wrote, for a log."""
    return "".join(each for each in text if each.isprintable())[:64]


@lru_cache(maxsize=8)
def private_key(secret: str) -> Ed25519PrivateKey:
    """With what a secret signs. ConfigError: it is too short."""
    if len(secret) < 16:
        raise ConfigError(
            f"The run's secret has {len(secret)} characters, which can be guessed. Write a long random one: "
            "openssl rand -hex 32."
        )
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(_SALT + secret.encode()).digest())


@lru_cache(maxsize=8)
def _public(key: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True))


def _text(key: Ed25519PublicKey) -> str:
    return base64.b64encode(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()
