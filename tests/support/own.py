"""`pytest --own FILE.py`: the contract tests of everything built in, run on a user's policy, codec or similar as if it lay in
the registry's folder."""

import importlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.base.own_files import error_text, load_file, where
from paceline.core import registry
from paceline.core.codecs.codec import Codec
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.peers.peer_policy import PeerPolicy
from paceline.core.peers.topology import Topology
from paceline.core.policies.policy import Policy
from paceline.sharder.strategy import ShardingStrategy

BASES = (Policy, PeerPolicy, Codec, Topology, Optimizer, ShardingStrategy)
TASKS = "paceline.tasks.builtin"


def add(file: Path) -> list[str]:
    """Puts the file into the folders of what it defines, for this process; the packages."""
    try:
        module = load_file(f"paceline_contract_{file.stem}", str(file))
    except (Exception, SystemExit) as error:
        raise pytest.UsageError(
            f"--own {file}: it can't be loaded: {where(error, str(file))}: {error_text(error)}"
        ) from error
    packages = [importlib.import_module(base.__module__).PACKAGE for base in BASES if registry.defined(module, base)]
    packages += [TASKS] if hasattr(module, "data") else []
    if not packages:
        raise pytest.UsageError(
            f"--own {file}: it defines none of {', '.join(base.__name__ for base in BASES)}, nor a task."
        )
    for package in packages:
        if file.stem in registry.names(package):
            raise pytest.UsageError(f"--own {file}: there is a built-in {file.stem} in {package}; rename the file.")
        folder = Path(tempfile.mkdtemp())
        shutil.copy(file, folder)
        importlib.import_module(package).__path__.append(str(folder))
    return packages


def is_about(item: pytest.Item, names: set[str]) -> bool:
    """Whether the test runs on one of these."""
    found = getattr(item, "callspec", None)
    return found is not None and any(name in names for value in found.params.values() for name in _names(value))


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _names(each)
    else:
        yield str(getattr(value, "name", ""))
