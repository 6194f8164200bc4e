"""What is wrong with a block, as far as it can be seen without running it."""

import ast
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

import paceline
from paceline.core.errors import PacelineError
from paceline.settings.load_settings import load
from tools.doc_blocks import shell
from tools.doc_blocks.blocks import Block
from tools.prose.pages import ROOT

SHELL = ("sh", "bash", "console")
NOTHING = ("text", "mermaid")
"""Drawings and what programs print: nothing to run."""
ONLY_MARKED = ("dockerfile", "promql", "ini", "html", "protobuf", "proto")
_FEWEST_WORDS = 2


def problems(block: Block, folder: Path) -> list[str]:
    """What is wrong with it; `folder` is the working folder, and has the files that its page speaks of."""
    found = [f"a mark 'not run' gives no reason: {mark.why!r}" for mark in block.marks if not _is_reason(mark.why)]
    found += [
        f"no line has {mark.part!r}, which a mark names" for mark in block.marks if (mark.part or "") not in block.text
    ]
    language = block.language.lower()
    if language in NOTHING:
        return found
    if language in ONLY_MARKED:
        return (
            found if block.why_not else [*found, f"{language} can't be run: say so, <!-- not run: why -->, before it"]
        )
    check = _CHECKS.get("sh" if language in SHELL else language)
    if check is None:
        known = ", ".join(sorted({*_CHECKS, *SHELL, *NOTHING, *ONLY_MARKED}))
        return [*found, f"say what it is behind its first ```, one of {known}; not {block.language!r}"]
    try:
        return [*found, *check(block, folder)]
    except (PacelineError, SyntaxError, ValueError, yaml.YAMLError) as error:
        return [*found, f"{type(error).__name__}: {error}"]


def console_input(text: str) -> str:
    """The commands of a console block, whose lines begin with `$ `; all of it where none does."""
    typed = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    return "\n".join(typed) if typed else text


def _is_reason(why: str) -> bool:
    return len(why.split()) >= _FEWEST_WORDS


def _shell(block: Block, folder: Path) -> Iterator[str]:
    yield from shell.problems(console_input(block.text))


def _python(block: Block, folder: Path) -> Iterator[str]:
    """Syntax, and that what is taken from paceline exists and takes these arguments."""
    for node in ast.walk(ast.parse(block.text)):
        is_ours = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "paceline"
        if is_ours and isinstance(node, ast.Attribute) and not hasattr(paceline, node.attr):
            yield f"there is no paceline.{node.attr}"
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("paceline."):
            function = getattr(paceline, ast.unparse(node.func).removeprefix("paceline."), None)
            accepted = inspect.signature(function).parameters if callable(function) else {}
            takes_any = any(each.kind is each.VAR_KEYWORD for each in accepted.values())
            names = [keyword.arg for keyword in node.keywords if keyword.arg]
            wrong = [] if takes_any or not accepted else [name for name in names if name not in accepted]
            yield from (f"{ast.unparse(node.func)} takes no {name}" for name in wrong)


def _yaml(block: Block, folder: Path) -> Iterator[str]:
    """Settings of a run, read as `paceline run` reads them; marked ones are YAML for something else."""
    yaml.safe_load(block.text)
    if not block.why_not:
        file = folder / (block.title or "block.yaml")
        file.write_text(block.text, encoding="utf-8")
        load(file)
    yield from ()


def _diff(block: Block, folder: Path) -> Iterator[str]:
    """Its lines are in the files that it names."""
    names = re.findall(r"^(?:---|\+\+\+) (\S+)", block.text, re.MULTILINE)
    lines = {sign: set[str]() for sign in "-+"}
    for sign, name in zip("-+", names, strict=True):
        lines[sign] = set((ROOT / name).read_text(encoding="utf-8").splitlines())
    for line in block.text.splitlines():
        if line[:1] in lines and not line.startswith(("---", "+++")) and line[1:] not in lines[line[0]]:
            yield f"its line is not in {names['-+'.index(line[0])]}: {line}"


def _toml(block: Block, folder: Path) -> Iterator[str]:
    tomllib.loads(block.text)
    yield from ()


def _json(block: Block, folder: Path) -> Iterator[str]:
    json.loads(block.text)
    yield from ()


_CHECKS: dict[str, Callable[[Block, Path], Iterator[str]]] = {
    "sh": _shell,
    "python": _python,
    "yaml": _yaml,
    "diff": _diff,
    "toml": _toml,
    "json": _json,
}
