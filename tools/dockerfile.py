"""Reads docker/Dockerfile and .dockerignore: the stages of an image, the files that a build of it sees, and their checksum."""

import fnmatch
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FROM = "--from="
Instruction = tuple[str, str]
"""Its word in capitals, and the rest of its line."""


class Stage(NamedTuple):
    """One `FROM BASE AS NAME`, with what comes below it."""

    base: str
    instructions: list[Instruction]

    @property
    def copied(self) -> list[str]:
        """The files and folders that it copies from the build's context."""
        own = [rest.split() for word, rest in self.instructions if word == "COPY" and FROM not in rest]
        return [path for words in own for path in words[:-1]]

    @property
    def below(self) -> list[str]:
        """Its base, and what it copies from: names of stages, or of images."""
        copies = [rest for word, rest in self.instructions if word == "COPY"]
        return [self.base, *(name for rest in copies for name in re.findall(rf"{FROM}(\S+)", rest))]


class Dockerfile:
    """The instructions of a Dockerfile, by stage."""

    def __init__(self, root: Path = ROOT) -> None:
        """`root`: the build's context, which has the file in its folder docker."""
        self._root = root
        self.before: list[Instruction] = []
        """What comes before the first stage."""
        self.stages: dict[str, Stage] = {}
        self.text = (root / "docker/Dockerfile").read_text()
        instructions = self.before
        for word, rest in _instructions(self.text):
            if word == "FROM":
                base, _, name = rest.split()
                instructions = []
                self.stages[name] = Stage(base, instructions)
            else:
                instructions.append((word, rest))
        self._patterns = [
            line for line in (root / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#")
        ]

    def chain(self, name: str) -> list[Instruction]:
        """All instructions of a stage and of the stages below it, oldest first."""
        base, own = self.stages[name]
        return [*(self.chain(base) if base in self.stages else []), *own]

    def needed(self, name: str) -> dict[str, Stage]:
        """The stages that a build of this one takes, itself included."""
        found: dict[str, Stage] = {}
        waiting = [name]
        while waiting:
            if (next_one := waiting.pop()) in self.stages and next_one not in found:
                found[next_one] = self.stages[next_one]
                waiting += found[next_one].below
        return found

    def extended(self, name: str, line: str) -> str:
        """The file's text with one more line at the end of a stage."""
        own = re.compile(rf"^FROM \S+ AS {re.escape(name)}$.*?(?=^FROM |\Z)", re.MULTILINE | re.DOTALL)
        return own.sub(lambda stage: f"{stage[0].rstrip()}\n{line}\n\n", self.text)

    def ignores(self, path: str) -> bool:
        """Whether .dockerignore keeps a path out: of the patterns that fit it or a folder above it the last one counts."""
        parts = PurePath(path).parts
        above = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        is_out = False
        for line in self._patterns:
            if any(_fits(each, line.removeprefix("!")) for each in above):
                is_out = not line.startswith("!")
        return is_out

    def files(self, name: str) -> list[Path]:
        """The files of the context that a build of this stage copies."""
        copied = {path for stage in self.needed(name).values() for path in stage.copied}
        found = {file for path in copied for file in _files(self._root / path)}
        return sorted(file for file in found if not self.ignores(str(file.relative_to(self._root))))

    def checksum(self, name: str, arguments: Mapping[str, str], more: Sequence[str] = ()) -> str:
        """Of all that decides what a build of this stage holds: instructions, files with their modes, the build's arguments,
        and `more`, which is not in the tree."""
        stages = {each: [stage.base, stage.instructions] for each, stage in sorted(self.needed(name).items())}
        found = hashlib.sha256(json.dumps([name, self.before, stages, dict(arguments), list(more)]).encode())
        for file in self.files(name):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            found.update(f"{file.relative_to(self._root)} {file.stat().st_mode:o} {content}\n".encode())
        return found.hexdigest()


def _instructions(text: str) -> Iterator[Instruction]:
    """One by one, without comments, each on one line."""
    whole = re.sub(r"\\\n\s*", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    for line in filter(str.strip, whole.splitlines()):
        word, rest = line.split(maxsplit=1)
        yield word, rest


def _fits(path: str, pattern: str) -> bool:
    """Whether a pattern of .dockerignore names this very path."""
    anywhere = pattern.removeprefix("**/")
    return fnmatch.fnmatch(path, pattern) or (anywhere != pattern and PurePath(path).match(anywhere))


def _files(path: Path) -> Iterator[Path]:
    """This file, or all in this folder."""
    return (each for each in path.rglob("*") if each.is_file()) if path.is_dir() else iter([path])
