"""Modules of `paceline.core` under the names that they had before 0.1.0: a user's file that imports one of these goes on for
one release, with a DeprecationWarning."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

EARLIER = {
    "paceline.core.codecs.codecs": "paceline.core.codecs.builtin",  # `from paceline.core.coding import codecs` asks for it
    "paceline.core.optimizers.optimizers": "paceline.core.optimizers.builtin",
    "paceline.core.policies.policies": "paceline.core.policies.builtin",
    "paceline.core.coding.codecs": "paceline.core.codecs.builtin",
    "paceline.core.coding": "paceline.core.codecs",
    "paceline.core.rules": "paceline.core.setting_rules",
    "paceline.core.run": "paceline.core.chief",
    "paceline.core.steps.optimizers": "paceline.core.optimizers.builtin",
    "paceline.core.steps": "paceline.core.optimizers",
    "paceline.core.sync.policies": "paceline.core.policies.builtin",
    "paceline.core.sync": "paceline.core.policies",
}
"""By the name before 0.1.0; longer ones come before what they begin with."""


class EarlierNames(MetaPathFinder):
    """Finds them. It comes before Python's own finders, which would load a second copy of what is in a renamed folder."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns where the module is now; None for all other names."""
        if not fullname.startswith("paceline.core."):  # nearly all: this is asked of each import of the process
            return None
        for old, new in EARLIER.items():
            if fullname == old or fullname.startswith(f"{old}."):
                name = new + fullname[len(old) :]
                return ModuleSpec(fullname, _Alias(name)) if find_spec(name) is not None else None
        return None


class _Alias(Loader):
    """Loads a module by another name: both are one object."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        found = importlib.import_module(self._name)
        warnings.warn(
            f"{spec.name} is {self._name} now; import what paceline.extend has from there",
            DeprecationWarning,
            stacklevel=2,
        )
        self._spec = found.__spec__
        return found

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # its own again: the import has set that of the earlier name


def install() -> None:
    """Lets Python find them, once a process."""
    if not any(isinstance(each, EarlierNames) for each in sys.meta_path):
        sys.meta_path.insert(0, EarlierNames())
