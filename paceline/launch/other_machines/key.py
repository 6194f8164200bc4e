"""The key that lets a machine into a run: it proves each side to the other, and is short enough to be typed."""

import base64
import hashlib
import secrets
import zlib
from dataclasses import dataclass
from typing import Self

from paceline.core.errors import UsageError

_SECRET, _FINGERPRINT, _CHECK = 10, 13, 2
"""Bytes of each part: 80 bits that can be tried only at the head itself, 104 bits that a false certificate had to meet."""
_LETTERS = 8 * (_SECRET + _FINGERPRINT + _CHECK) // 5
_GROUP = 8


@dataclass(frozen=True, slots=True)
class JoinKey:
    """What the head's certificate must be, and what the head wants to hear."""

    secret: bytes
    fingerprint: bytes

    @classmethod
    def new(cls, certificate: bytes) -> Self:
        """For the head that shows this certificate (DER)."""
        return cls(secrets.token_bytes(_SECRET), fingerprint_of(certificate))

    @classmethod
    def read(cls, text: str) -> Self:
        """From what was typed; spaces, hyphens and capitals don't matter. UsageError: it is no key."""
        letters = "".join(text.split()).replace("-", "").upper()
        if len(letters) != _LETTERS:
            raise UsageError(
                f"The key has {len(letters)} letters and digits; a key has {_LETTERS}. Copy the whole key from the "
                "line that the run printed."
            )
        try:
            whole = base64.b32decode(letters)
        except ValueError:  # binascii's, or that a letter is not of ASCII
            wrong = sorted(set(letters) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"))
            raise UsageError(
                f"The key holds {', '.join(map(repr, wrong))}; a key has only the letters a to z and the digits 2 "
                "to 7. Copy it from the line that the run printed."
            ) from None
        content, check = whole[:-_CHECK], whole[-_CHECK:]
        if _check_of(content) != check:
            raise UsageError(
                "The key has a wrong letter, or two letters that are swapped. Copy it from the line that the "
                "run printed."
            )
        return cls(content[:_SECRET], content[_SECRET:])

    def text(self) -> str:
        """As it is printed: groups of eight small letters and digits."""
        content = self.secret + self.fingerprint
        letters = base64.b32encode(content + _check_of(content)).decode().lower()
        return "-".join(letters[start : start + _GROUP] for start in range(0, _LETTERS, _GROUP))

    @property
    def token(self) -> str:
        """What a call shows."""
        return self.secret.hex()


def fingerprint_of(certificate: bytes) -> bytes:
    """Of a certificate (DER)."""
    return hashlib.sha256(certificate).digest()[:_FINGERPRINT]


def _check_of(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "big")[:_CHECK]
