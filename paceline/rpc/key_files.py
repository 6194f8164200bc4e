"""Writes the files that `--tls` takes."""

import os
from pathlib import Path


def write_keys(folder: Path, authority: bytes, certificate: bytes, key: bytes) -> Path:
    """Into a folder that only this user may read."""
    from paceline.rpc.tls import (  # here: gRPC comes with it, and a mistake must show without
        AUTHORITY,
        CERTIFICATE,
        KEY,
    )

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in ((AUTHORITY, authority), (CERTIFICATE, certificate), (KEY, key)):
        write_secret(folder / name, content)
    return folder


def write_secret(file: Path, content: bytes) -> None:
    """Replaces the file by one that only this user may read. OSError."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)
    temporary.replace(file)
