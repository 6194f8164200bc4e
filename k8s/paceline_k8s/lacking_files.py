"""Which files of a folder a volume does not have yet, so that an interrupted copy goes on with these."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

Ask = Callable[[str, str], str]
"""Runs a script of sh in the volume's folder, with a text as its input; gives its output."""
SIZES = "find . -name lost+found -prune -o -type f -exec stat -c '%s %n' {} +"
CHECKSUMS = "xargs -0 sha256sum"


def lacking(folder: Path, paths: list[Path], ask: Ask, say: Callable[[str], None]) -> list[Path]:
    """Those of `paths`, which are in `folder`, that the volume does not have with the same size and checksum; always all
    that are no plain files."""
    sizes = _numbered(ask(SIZES, ""))
    names = {f"./{path.relative_to(folder)}": path for path in paths if is_plain(path)}
    same = {name: path for name, path in names.items() if sizes.get(name) == str(path.stat().st_size)}
    if not same:
        return paths
    total = sum(path.stat().st_size for path in same.values())
    say(
        f"{len(same)} of {len(names)} files ({total:,} bytes) have arrived with the right size; comparing their checksums"
    )
    whole = set(_whole(same, ask))
    return [path for path in paths if path not in whole]


def incomplete(folder: Path, paths: list[Path], ask: Ask) -> list[str]:
    """The names of those plain files that the volume does not have with the right size."""
    sizes = _numbered(ask(SIZES, ""))
    files = [path for path in paths if is_plain(path) and not {"\n", "\r"} & set(str(path))]
    return [
        str(name) for path in files if sizes.get(f"./{(name := path.relative_to(folder))}") != str(path.stat().st_size)
    ]


def is_plain(path: Path) -> bool:
    """A file, and no link to one."""
    return path.is_file() and not path.is_symlink()


def _whole(same: Mapping[str, Path], ask: Ask) -> Iterator[Path]:
    there = _numbered(ask(CHECKSUMS, "\0".join(same)))
    for name, path in same.items():
        with path.open("rb") as file:
            if there.get(name) == hashlib.file_digest(file, "sha256").hexdigest():
                yield path


def _numbered(text: str) -> dict[str, str]:
    """By the name behind it, the number in front of each line. Names that no line can hold are in no line."""
    pairs = (line.partition(" ") for line in text.split("\n"))
    return {name.removeprefix(" "): number for number, _, name in pairs}
