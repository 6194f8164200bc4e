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
    """A file that only this user may read."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
