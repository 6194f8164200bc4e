"""Lists the names in a registry's folder without importing anything, for `paceline --help`."""

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache

POLICIES = "paceline.core.policies.builtin"
PEERS = "paceline.core.peers.peer_policies"
"""The folder of policies that train without servers."""


def names(package: str) -> tuple[str, ...]:
    """The extensions in the package, sorted; its folder is read once."""
    return _names(tuple(importlib.import_module(package).__path__))


def kinds(package: str) -> str:
    """Returns what the extensions in a registry's folder are, like policies of `paceline.core.policies.builtin`."""
    return package.removesuffix(".builtin").rpartition(".")[2]


def listed(found: Iterable[str]) -> str:
    """'bsp, ssp or asp', for people."""
    *others, last = found
    return f"{', '.join(others)} or {last}" if others else last


@cache
def _names(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(found.name for found in pkgutil.iter_modules(folders) if found.name[0] != "_"))
