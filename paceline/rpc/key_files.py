"""Writes the files that `--tls` takes."""

from pathlib import Path

from paceline.base.private import write_private


def write_keys(folder: Path, authority: bytes, certificate: bytes, key: bytes) -> Path:
    """Into a folder that only this user may read."""
    from paceline.rpc.tls import (  # here: gRPC comes with it, and a mistake must show without
        AUTHORITY,
        CERTIFICATE,
        KEY,
    )

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in ((AUTHORITY, authority), (CERTIFICATE, certificate), (KEY, key)):
        write_private(folder / name, content)
    return folder
