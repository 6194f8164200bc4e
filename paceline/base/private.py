"""Folders and files that are this user's alone: runs, searches, state and models; tokens and keys."""

import os
from pathlib import Path


def make_private(folder: Path) -> None:
    """Makes the folder, and those above it that are missing, with mode 700. One that exists stays as it is, so a volume that
    is shared by its group, or a folder that somebody has opened to others, does too. OSError as of `Path.mkdir`."""
    if not folder.parent.exists():
        make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def write_private(file: Path, content: bytes) -> None:
    """Replaces the file by one that only this user may read; a link or a device, like /dev/stdout, is written to. OSError."""
    if file.is_symlink() or (file.exists() and not file.is_file()):
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
            stream.write(content)
        return
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)
    temporary.replace(file)
