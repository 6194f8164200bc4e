"""Who may call: what a process shows with every call, how others check it, and TLS around both."""

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from paceline.base.bounded import MOST_KEY, read_text
from paceline.base.private import make_private
from paceline.core.errors import ConfigError, PermissionDenied, Unauthenticated
from paceline.rpc.roles import ANYONE, ROLES, Caller, Role, admit, fault_of_certificate
from paceline.rpc.token_file import Content, Secret, Token, content_of, keys_of, read_token_file, write_token_file
from paceline.rpc.tokens import UNREAD, Claims, check_time, claimed, looks_signed, read, sign

HEADER = "authorization"
_BEARER = "Bearer "
_OWN_LIFE = 3600.0
"""How long a token holds that a holder of the secret makes for itself (seconds)."""
LOOK = 1.0
"""Time between two looks at a token file (seconds)."""
_REMEMBERED = 4096
"""Tokens that a process has checked already, at most."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a process shows to others, and checks them with."""

    token: str = ""
    """The run's secret, or what a token file holds (paceline/rpc/token_file.py); '': nothing is shown or checked."""
    tls: Path | None = None
    """Folder of its keys (paceline/rpc/tls.py), with which it also checks the others; None: plain text."""
    role: Role = "admin"
    name: str = ""
    run: str = ""
    """What a holder of the secret calls itself."""
    file: Path | None = None
    """Where `token` was read, and is read again when it changes."""
    memory: Path | None = None
    """Where a holder of the secret keeps the public keys that it accepts, for its next start; None: nowhere."""
    learns: bool = False
    """Whether replies of the chief bring a process that others call the keys of a new secret."""

    def named(self, role: Role, name: str, run: str | None = None) -> "Credentials":
        """The same for a process of this role and name."""
        return replace(self, role=role, name=name, run=self.run if run is None else run)


OPEN = Credentials()
"""Shows nothing."""


class Held:
    """The secret or token of a process as it is now: its file is read again when it changes, and the chief may give a newer
    token. Thread-safe."""

    def __init__(self, credentials: Credentials, clock: Callable[[], float] = time.time) -> None:
        self._credentials = credentials
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: tuple[int, int] | None = None  # the file may have changed since `token` was read
        self._looked = clock()
        self._content = self._with_memory(content_of(credentials.token))
        self._keep()
        self._given: Token | None = None
        """What the chief has given."""
        self._own: tuple[str, float, str] | None = None
        """A token that a holder of the secret has made for itself: with which secret, when, and the token."""

    def shown(self) -> str:
        """The header to show now; '' where there is none."""
        with self._lock:
            self._look()
            found = self._given or self._content
            if isinstance(found, Secret):
                return bearer(self._made(found))
            return bearer(found.text) if found else ""

    def keys(self) -> tuple[str, ...]:
        """The public keys whose tokens hold now, the newest first."""
        with self._lock:
            self._look()
            now = self._clock()
            found = [key for each in (self._content, self._given) if each for key in each.keys if key.holds(now)]
            return tuple(dict.fromkeys(key.text for key in found))

    @property
    def may_be_late(self) -> bool:
        """Whether others may have tokens of a newer secret before this process knows its key: it reads a Secret of Kubernetes,
        which pods see minutes apart, or learns keys from such a process."""
        file = self._credentials.file
        is_mounted = file is not None and (file.parent / "..data").is_symlink() and isinstance(self._content, Secret)
        return is_mounted or self._credentials.learns

    def take(self, text: str) -> None:
        """A newer token of this process, as the chief gives it; its file gets it as well, unless that holds the secret."""
        if not text or not isinstance(found := content_of(text, "The chief's reply"), Token):
            return
        with self._lock:
            self._given = found
            file = self._credentials.file
            if isinstance(self._content, Token) and file is not None:
                with suppress(OSError):  # it can't be written here; what is shown is newer then
                    write_token_file(file, text)
                    self._seen = self._stamp()

    def renewal(self, caller: Caller) -> str:
        """What the caller's token file should hold from now on, where the secret that has signed its token is being replaced;
        its time stays. '' otherwise. Only a holder of the secret gives one."""
        if caller.claims is None:
            return ""
        with self._lock:
            self._look()
            secret = self._content
            if not isinstance(secret, Secret) or not secret.renews(caller.key, self._clock()):
                return ""
            return secret.token_file(caller.claims, self._clock())

    def _made(self, secret: Secret) -> str:
        now, signer, one = self._clock(), secret.signer(self._clock()), self._credentials
        if self._own is None or self._own[0] != signer or not 0 <= now - self._own[1] < _OWN_LIFE / 2:
            token = sign(signer, Claims(one.run, one.role, one.name, now, now + _OWN_LIFE))
            self._own = signer, now, token
        return self._own[2]

    def _look(self) -> None:
        """Reads the file again if it has changed. With the lock held."""
        now = self._clock()
        if self._credentials.file is None or abs(now - self._looked) < LOOK:
            return
        self._looked = now
        seen = self._stamp()
        if seen is None or seen == self._seen:
            return
        with suppress(ConfigError):  # half written, or gone again: what was read before stays
            content = content_of(read_token_file(self._credentials.file))
            self._content = content.after(self._content, now) if isinstance(content, Secret) else content
            self._keep()
            self._seen = seen
            self._given = None

    def _with_memory(self, content: Content) -> Content:
        """The content with what this process's last start has kept."""
        memory = self._credentials.memory
        if memory is None or not isinstance(content, Secret):
            return content
        with suppress(OSError, ConfigError, UnicodeDecodeError):
            return content.knowing(keys_of(read_text(memory, MOST_KEY), str(memory)), self._clock())
        return content

    def _keep(self) -> None:
        """Writes the keys for the next start. Where it can't, that one knows none."""
        memory = self._credentials.memory
        if memory is not None and isinstance(self._content, Secret):
            with suppress(OSError):
                make_private(memory.parent)
                write_token_file(memory, "".join(f"{key.line}\n" for key in self._content.keys))

    def _stamp(self) -> tuple[int, int] | None:
        if self._credentials.file is None:
            return None
        try:
            found = self._credentials.file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino


@cache
def held(credentials: Credentials) -> Held:
    """What these hold; one object for all who use them in this process."""
    return Held(credentials)


class Authentication(ABC):
    """Decides whether a call's token is good, and who shows it."""

    @abstractmethod
    def check(self, shown: str | None, method: str) -> Caller:
        """`shown`: the call's header. Unauthenticated where it is not good, PermissionDenied where it does not open this
        call."""

    def renewal(self, caller: Caller) -> str:
        """What this caller's token file should hold from now on; '' where it is good."""
        return ""


class NoAuthentication(Authentication):
    """Everybody may call: for tests and for a network that is closed otherwise."""

    def check(self, shown: str | None, method: str) -> Caller:
        return ANYONE


class SignedTokens(Authentication):
    """Tokens that the run's secret has signed. Thread-safe."""

    def __init__(self, credentials: Credentials, clock: Callable[[], float] = time.time) -> None:
        self._held = held(credentials)
        self._run = credentials.run
        self._clock = clock
        self._good: dict[tuple[str, str], tuple[Caller, float]] = {}
        """By header and call: who calls, and when that was found out."""

    def check(self, shown: str | None, method: str) -> Caller:
        now = self._clock()
        if shown and (found := self._good.get((shown, method))) and 0 <= now - found[1] < LOOK:
            return found[0]
        caller = self._judged(shown, method, now)
        if len(self._good) >= _REMEMBERED:
            self._good.clear()
        self._good[shown or "", method] = caller, now
        return caller

    def renewal(self, caller: Caller) -> str:
        return self._held.renewal(caller)

    def _judged(self, shown: str | None, method: str, now: float) -> Caller:
        if not shown:
            raise Unauthenticated(
                "The call carries no token. Give the process's token file with --token-file; the holder of the run's "
                "secret makes one: paceline keys token."
            )
        token = shown.removeprefix(_BEARER)
        if not looks_signed(token):
            raise Unauthenticated(
                "The call carries a wrong token, which nobody has signed. All processes of a run need a --token-file of that "
                "run, and the same release of Paceline."
            )
        claims, key = read(token, self._held.keys(), now - UNREAD if self._held.may_be_late else math.inf)
        check_time(claims, now)
        if self._run and claims.run and claims.run != self._run:
            raise PermissionDenied(
                f"The token is for run {claims.run!r}, this is run {self._run!r}. Make one for this run: paceline keys token "
                f"{self._run}."
            )
        role = next((role for role in ROLES if role == claims.role), None)
        if role is None:
            raise PermissionDenied(f"The token's role is {claims.role!r}; there are {', '.join(ROLES)}.")
        caller = Caller(role, claims.name, claims, key)
        admit(caller, method)
        return caller


def bearer(token: str) -> str:
    """The metadata value that carries the token."""
    return f"{_BEARER}{token}"


def read_credentials(token_file: Path | None, tls: Path | None, name: str = "") -> Credentials:
    """What the command line names, read and checked. `name`: whose keys are wanted where the folder has one for each name; by
    default those of who holds the token, an admin without one. ConfigError."""
    token = read_token_file(token_file) if token_file is not None else ""
    if tls is not None:
        from paceline.rpc.tls import key_folder, own_folder

        found = content_of(token)
        says = claimed(found.text) if isinstance(found, Token) and not name else None
        if says is not None:
            name = says.role if not says.name or "*" in says.name else says.name
        tls = own_folder(tls, name or "admin", "" if says is None else says.role)
        key_folder(tls)
    return Credentials(token, tls, file=token_file)


def check_own_certificate(credentials: Credentials) -> None:
    """ConfigError: the certificate that a process with TLS would show is somebody else's."""
    from paceline.rpc.tls import CERTIFICATE, key_folder

    assert credentials.tls is not None, "there is none"
    found = key_folder(credentials.tls).newest().name
    if fault := fault_of_certificate(found, credentials.role, credentials.name):
        raise ConfigError(f"{credentials.tls / CERTIFICATE}: {fault}")


def authentication(credentials: Credentials) -> Authentication:
    """The check that fits: by signed tokens, or none where there is nothing to check them with."""
    return SignedTokens(credentials) if credentials.token else NoAuthentication()
