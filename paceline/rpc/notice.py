"""The notice that a process has to end soon: a signal, or what PACELINE_NOTICE names, a file or a cloud's metadata service.
All of them count as SIGTERM does."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from paceline.base.variables import NOTICE
from paceline.core.errors import ConfigError

CLOUDS = ("aws", "gcp", "azure")
EVERY = 1.0
"""Time between two looks (seconds): all processes of a machine have to learn it within the 2 s in which the chief takes their
notices for one stop of the whole run."""


@dataclass(frozen=True, slots=True)
class Notice:
    """This process ends soon."""

    source: str
    """What said so: a signal like SIGTERM, a file's path, or aws, gcp or azure."""
    deadline: datetime | None = None
    """When the machine goes (UTC); None where nobody said it."""


_received: list[Notice] = []


def received() -> Notice | None:
    """Returns the first notice that this process got."""
    return _received[0] if _received else None


def receive(notice: Notice) -> None:
    """Notes that this process got a notice. It takes no lock, since signal handlers call it."""
    _received.append(notice)


class Watch:
    """A thread that looks for a notice until it comes. Leaving the block ends it."""

    def __init__(self, look: Callable[[], Notice | None], on_notice: Callable[[], None], say: Callable[[str], None]):
        self._look = look
        self._on_notice = on_notice
        self._say = say
        self._failure = ""
        self._closed = threading.Event()
        threading.Thread(target=self._work, name="notice", daemon=True).start()

    def close(self) -> None:
        """Looks no more. Returns at once."""
        self._closed.set()

    def _work(self) -> None:
        while not self._closed.is_set():
            notice = self._looked()
            if notice is not None and not self._closed.is_set():
                until = f", until {notice.deadline:%H:%M:%S} UTC" if notice.deadline else ""
                self._say(f"got a notice from {notice.source}{until}")
                receive(notice)
                self._on_notice()
                return
            self._closed.wait(EVERY)

    def _looked(self) -> Notice | None:
        """One look; a failure is said when it is another one than the last."""
        try:
            notice, failure = self._look(), ""
        except Exception as error:
            notice, failure = None, f"{type(error).__name__}: {error}"
        if failure and not self._failure:
            self._say(f"can't look for a notice, and tries again every {EVERY:g} s ({failure})")
        elif self._failure and not failure:
            self._say("can look for a notice again")
        self._failure = failure
        return notice


def watch(on_notice: Callable[[], None], say: Callable[[str], None]) -> Watch | None:
    """Begins to look for the notice that PACELINE_NOTICE names, and says so; None where it names nothing. `on_notice`: called
    once, in a thread by itself. ConfigError: it names nothing that can be looked at."""
    if not (named := os.environ.get(NOTICE)):
        return None
    cloud, _, url = named.partition("@")
    if cloud in CLOUDS:
        from paceline.rpc.clouds import look_at  # clients of HTTP, which few processes need

        say(f"looks for a notice from {cloud}")
        return Watch(look_at(cloud, url), on_notice, say)
    if not os.path.isabs(named):
        raise ConfigError(f"{NOTICE} is {named!r}; expected aws, gcp, azure or the path of a file, like /run/notice.")

    path = Path(named)
    say(f"looks for a notice in {path}")
    return Watch(lambda: Notice(named) if path.exists() else None, on_notice, say)
