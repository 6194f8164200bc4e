"""What the shell proposes after TAB: names of tasks, policies, presets, settings and runs. Nothing here loads torch, and only
who asks for the options of extensions loads these."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

from paceline.core.folders import PEERS, POLICIES, names
from paceline.settings.presets import presets

TASKS = "paceline.tasks.builtin"
LOGGERS = "paceline.launch.loggers"
ASKED_BY = "_PACELINE_COMPLETE"
"""The variable by which a shell asks, with its name."""
_ZSH = "_arguments "
_PROPOSED = re.compile(r'^(?:_arguments .*\(\()?"([^"]*)"', re.MULTILINE)
"""What begins a line for zsh; what it means comes behind it, and may take more lines."""


@contextmanager
def without_blank(shell: str | None) -> Iterator[None]:
    """What is printed meanwhile goes to a shell that asked (`complete_bash`, ...), so that it puts no blank behind `key=`."""
    if shell is None:
        yield
        return
    told = StringIO()
    try:
        with redirect_stdout(told):
            yield
    finally:
        print(_joined_to_value(shell, told.getvalue()), end="")


def _joined_to_value(shell: str, told: str) -> str:
    """bash puts no blank behind what several proposals have in common, zsh none where this says so."""
    lines = told.splitlines()
    if shell == "complete_bash" and len(lines) == 1 and lines[0].endswith("="):
        return f"{told}{lines[0]}VALUE\n"
    proposed = _PROPOSED.findall(told)
    if shell == "complete_zsh" and proposed and all(key.endswith("=") for key in proposed):
        return f"local -a unspaced=(-S ''); {_ZSH}-O unspaced {told.removeprefix(_ZSH)}"
    return told


def tasks(begun: str) -> list[str]:
    """Built-in tasks, and files in the folder that may be a task or a run's settings."""
    files = (str(file) for ending in ("*.py", "*.yaml") for file in sorted(Path().glob(ending)))
    return _fitting(begun, [*names(TASKS), *files])


def policies(begun: str) -> list[str]:
    """Policies with servers and without."""
    return _fitting(begun, sorted({*names(POLICIES), *names(PEERS)}))


def loggers(begun: str) -> list[str]:
    """Those that there are, and files in the folder that may be one."""
    return _fitting(begun, [*names(LOGGERS), *(str(file) for file in sorted(Path().glob("*.py")))])


def paper_presets(begun: str) -> list[str]:
    """The papers' settings."""
    return _fitting(begun, presets())


def runs(begun: str) -> list[str]:
    """Runs in ./runs, the newest first."""
    from paceline.launch.folder.run_folder import all_runs

    return _fitting(begun, [folder.path.name for folder in all_runs()])


def settings(begun: str) -> list[tuple[str, str]]:
    """Settings with their meaning, as `--set` takes them; after the dot behind an extension its name and the options of all
    those that fit, with who has them."""
    from paceline.core.settings.config import Config

    found = [*_settings(Config, ""), *_options(begun)]
    return [(f"{key}=", meaning) for key, meaning in found if key.startswith(begun)]


def _settings(model: "type[BaseModel]", prefix: str) -> Iterator[tuple[str, str]]:
    from paceline.core.registry import section_of
    from paceline.core.settings.config import Options

    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        section = section_of(field)
        if section is None or section is Options:
            yield key, field.description or ""
        else:
            yield from _settings(section, f"{key}.")


def _options(begun: str) -> Iterator[tuple[str, str]]:
    """Of the extensions that can stand where the key has come to: who has an option comes before what it means there."""
    section = begun.rpartition(".")[0]
    found = _extensions(section) if section else {}
    if not found:
        return
    yield f"{section}.name", ", ".join(found)
    owners: dict[str, list[str]] = {}
    meanings: dict[str, str] = {}
    for name, kind in found.items():
        for option, field in kind.model_fields.items():
            key = f"{section}.{field.alias or option}"
            owners.setdefault(key, []).append(name)
            meanings[key] = meanings.get(key) or field.description or ""
    for key, names_ in owners.items():
        yield key, f"{', '.join(names_)}: {meanings[key]}".removesuffix(": ")


def _extensions(section: str) -> "dict[str, type[BaseModel]]":
    """Those that the setting can name, of the folders; none where it names none."""
    from paceline.core import registry

    return {
        name: registry.find(package, base, name)
        for package, base in _registries().get(section, ())
        for name in registry.names(package)
    }


def _registries() -> "dict[str, tuple[tuple[str, type[BaseModel]], ...]]":
    """By the setting that names an extension: its folders, with what their extensions inherit from."""
    from paceline.core.codecs import codec
    from paceline.core.optimizers import optimizer
    from paceline.core.peers import peer_policy, topology
    from paceline.core.policies import policy
    from paceline.sharder import engine, strategy

    codecs = ((codec.PACKAGE, codec.Codec),)
    return {
        "policy": ((policy.PACKAGE, policy.Policy), (peer_policy.PACKAGE, peer_policy.PeerPolicy)),
        "optimizer": ((optimizer.PACKAGE, optimizer.Optimizer),),
        "topology": ((topology.PACKAGE, topology.Topology),),
        "codec.push": codecs,
        "codec.pull": codecs,
        "data.strategy": ((strategy.PACKAGE, strategy.ShardingStrategy),),
        "data.engine": ((engine.PACKAGE, engine.Engine),),
    }


def _fitting(begun: str, found: Iterable[str]) -> list[str]:
    return [name for name in found if name.startswith(begun)]
