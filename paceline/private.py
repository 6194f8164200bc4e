"""Folders that only this user may enter: runs, searches, state and models are made so."""

from pathlib import Path


def make_private(folder: Path) -> None:
    """Makes the folder, and those above it that are missing, with mode 700. One that exists stays as it is, so a volume that
    is shared by its group, or a folder that somebody has opened to others, does too. OSError as of `Path.mkdir`."""
    if not folder.parent.exists():
        make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
