"""Policies, codecs and the like of users: a file that the settings name, or an installed package that names them as
entry points. Once `OWN` knows where a run's settings are, the registry finds them there as if they lay in its
folder."""

import hashlib
import importlib.metadata
import inspect
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, TypeVar, get_origin

from pydantic import BaseModel

from paceline.base.installed_points import installed_points
from paceline.base.own_files import error_text, is_own, load_file, note_code, where
from paceline.core import registry
from paceline.core.codecs.codec import PACKAGE as CODECS
from paceline.core.codecs.codec import load_codec
from paceline.core.errors import ConfigError
from paceline.core.extension import Options
from paceline.core.folders import PEERS, POLICIES, kinds
from paceline.core.setting_rules.fault_in_rules import fault_in_rules
from paceline.core.settings.config import Config

T = TypeVar("T")
KEPT = "own"
"""The folder next to a run's config.yaml with the files that the run began with."""
FACTS = "run.json"
"""What a run's folder has, and no other one."""
_MODULE = "paceline_own_"
"""What the name of the module begins with that a user's file becomes."""
_ASKED = ("policy", "topology", "optimizer", "codec")
"""Kinds whose `rules` are asked of every config (`chosen_by`)."""
_PAGES = {
    "policy": "docs/extend/first-policy.md",
    "codec": "docs/extend/first-codec.md",
    "strategy": "docs/extend/first-strategy.md",
}


class _Loaded(NamedTuple):
    """A user's file as it was when it was run."""

    source: bytes
    module: ModuleType


class OwnExtensions(registry.Outside):
    """Finds them for one process. A file is run once, unless it has changed when settings are read again."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._named: tuple[str, ...] | None = None
        self._codecs: frozenset[str] = frozenset()
        self._loaded: dict[str, _Loaded] = {}
        self._found: dict[tuple[str, type, str], type] = {}
        self._count = 0

    def open(self, folder: Path | None) -> None:
        """Settings are about to be read, those of this folder: all files that they name may be run."""
        self._folder = folder
        self._named = None
        for name, loaded in list(self._loaded.items()):
            found = self.path(name)
            if found is None or found.read_bytes() != loaded.source:
                del self._loaded[name]
                self._found.clear()
                load_codec.cache_clear()

    def close(self, config: Config) -> None:
        """They have been read: from now on, names may come from other processes. Only the files that the settings name are
        run, told apart by their names without a folder, and those that the user has added to the run; of codecs those alone
        that the settings name."""
        self._named = tuple(own_names(config).values())
        self._codecs = frozenset(_base_name(name) for name in _names(config.codec).values())

    def names(self, package: str) -> tuple[str, ...]:
        return tuple(point.name for point in installed_points(_group(package)))

    def find(self, package: str, base: type[T], name: str) -> type[T] | None:
        is_code = is_own(name) or name in self.names(package)
        if package == CODECS and self._named is not None and is_code and _base_name(name) not in self._codecs:
            known = f"{', '.join(registry.names(CODECS))}, and what codec.push and codec.pull name"
            raise ConfigError(f"This run's settings do not use the codec {name}. They use: {known}.")
        name = self._as_named(name) if is_own(name) else name
        key = (package, base, name)
        if key not in self._found:
            kind = self._find(*key)
            if kind is None:
                return None
            self._found[key] = kind
        return self._found[key]

    def _find(self, package: str, base: type[T], name: str) -> type[T] | None:
        if is_own(name):
            kind = _only(self.module(name), base, name, _word(package))
            _refuse_built_in(package, Path(name).stem, f"The file {name}", "Rename the file.")
        else:
            points = [point for point in installed_points(_group(package)) if point.name == name]
            if not points:
                return None
            kind = _of_package(points, base, _word(package))
        if hasattr(kind, "name"):
            setattr(kind, "name", name)  # noqa: B010 - mypy knows no such attribute of the base
        _check_complete(kind, base, _word(package))
        note_code(inspect.getsourcefile(kind) or "")
        return kind

    def module(self, name: str) -> ModuleType:
        """The user's file of that name. ConfigError: there is none, or it fails."""
        name = self._as_named(name)
        if name not in self._loaded:
            path = self.path(name)
            if path is None:
                raise ConfigError(self._missing(name))
            source = path.read_bytes()
            shown = name if path == Path(name) else str(path)
            try:
                self._count += 1
                module = load_file(f"{_MODULE}{self._count}_{Path(name).stem}", shown, source)
            except (Exception, SystemExit) as error:
                raise ConfigError(f"The file can't be loaded: {where(error, shown)}: {error_text(error)}") from error
            self._loaded[name] = _Loaded(source, module)
        return self._loaded[name].module

    def digest(self, name: str) -> str:
        """SHA-256 of the user's file as it was run. ConfigError as for `module`."""
        self.module(name)
        return hashlib.sha256(self._loaded[self._as_named(name)].source).hexdigest()

    def path(self, name: str) -> Path | None:
        """Where the file is: what the run has kept of it, then as it is named, then next to the settings (as in
        pods)."""
        here, name = self._folder, self._as_named(name)
        kept = [] if here is None or not (here / FACTS).is_file() else [here / KEPT / Path(name).name]
        named = [Path(name)] if self._may_run(name) else []
        beside = [here / Path(name).name] if here is not None and self._may_run(name) else []
        return next((path for path in (*kept, *named, *beside) if path.suffix == ".py" and path.is_file()), None)

    def _may_run(self, name: str) -> bool:
        """Whether the settings name it, or are being read."""
        return self._named is None or name in self._named

    def _as_named(self, name: str) -> str:
        """As the settings name the file that a message means."""
        if self._may_run(name):
            return name
        return next((each for each in self._named or () if Path(each).name == Path(name).name), name)

    def _missing(self, name: str) -> str:
        if not self._may_run(name):
            own = "nowhere" if self._folder is None else self._folder.resolve() / KEPT
            return f"The settings of this run do not name {name}, and no such file was added to the run ({own}); it is not run."
        near = "" if self._folder is None else f", nor next to the settings in {self._folder.resolve()}"
        absent = f"It is not at {Path(name).absolute()}{near}."
        return f"{name}: there is no such file. {absent} Give the path of a .py file."


OWN = OwnExtensions()
"""This process's, as sys.modules is."""
registry.look_in(OWN)


def own_files(config: Config) -> list[Path]:
    """Where the files of users that the settings name are now."""
    places = [OWN.path(name) for name in own_names(config).values()]
    return [place for place in places if place is not None]


def own_names(config: BaseModel) -> dict[str, str]:
    """The files of users that the settings name, by the key: {'policy': './mine.py'}."""
    return {key: name for key, name in _names(config).items() if is_own(name)}


def _names(config: BaseModel, prefix: str = "") -> dict[str, str]:
    """All extensions that the settings name, by the key."""
    found: dict[str, str] = {}
    for key in type(config).model_fields:
        value = getattr(config, key)
        if isinstance(value, Options):
            found[f"{prefix}{key}"] = value.name
        elif isinstance(value, BaseModel):
            found |= _names(value, f"{prefix}{key}.")
        elif isinstance(value, tuple):
            several = [each.name for each in value if isinstance(each, Options)]
            found |= {f"{prefix}{key}.{number}": name for number, name in enumerate(several)}
    return found


def _base_name(name: str) -> str:
    return Path(name).name if is_own(name) else name


def check_own(config: Config) -> None:
    """ConfigError where a user's file fails, two have one name, or an installed package has taken a built-in extension's."""
    for name in own_names(config).values():
        OWN.module(name)
    by_name(own_files(config))
    for package in (POLICIES, CODECS):
        for point in installed_points(_group(package)):
            _refuse_built_in(package, point.name, _shown(point), "Uninstall it, or let it choose another name.")


def by_name(files: Iterable[Path]) -> dict[str, Path]:
    """The files by their names without a folder, by which a run keeps them. ConfigError where two share one."""
    found: dict[str, Path] = {}
    for file in files:
        other = found.setdefault(file.name, file)
        if file.is_file() and other.is_file() and other.read_bytes() != file.read_bytes():
            raise ConfigError(f"{other} and {file} are different files with the same name; rename one of them.")
    return found


def _of_package(points: list[importlib.metadata.EntryPoint], base: type[T], word: str) -> type[T]:
    """The class that an installed package gives."""
    if len(points) > 1:
        both = " and ".join(_shown(point) for point in points)
        raise ConfigError(f"{both} both have the {word} '{points[0].name}'. Uninstall one of them.")
    (point,) = points
    try:
        found = point.load()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{_shown(point)} can't be loaded: {_why(point, error)}") from error
    if isinstance(found, ModuleType):
        return _only(found, base, _shown(point), word)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(f"{_shown(point)} is not a {word}: it must be a class that inherits from {_named(base)}.")
    return found


def _why(point: importlib.metadata.EntryPoint, error: BaseException) -> str:
    """What it lacks that it names, or what fails in its file."""
    file = _file_of(error)
    if point.pattern.fullmatch(point.value) is None:
        return "expected MODULE or MODULE:NAME after the '='."
    if isinstance(error, ModuleNotFoundError) and f"{point.module}.".startswith(f"{error.name}."):
        return f"there is no module {error.name}."
    if isinstance(error, AttributeError) and file == importlib.metadata.__file__:
        return f"the module {point.module} has no {point.attr}."
    return f"{where(error, file)}: {error_text(error)}" if file else error_text(error)


def _only(module: ModuleType, base: type[T], shown: str, word: str) -> type[T]:
    """The one class of the module that is what is looked for."""
    found = registry.defined(module, base)
    if len(found) == 1:
        return found[0]
    page = f" See {_PAGES[word]}." if word in _PAGES else ""
    if not found:
        raise ConfigError(f"{shown} defines no {word}: a class that inherits from {_named(base)}.{page}")
    both = " and ".join(f"{kind.__name__} (line {_line(kind)})" for kind in found)
    raise ConfigError(
        f"{shown} defines {len(found)}, but a file must define only one {word}: {both}. Move each of the others "
        f"to its own file.{page}"
    )


def _check_complete(kind: Any, base: type, word: str) -> None:
    """ConfigError where a part that every extension of its kind has is missing, or has another form."""
    at = f"{inspect.getsourcefile(kind) or kind.__module__}, line {_line(kind)}: the {word} {kind.__name__}"
    missing = [f"{name}()" for name in sorted(getattr(kind, "__abstractmethods__", ()))]
    missing += [
        name
        for each in kind.__mro__
        for name, said in vars(each).get("__annotations__", {}).items()
        if get_origin(said) is ClassVar and not hasattr(kind, name)
    ]
    if missing:
        raise ConfigError(f"{at} lacks {' and '.join(missing)} (see {_named(base)}).")
    if word not in _ASKED and hasattr(kind, "rules"):
        raise ConfigError(
            f"{at} has `rules`, but Paceline reads them only from a {registry.listed(_ASKED)}. Leave them out."
        )
    if wrong := fault_in_rules(kind):
        raise ConfigError(f"{at} {wrong} (docs/reference/settings.md, which settings go together).")
    if word == "codec" and (needed := [name for name, field in kind.model_fields.items() if field.is_required()]):
        raise ConfigError(
            f"{at} has no default for {needed[0]}. Give it one, because the process that decodes does not know the "
            "options."
        )
    for name, own in vars(kind).items():
        wanted = None if name.startswith("__") else inspect.getattr_static(kind.__mro__[1], name, None)
        if inspect.isfunction(wanted) and inspect.isfunction(own):
            _check_form(kind, name, own, wanted)
        elif inspect.isfunction(wanted) or (isinstance(wanted, property) and inspect.isfunction(own)):
            expected = "a property" if isinstance(wanted, property) else f"a function, {name}{_form(wanted)}"
            raise ConfigError(f"{at} has {name} as a {type(own).__name__}; it must be {expected}.")


def _check_form(kind: type, name: str, own: Any, wanted: Any) -> None:
    """ConfigError where a method can't be called as the base's is."""
    try:
        inspect.signature(own).bind(*inspect.signature(wanted).parameters)
    except TypeError as error:
        file = inspect.getsourcefile(own) or kind.__module__
        raise ConfigError(
            f"{file}, line {own.__code__.co_firstlineno}: {name}{_form(own)} of {kind.__name__} can't be called as it is: "
            f"expected {name}{_form(wanted)}."
        ) from error


def _form(function: Any) -> str:
    """'(self, worker, clocks)'."""
    return f"({', '.join(inspect.signature(function).parameters)})"


def _refuse_built_in(package: str, name: str, who: str, todo: str) -> None:
    taken = (
        [*registry.names(POLICIES), *registry.names(PEERS)] if package in (POLICIES, PEERS) else registry.names(package)
    )
    if name in taken:
        raise ConfigError(f"{who} has the name of the built-in {_word(package)} {name}. {todo}")


def _group(package: str) -> str:
    """'paceline.policies': policies with and without servers are one group."""
    return f"paceline.{kinds(package).removeprefix('peer_')}"


def _word(package: str) -> str:
    """'policy'."""
    plural = _group(package).rpartition(".")[2]
    return f"{plural[:-3]}y" if plural.endswith("ies") else plural.removesuffix("s")


def _shown(point: importlib.metadata.EntryPoint) -> str:
    """Who brings it, for people, with its file where that is known without running it."""
    who = "The package" if point.dist is None else f"The package {point.dist.name} {point.dist.version}"
    return f"{who} ({point.group}: {point.name} = {point.value})"


def _named(base: type) -> str:
    """Where the base is imported from."""
    return {"Scaled": "paceline.core.policies.policy.Policy"}.get(
        base.__name__, f"{base.__module__}.{base.__qualname__}"
    )


def _file_of(error: BaseException) -> str | None:
    """The file whose line failed."""
    if isinstance(error, SyntaxError):
        return error.filename
    trace, file = error.__traceback__, None
    while trace is not None:
        file, trace = trace.tb_frame.f_code.co_filename, trace.tb_next
    return file


def _line(kind: type) -> int | str:
    """Where the class begins."""
    try:
        return inspect.getsourcelines(kind)[1]
    except (OSError, TypeError):
        return "?"
