"""What the shell proposes after TAB: names of tasks, policies, presets, settings and runs. Nothing here loads torch."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

from paceline.core.folders import PEERS, POLICIES, names
from paceline.presets import presets

TASKS = "paceline.tasks.builtin"


def tasks(begun: str) -> list[str]:
    """Built-in tasks, and files in the folder that may be a task or a run's settings."""
    files = (str(file) for ending in ("*.py", "*.yaml") for file in sorted(Path().glob(ending)))
    return _fitting(begun, [*names(TASKS), *files])


def policies(begun: str) -> list[str]:
    """Policies with servers and without."""
    return _fitting(begun, sorted({*names(POLICIES), *names(PEERS)}))


def paper_presets(begun: str) -> list[str]:
    """The papers' settings."""
    return _fitting(begun, presets())


def runs(begun: str) -> list[str]:
    """Runs in ./runs, the newest first."""
    from paceline.local.run_folder import all_runs

    return _fitting(begun, [folder.path.name for folder in all_runs()])


def settings(begun: str) -> list[tuple[str, str]]:
    """Settings with their meaning, as `--set` takes them."""
    from paceline.core.settings.config import Config

    return [(f"{key}=", meaning) for key, meaning in _settings(Config, "") if key.startswith(begun)]


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


def _fitting(begun: str, found: Iterable[str]) -> list[str]:
    return [name for name in found if name.startswith(begun)]
