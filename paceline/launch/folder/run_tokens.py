"""The tokens of a run's processes, made with the run's secret."""

import re
import time
from collections.abc import Callable
from pathlib import Path

from paceline.base.private import make_private
from paceline.core.errors import UsageError
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder, find_run
from paceline.rpc.auth import LOOK, check_own_certificate, read_credentials
from paceline.rpc.roles import ROLES, Role
from paceline.rpc.token_file import OVERLAP, read_token_file, run_secret, write_token_file

_KNOWN = 3 * LOOK
"""Time until all processes of this machine have read a changed token file (seconds)."""
_SHORTEST = 4 * _KNOWN
"""The old secret stays valid for so long at least, so that no process is refused meanwhile (seconds)."""


def role_of(name: str) -> Role:
    """What the token of the process of this name opens."""
    first = name.partition("-")[0]
    return next((role for role in ROLES if role == first), "reader")


def token_text(folder: RunFolder, name: str) -> str:
    """What the token file of the run's process of this name holds. ConfigError."""
    return run_secret(folder.read_secret(), str(folder.token)).issued(folder.name, role_of(name), name)


def made(name: str | None, secret_file: Path | None, role: str, who: str, life: float) -> str:
    """What a token file for this role and name holds. `name`: of the run, of this machine unless there is a file with its
    secret; `life`: how long it holds (seconds). UsageError, ConfigError."""
    if role in ("worker", "server") and not re.fullmatch(rf"{role}-([0-9]+|\*)", who):
        raise UsageError(
            f"--name {who or '(none)'}: a {role} speaks for itself alone; expected {role}-0, {role}-1, ..., or {role}-*."
        )
    if secret_file is None:
        folder = find_run(name)
        name, text, where = folder.name, folder.read_secret(), str(folder.token)
    elif name is None:
        raise UsageError("Which run is it? Name it: paceline keys token RUN --secret-file FILE ...")
    else:
        text, where = read_token_file(secret_file), str(secret_file)
    return run_secret(text, where).issued(name, role, who or role, life)


def check_keys(keys: Path, config: Config) -> None:
    """ConfigError: a process of the run has no certificate in this folder, and there is none for all."""
    counts = {"server": config.server_processes, "worker": config.workers}
    names = [f"{role}-{number}" for role, count in counts.items() for number in range(count)]
    if config.evaluate_every or not config.is_script:
        names.append("evaluator")
    if config.data.source == "server":
        names.append("sharder")
    for name in names:
        check_own_certificate(read_credentials(None, keys, name).named(role_of(name), name))


def given_token(folder: RunFolder, name: str) -> Path:
    """The token file for a process that is about to start: servers get the secret."""
    if role_of(name) == "server":
        return folder.token
    path = folder.token_of(name)
    make_private(path.parent)
    write_token_file(path, token_text(folder, name))
    return path


def replace_secret(folder: RunFolder, overlap: float = OVERLAP, sleep: Callable[[float], None] = time.sleep) -> None:
    """Replaces the run's secret. The old one stays valid for `overlap` seconds, in which all processes of the run get tokens
    of the new one; 0: only until those of this machine have some, and nobody is given one for an old one. ConfigError,
    OSError."""
    before = run_secret(folder.read_secret(), str(folder.token))
    text = before.replaced(time.time(), overlap or _SHORTEST)
    write_token_file(folder.token, text)
    after = run_secret(text, str(folder.token))
    files = _token_files(folder)
    # all know the new public key before anyone shows a token of the new secret
    for file in files:
        write_token_file(file, after.issued(folder.name, role_of(file.name), file.name, signer=before.word))
    sleep(_KNOWN)
    for file in files:
        write_token_file(file, after.issued(folder.name, role_of(file.name), file.name, signer=after.word))
    if not overlap:
        sleep(_KNOWN)
        write_token_file(folder.token, f"{after.word}\n")
        alone = run_secret(folder.read_secret(), str(folder.token))
        for file in _token_files(folder):
            write_token_file(file, alone.issued(folder.name, role_of(file.name), file.name))


def _token_files(folder: RunFolder) -> list[Path]:
    """Those of the run's processes on this machine."""
    return [file for file in folder.token_of("").glob("*") if not file.name.startswith(".")]
