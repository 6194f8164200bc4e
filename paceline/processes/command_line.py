"""What its starter tells a process, as one value: its command line and its JSON are read into it and written from
it."""

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from annotated_types import Ge, Le
from pydantic import Field
from pydantic.fields import FieldInfo
from typer.models import OptionInfo

from paceline.base.variables import TLS
from paceline.core.errors import UsageError
from paceline.core.extension import Section
from paceline.core.settings.config import Config
from paceline.processes.tls_option import Tls
from paceline.rpc.auth import Credentials, check_own_certificate, read_credentials
from paceline.rpc.listening import LOOPBACK, check_bind, is_loopback
from paceline.rpc.roles import Role
from paceline.settings.load_settings import parse_sets
from paceline.tasks.task import load_config

T = TypeVar("T", bound="Arguments")
Port = Annotated[int, Field(ge=0, le=65535)]


class Arguments(Section):
    """What its starter tells a process. Each field is an option: `peer_port` is --peer-port, and its default and
    description are the option's. A field is declared here or in a process's own class, set where the process is started
    (a launcher, a manifest), and read where it is used; nothing between names it."""

    config: Path | None = Field(None, description="YAML file with the run's settings.")
    settings: Annotated[tuple[str, ...], typer.Option("--set", help="Overrides, like policy.bound=3.")] = ()

    def overrides(self) -> dict[str, Any]:
        """The settings that win over the file's. UsageError: one is not KEY=VALUE."""
        return parse_sets(list(self.settings))

    def load(self) -> Config:
        """The run's settings, without those of a user's task file, which the launcher has written into the YAML file."""
        return load_config(self.config, self.overrides(), own_file=False)

    def arguments(self) -> list[str]:
        """The command line that says this."""
        fields = type(self).model_fields
        given = self._values().items()
        return [word for name, value in given if value != "" for word in _words(name, fields[name], value)]

    def json_text(self) -> str:
        """The same as JSON, in which paths are absolute, for a process that may go to another folder."""
        paths = {key: value.absolute() for key, value in self._values().items() if isinstance(value, Path)}
        return self.model_copy(update=paths).model_dump_json(include=set(self._values()))

    def _values(self) -> dict[str, Any]:
        """What was said."""
        return {name: value for name, value in self if name in self.model_fields_set and value is not None}

    @classmethod
    def options(cls) -> list[inspect.Parameter]:
        """An option for each field, as typer wants them: those that must be given come first, those of all processes last."""

        def rank(name: str, field: FieldInfo) -> tuple[bool, bool]:
            return not field.is_required(), name in ProcessArguments.model_fields and name != "config"

        fields = sorted(cls.model_fields.items(), key=lambda each: rank(*each))
        return [_parameter(name, field) for name, field in fields]


class ProcessArguments(Arguments):
    """What the launcher tells all who take part in a run."""

    token_file: Path | None = Field(
        None,
        description="File with this process's token, or with the run's secret; a server without one lets anybody call.",
    )
    tls: Tls = Field(default_factory=lambda: Path(found) if (found := os.environ.get(TLS)) else None)
    bind: str = Field(LOOPBACK, description="Address to listen on; :: for all of this machine, which needs --tls.")
    plain_text: bool = Field(
        False, description="Listen beyond this machine without TLS: who is on that network can read model and tokens."
    )
    metrics_port: Port = Field(0, description="Prometheus port; 0 for any free one.")
    open_metrics: bool = Field(
        False, description="With --tls: metrics in plain text and without a token, also beyond this machine."
    )
    report: Path | None = Field(None, description="JSON file to write the ports to once they are open.")

    @property
    def role(self) -> Role:
        """What its token opens."""
        return "reader"

    @property
    def name(self) -> str:
        """The process's name in the run."""
        return ""

    def credentials(self) -> Credentials:
        """Token and keys, read and checked. ConfigError; UsageError: without keys or token it would listen beyond this
        machine."""
        check_bind(self.bind, self.tls is not None, self.plain_text)
        if self.token_file is None and not is_loopback(self.bind):
            raise UsageError(
                f"--bind {self.bind} without --token-file: anyone who reaches this process could change or stop the run. Give "
                "it the token that `paceline keys token` makes, or a server the file with the run's secret."
            )
        found = read_credentials(self.token_file, self.tls, self.name or self.role).named(self.role, self.name)
        if found.tls is not None:
            check_own_certificate(found)
        return found

    def metrics_guard(self, credentials: Credentials) -> Credentials | None:
        """As `serve_metrics` takes it."""
        is_open = credentials.tls is None or self.open_metrics or is_loopback(self.bind)
        return None if is_open else credentials


def end_process(code: int) -> NoReturn:
    """Threads that wait in gRPC calls must not keep a stopped process alive."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def options_of(told: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Makes a function of what the starter tells a process one of its options, for typer."""

    def decorated(main: Callable[[T], None]) -> Callable[..., None]:
        @functools.wraps(main)
        def command(**options: Any) -> None:
            main(told(**{key: value for key, value in options.items() if value is not None}))

        command.__signature__ = inspect.Signature(told.options())  # type: ignore[attr-defined]
        command.__annotations__ = {}
        return command

    return decorated


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    """One field as an option."""
    low: Any = next((each.ge for each in field.metadata if isinstance(each, Ge)), None)
    high: Any = next((each.le for each in field.metadata if isinstance(each, Le)), None)
    option = _own_option(field) or typer.Option(help=field.description, min=low, max=high)
    kind = list[str] if field.annotation == tuple[str, ...] else field.annotation
    default = field.default
    if field.is_required():
        default = inspect.Parameter.empty
    elif field.default_factory is not None or default == ():
        default = None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _own_option(field: FieldInfo) -> OptionInfo | None:
    """What the field's type says of its option, where a description and limits are not all."""
    return next((each for each in field.metadata if isinstance(each, OptionInfo)), None)


def _words(name: str, field: FieldInfo, value: Any) -> list[str]:
    """One field's value on a command line."""
    own = _own_option(field)
    option = f"--{name.replace('_', '-')}" if own is None else str(own.default)
    if isinstance(value, bool):
        return [option] if value else []
    values = value if isinstance(value, tuple) else (value,)
    return [word for each in values for word in (option, str(each))]
