"""Which loggers a run has: those that its settings name, and TensorBoard's where it is installed."""

import inspect

from paceline.base.extras import is_installed
from paceline.base.own_files import error_text, is_own, where
from paceline.callback import PACKAGE, Callback
from paceline.core import registry
from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config, Options

ALWAYS = "tensorboard"
"""Written for every run, where its library is installed."""


def check_loggers(config: Config) -> None:
    """ConfigError where a logger is not available: it is unknown, its library is not installed, or it takes other options."""
    seen = set[str]()
    for wanted in config.loggers:
        if wanted.name in seen:
            raise ConfigError(f"loggers names {wanted.name} twice. Name it once.")
        seen.add(wanted.name)
        _checked(wanted)


def check_callbacks(callbacks: object) -> None:
    """ConfigError where these are no callbacks."""
    for each in callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]:
        if isinstance(each, type) and issubclass(each, Callback):
            raise ConfigError(
                f"callbacks has the class {each.__name__}; give an object of that class: {each.__name__}()."
            )
        if not isinstance(each, Callback):
            got = f"{each!r} of type {type(each).__name__}"
            raise ConfigError(f"callbacks has {got}; expected a list of objects that inherit from paceline.Callback.")
    if not isinstance(callbacks, (list, tuple)):
        raise ConfigError(f"callbacks must be a list: [{type(callbacks).__name__}()].")


def loggers_of(config: Config) -> list[tuple[str, Callback]]:
    """The run's loggers by their names. ConfigError where one can't be had."""
    found = [(wanted.name, _made(wanted)) for wanted in config.loggers]
    if is_installed(ALWAYS) and ALWAYS not in dict(found):
        found.insert(0, (ALWAYS, _made(Options(name=ALWAYS))))
    return found


def _made(wanted: Options) -> Callback:
    kind = _checked(wanted)
    try:
        return kind(**wanted.options)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"loggers: {_line_of(wanted.name, error)} can't be made: {error_text(error)}.") from error


def _checked(wanted: Options) -> type[Callback]:
    kind = registry.find(PACKAGE, Callback, wanted.name)
    if kind.needs and not is_installed(kind.needs):
        ours = wanted.name in registry.names(PACKAGE)
        package = f"'paceline[{wanted.name}]'" if ours else kind.needs
        raise ConfigError(
            f"loggers: {wanted.name} needs the library {kind.needs}, which is not installed here. Install it: "
            f"pip install {package}; or leave this logger out."
        )
    try:
        inspect.signature(kind).bind(**wanted.options)
    except TypeError as error:
        raise ConfigError(f"loggers: the options don't fit {wanted.name}: {error}.") from error
    return kind


def _line_of(name: str, error: BaseException) -> str:
    return where(error, name) if is_own(name) else name
