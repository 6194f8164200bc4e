"""Who may call: the run's token, carried in every call's metadata and compared in constant time; and TLS around it."""

import hmac
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from paceline.core.errors import ConfigError, Unauthenticated

HEADER = "authorization"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a process shows to others."""

    token: str = ""
    tls: Path | None = None
    """Folder of its keys (paceline/rpc/tls.py), with which it also checks the others; None: plain text."""


OPEN = Credentials()
"""Shows nothing."""


class Authentication(ABC):
    """Decides whether a call's credentials are good."""

    @abstractmethod
    def check(self, credentials: str | None) -> None:
        """Unauthenticated where they are not."""


class NoAuthentication(Authentication):
    """Everybody may call: for tests and for a network that is closed otherwise."""

    def check(self, credentials: str | None) -> None:
        return


class TokenAuthentication(Authentication):
    """One token for the run."""

    def __init__(self, token: str) -> None:
        self._expected = bearer(token)

    def check(self, credentials: str | None) -> None:
        if credentials is None:
            raise Unauthenticated("The call carries no token. Give the run's token file with --token-file.")
        if not hmac.compare_digest(credentials.encode(), self._expected.encode()):
            raise Unauthenticated("The call carries a wrong token. All processes of a run need the same --token-file.")


def bearer(token: str) -> str:
    """The metadata value that carries the token."""
    return f"Bearer {token}"


def read_token(path: Path | None) -> str:
    """The token in a file, '' without one."""
    if path is None:
        return ""
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise ConfigError(
            f"Can't read the token file {path}: {error.strerror}. Give a file that this user can read."
        ) from error
    if not token:
        raise ConfigError(f"The token file {path} is empty; write a long random word into it.")
    return token


def read_credentials(token_file: Path | None, tls: Path | None) -> Credentials:
    """What the command line names, read and checked. ConfigError."""
    if tls is not None:
        from paceline.rpc.tls import key_folder

        key_folder(tls)
    return Credentials(read_token(token_file), tls)


def authentication(token: str) -> Authentication:
    """The check that fits: by token, or none where there is none."""
    return TokenAuthentication(token) if token else NoAuthentication()
