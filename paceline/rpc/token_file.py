"""What `--token-file` may hold: a run's secret, whose holder can be anybody, or the token of one process.

A secret is a long random word. While it is being replaced, a second line has the old one: `was WORD from T until T`. Who reads
the file again and finds another word alone keeps the old one for ten minutes; a server that starts again meanwhile keeps its
public key.
A token's file has the run's public keys, `key BASE64` or `key BASE64 until T`, and then the token (paceline/rpc/tokens.py).
Times are in seconds since 1970; lines that begin with # are comments."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from paceline.base.bounded import MOST_KEY, read_text
from paceline.base.private import write_private
from paceline.core.errors import ConfigError
from paceline.rpc.tokens import Claims, is_public_key, looks_signed, moment, public_key, sign

LIFE = 365 * 86400.0
"""How long the token of a run's own process holds (seconds)."""
OVERLAP = 60.0
"""How long the old secret is valid besides the new one (seconds)."""
_UNANNOUNCED = 600.0
"""The same where only the new one was written, as by a tool that rotates Secrets: pods of a cluster see it minutes apart."""
_SIGNS = 1 / 3
"""The part of that time in which the old one still signs: until all processes know the new one's public key."""


@dataclass(frozen=True, slots=True)
class Key:
    """A public key."""

    text: str
    until: float | None = None
    """When it no longer holds."""

    @property
    def line(self) -> str:
        """Of a token's file."""
        return f"key {self.text}" if self.until is None else f"key {self.text} until {self.until:.0f}"

    def holds(self, now: float) -> bool:
        return self.until is None or now < self.until


@dataclass(frozen=True)
class Secret:
    """A run's secret."""

    word: str
    old: str = ""
    since: float = 0.0
    until: float = 0.0
    """From when until when the old one is valid, too."""
    former: tuple[Key, ...] = ()
    """The public keys of still older ones that are valid."""

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The newest first."""
        old = (Key(public_key(self.old), self.until),) if self.old else ()
        return (Key(public_key(self.word)), *old, *self.former)

    def renews(self, key: str, now: float) -> bool:
        """Whether who shows a token signed by this key's secret gets another one; not where the old one has leaked
        (`--at-once`), nor at once where this process can't sign by the old one, until others know the new one."""
        is_leaked = bool(self.old) and self.until - self.since < OVERLAP / 2
        is_early = not self.old and self._is_new(now)
        return key != self.keys[0].text and not is_leaked and not is_early

    def signer(self, now: float) -> str:
        """The secret that signs now."""
        return self.old if self.old and self._is_new(now) else self.word

    def _is_new(self, now: float) -> bool:
        """Whether some processes may not know the word yet."""
        return now < self.since + _SIGNS * (self.until - self.since)

    def token_file(self, claims: Claims, now: float, signer: str = "") -> str:
        """What the file of a process that these claims are for holds. `signer`: the secret that signs; '': the usual one."""
        keys = [key.line for key in self.keys if key.holds(now)]
        name = claims.name if claims.name == claims.role else f"{claims.name} ({claims.role})".strip()
        about = f"# {name} of run {claims.run}, until {moment(claims.until)}. Keep it like a password."
        return "\n".join([about, *keys, sign(signer or self.signer(now), claims), ""])

    def issued(self, run: str, role: str, name: str, life: float = LIFE, signer: str = "") -> str:
        """The same for claims that begin now and end after `life` seconds."""
        now = time.time()
        return self.token_file(Claims(run, role, name, now, now + life), now, signer)

    def after(self, before: "Content", now: float) -> "Secret":
        """This secret, just read where `before` was: what it replaces without a word about it stays valid for a while, also
        where the file is written again meanwhile."""
        if self.old or not isinstance(before, Secret):
            return self
        if before.word == self.word:
            return before
        former = tuple(key for key in before.keys[1:] if key.holds(now))
        return Secret(self.word, before.word, now, now + _UNANNOUNCED, former)

    def knowing(self, keys: Sequence[Key], now: float) -> "Secret":
        """This secret in a process that knew these keys before it was started again, the newest first; those of other secrets
        stay valid for a while."""
        if self.old:
            return self
        others = [Key(key.text, key.until or now + _UNANNOUNCED) for key in keys if key.text != self.keys[0].text]
        return Secret(self.word, "", now, now + _UNANNOUNCED, tuple(key for key in others if key.holds(now)))

    def replaced(self, now: float, overlap: float = OVERLAP) -> str:
        """What the secret's file holds once another word takes its place."""
        return f"{new_secret()}was {self.word} from {now:.0f} until {now + overlap:.0f}\n"


@dataclass(frozen=True, slots=True)
class Token:
    """One process's token, and the keys that it checks others' with."""

    keys: tuple[Key, ...]
    text: str


Content = Secret | Token | None
"""None: nothing is shown or checked."""


def new_secret() -> str:
    """A secret's file."""
    return f"{secrets.token_urlsafe(32)}\n"


def keys_of(text: str, where: str) -> tuple[Key, ...]:
    """The public keys in such lines of a token's file. Raises ConfigError if there are others."""
    return tuple(_key(line, where) for line in text.splitlines())


def content_of(text: str, where: str = "The token file") -> Content:
    """What a token file says. ConfigError: it is neither."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        return None
    if lines[0].startswith("key "):
        return _token(lines, where)
    if looks_signed(lines[0]):
        raise ConfigError(
            f"{where} holds a token, but no line `key ...` before it, with which others' are checked. Give the whole "
            "file that `paceline keys token` has made."
        )
    return _secret(lines, where)


def run_secret(text: str, where: str) -> Secret:
    """The secret that a file holds. ConfigError: it holds none."""
    if not isinstance(found := content_of(text, where), Secret):
        raise ConfigError(f"{where} holds no secret of a run, so it makes no tokens: expected one long random word.")
    return found


def read_token_file(path: Path) -> str:
    """What a token file holds, as text. ConfigError: it can't be read, is empty, or is neither."""
    try:
        text = read_text(path, MOST_KEY)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"Can't read the token file {path}: {why}. Give a file that this user can read.") from error
    if content_of(text, f"The token file {path}") is None:
        raise ConfigError(f"The token file {path} is empty; write a long random word into it.")
    return text


def write_token_file(path: Path, text: str) -> None:
    """Replaces the file by one that this user alone can read. OSError."""
    write_private(path, text.encode())


def _secret(lines: list[str], where: str) -> Secret:
    match [line.split() for line in lines]:
        case [[word]]:
            return Secret(word)
        case [[word], ["was", old, "from", since, "until", until]] if since.isdecimal() and until.isdecimal():
            return Secret(word, old, float(since), float(until))
    raise ConfigError(
        f"{where} is neither a run's secret nor a process's token: expected one long random word, or what `paceline keys "
        f"token` makes; got {len(lines)} lines."
    )


def _token(lines: list[str], where: str) -> Token:
    keys = [_key(line, where) for line in lines[:-1]]
    if not keys or not looks_signed(lines[-1]):
        raise ConfigError(
            f"{where} has public keys, but no token after them. Make the file again: paceline keys token."
        )
    return Token(tuple(keys), lines[-1])


def _key(line: str, where: str) -> Key:
    match line.split():
        case ["key", key] if is_public_key(key):
            return Key(key)
        case ["key", key, "until", until] if is_public_key(key) and until.isdecimal():
            return Key(key, float(until))
    raise ConfigError(
        f"{where} has a line that is no public key: {line[:60]!r}. Make the file again: paceline keys token."
    )
