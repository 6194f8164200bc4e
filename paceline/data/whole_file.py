"""Files that are written whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from paceline.core.errors import DiskError
from paceline.data.shard_arrays import sync


@contextmanager
def replacing(path: Path, what: str) -> Iterator[Path]:
    """The path of a new file, which replaces `path` at the end of the block: a reader sees the old file or the
    whole new one. `what`: what is written, for people. DiskError where it can't be; nothing is left behind then."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        raise DiskError(
            f"Can't write {what} to {path}: {error}. Is the disk full, or may this user not write there?"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
