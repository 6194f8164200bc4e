"""Commands of a shell block, as far as they can be checked without running them: syntax, options, settings, targets."""

import importlib.util
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import typer
import typer.main
from typer.core import TyperGroup

from paceline.cli.__main__ import app
from paceline.core.errors import PacelineError
from paceline.launch.settings.read_config import read_config, read_launch
from paceline.settings.flags import Flags
from paceline_studies.commands.plan import reader_and_words
from paceline_studies.planning.choices import ChosenSizes, choices
from paceline_studies.search.grid import read_grid
from tools.prose.pages import ROOT

_SEPARATORS = ";|&()<>\n"
_NOT_COMMANDS = {"do", "then", "else", "!", "time", "srun", "sudo"}
_TRAINS = {"run", "shard", "local", "search"}
_NOT_INSTALLED = "which is not installed here"
"""An extra's library is missing: nothing that a page has said wrong."""
_OPTIONS = ("workers", "servers", "policy", "slow", "epochs", "data", "preset", "log")


def commands(text: str) -> Iterator[list[str]]:
    """The simple commands in it, cut into words; `$ ` before them and comments are left out."""
    lines = [re.sub(r"(^|\s)#.*$", "", re.sub(r"^\$ ", "", line)) for line in text.splitlines()]
    lexer = shlex.shlex("\n".join(lines).replace("\\\n", " "), posix=True, punctuation_chars=_SEPARATORS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set(_SEPARATORS):
            if words:
                yield words
            words = []
        elif words or not (word in _NOT_COMMANDS or re.match(r"\w+=", word)):
            words.append(word)


def problems(text: str) -> Iterator[str]:
    """What is wrong with a shell block; files that its commands read are looked for in the working folder."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        yield done.stderr.strip()
        return
    for words in commands(text):
        try:
            said = _problem(words)
        except PacelineError as error:
            said = str(error)
        except Exception as error:
            if not hasattr(error, "format_message"):  # what typer refuses; it has no public name
                raise
            said = error.format_message()
        if said and _NOT_INSTALLED not in said:
            yield f"{shlex.join(words)}: {said}"


def _problem(words: Sequence[str]) -> str | None:
    program, arguments = Path(words[0]).name, list(words[1:])
    if program == "paceline":
        return _paceline(arguments)
    if program == "make":
        return _make(arguments)
    if program in ("python", "python3") and "-m" in arguments:
        module = arguments[arguments.index("-m") + 1]
        return None if importlib.util.find_spec(module) else f"there is no module {module}"
    return None


def _paceline(arguments: list[str]) -> str | None:
    """Parsed as the program does it, and its settings read."""
    command: Any = _parser()
    context = typer.Context(command, info_name="paceline")
    while isinstance(command, TyperGroup) and arguments:
        name, *arguments = arguments
        if name.startswith("--"):
            return None
        command = command.get_command(context, name)
        if command is None:
            return f"there is no command {name}"
        context = typer.Context(command, info_name=name, parent=context)
    if "--help" not in arguments:
        parsed = command.make_context(context.info_name or "", arguments, parent=context.parent)
        _read_settings(context.info_name or "", parsed.params)
    return None


@cache
def _parser() -> Any:
    """The program's parser, once for all blocks: no block's command changes anything in it."""
    return typer.main.get_command(app)


def _read_settings(name: str, params: dict[str, Any]) -> None:
    given = {key: params[key] for key in _OPTIONS if params.get(key) is not None}
    sets = params.get("sets") or []
    flags = Flags(sets=sets, **given)
    if name == "launch":
        read_launch(params["script"], params["arguments"] or [], flags)
    elif name == "plan":
        flags = Flags(preset=params["preset"], epochs=params["epochs"], data=params["data"], sets=sets)
        read, _ = reader_and_words(params["what"], params["arguments"] or [], flags)
        asked = ChosenSizes.of(params["workers"], params["servers"], params["policy"])
        choices(asked, asked.own(read), read)
    elif name == "search":
        grid = read_grid(params["grid"] or [])
        point = [f"{key}={value}" for key, value in next(grid.ends()).items() if not isinstance(value, (dict, list))]
        read_config(params["what"], replace(flags.with_sets(point), preset=flags.preset or grid.preset))
    elif name in _TRAINS and "what" in params and not params.get("old"):  # paceline k8s run takes another word
        read_config(params["what"], flags)
    elif name == "set":
        read_config("digits", Flags(sets=params["settings"] or []))


def _make(arguments: Sequence[str]) -> str | None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in arguments:
        name, equals, _ = word.partition("=")
        if equals and not re.search(rf"\b{re.escape(name)}\b", makefile):
            return f"the Makefile knows no {name}"
        if not equals and not re.search(rf"^{re.escape(name)}:", makefile, re.MULTILINE):
            return f"the Makefile has no target {name}"
    return None
