"""Begins `paceline join` on the machines of a file, by ssh, and ends what it has begun."""

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from paceline.base.private import make_private
from paceline.core.errors import ConfigError, PoolFull, UsageError
from paceline.launch.other_machines.hosts import Hosts
from paceline.launch.other_machines.key import JoinKey

OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=10")
"""No terminal, no questions, and an end where nobody answers."""
_KEYS = ("workers", "servers", "python")
_END = 5.0
"""Seconds that an ssh has to end by itself after the run."""
_TAIL = 12
_REFUSED, _NO_COMMAND = 255, 127
"""Exit codes of ssh itself, and of the shell there."""


class SshHost(NamedTuple):
    """One line of the file."""

    name: str
    """As ssh takes it: a machine, user@machine, or a name of ~/.ssh/config."""
    workers: int | None = None
    """None: as many as it has cores or GPUs."""
    servers: int = 0
    python: str = ""
    """Program that has Paceline there; empty: the command `paceline` on its PATH."""

    def command(self, where: str) -> list[str]:
        """What is run here; the key comes by stdin, for a command line can be seen by others."""
        program = [self.python, "-m", "paceline.cli"] if self.python else ["paceline"]
        words = [*program, "join", where, "--key", "-", "--name", self.name.rpartition("@")[2], "-s", str(self.servers)]
        words += [] if self.workers is None else ["-w", str(self.workers)]
        home = "~/" if words[0].startswith("~/") else ""  # the shell there fills it in, if it is not quoted
        return ["ssh", *OPTIONS, "--", self.name, home + shlex.join([words[0].removeprefix(home), *words[1:]])]


def read_hosts(file: Path) -> list[SshHost]:
    """UsageError names the line that can't be read."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"Can't read --hosts {file}: {told}. {_FORM}") from error
    found = [_host(file, number, line) for number, line in enumerate(lines, 1) if line.partition("#")[0].strip()]
    if not found:
        raise UsageError(f"--hosts {file} names no machine. {_FORM}")
    names = [host.name for host in found]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise UsageError(f"--hosts {file} names {twice[0]} twice. Give each machine one line, with all its workers.")
    return found


_FORM = "It takes a line a machine: NAME [workers=N] [servers=N] [python=PROGRAM]."


def _host(file: Path, number: int, line: str) -> SshHost:
    name, *others = line.partition("#")[0].split()
    pairs = [other.partition("=") for other in others]
    here = f"--hosts {file}, line {number}"
    if name.startswith("-") or "=" in name:
        raise UsageError(f"{here}: got {name!r} as the machine's name. {_FORM}")
    for key, _, value in pairs:
        if key not in _KEYS or not value or (key != "python" and not value.isdecimal()):
            raise UsageError(f"{here}: got {key}={value}; {_FORM}" if value else f"{here}: got {key!r}. {_FORM}")
    given = {key: value for key, _, value in pairs}
    workers = int(given["workers"]) if "workers" in given else None
    return SshHost(name, workers, int(given.get("servers", 0)), given.get("python", ""))


def _todo(host: SshHost, code: int) -> str:
    """What helps against the two usual mistakes."""
    if code == _REFUSED:
        return f" `ssh -o BatchMode=yes {host.name} true` must work from here, without a password."
    if code == _NO_COMMAND:
        lacks = (
            f"There is no {host.python}" if host.python else "The command `paceline` is not on the PATH that ssh gives"
        )
        return f" {lacks} there: say python=PROGRAM in its line, the Python that has Paceline."
    return ""


class _Begun(NamedTuple):
    host: SshHost
    process: subprocess.Popen[bytes]
    log: Path
    start: int
    """Where this run's words begin in the log (bytes)."""

    @property
    def last_lines(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self.start)
            lines = log.read().decode(errors="replace").strip().splitlines()[-_TAIL:]
        return "".join(f"\n    {line}" for line in lines) or " nothing"


@contextmanager
def begin_by_ssh(
    wanted: Sequence[SshHost], where: str, key: JoinKey, hosts: Hosts, log: Callable[[str], Path]
) -> Iterator[Callable[[], list[str]]]:
    """Begins on all of them; gives what looks after them, and has lines to say: ConfigError where one ends before its host has
    joined, unless the others lend all that the run needs."""
    begun: list[_Begun] = []
    spare: set[str] = set()

    def look() -> list[str]:
        new = []
        for one in begun:
            code, name = one.process.poll(), one.host.name.rpartition("@")[2]
            if code is None or name in spare or hosts.has_come(name):
                continue
            if code != PoolFull.exit_code or not hosts.is_full():
                what = f"ssh {one.host.name} ended with exit code {code} before that machine had joined."
                raise ConfigError(f"{what}{_todo(one.host, code)} It said:{one.last_lines}")
            spare.add(name)
            new.append(
                f"host {name} is not needed: other machines lend all that the run takes. To spread it, write workers=N into "
                "their lines."
            )
        return new

    try:
        for host in wanted:
            begun.append(_begin(host, where, key, log(f"ssh-{host.name}")))
        yield look
    finally:
        _end(begun)


def _begin(host: SshHost, where: str, key: JoinKey, log: Path) -> _Begun:
    make_private(log.parent)
    start = log.stat().st_size if log.exists() else 0
    with log.open("ab") as words:
        try:
            process = subprocess.Popen(
                host.command(where), stdin=subprocess.PIPE, stdout=words, stderr=words, start_new_session=True
            )
        except OSError as error:
            raise ConfigError(
                f"Can't start ssh, which --hosts needs: {error.strerror}. Install an ssh client."
            ) from error
    stdin: IO[bytes] | None = process.stdin
    if stdin is not None:
        with suppress(BrokenPipeError):  # it has ended; its words come later
            stdin.write(f"{key.text()}\n".encode())
            stdin.flush()
    return _Begun(host, process, log, start)


def _end(begun: list[_Begun]) -> None:
    """Hosts go with the run; an ssh that is still there then is ended."""
    end = time.monotonic() + _END
    while any(one.process.poll() is None for one in begun) and time.monotonic() < end:
        time.sleep(0.05)
    for one in begun:
        one.process.kill()
        one.process.wait()
        if one.process.stdin is not None:
            with suppress(BrokenPipeError):
                one.process.stdin.close()
