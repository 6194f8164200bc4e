"""Public names of a module that are imported when they are first used."""

import sys
from collections.abc import Callable, Mapping


def lazy_names(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns the module's `__getattr__` and `__dir__`. `homes`: where each name is defined, below `paceline`. What imports the
    module, like a server or the command line, need not use its names. AttributeError, of the former: there is no such name."""
    space = vars(sys.modules[module])

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module '{module}' has no attribute '{name}'; it has {', '.join(sorted(homes))}.")
        from importlib import import_module

        from paceline.settings.own_folder import installed_first

        with installed_first():
            home = import_module(f"paceline.{homes[name]}")

        found: object = getattr(home, name)
        space[name] = found  # the next time it is here: a script logs at every step
        return found

    def names() -> list[str]:
        return sorted({*homes, *(name for name in space if name.startswith("__"))})

    return get, names
