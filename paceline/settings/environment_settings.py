"""What PACELINE_* variables say of the config. Loaded only where there are some: every process of a run reads its settings."""

import os
import re
from collections.abc import Callable
from typing import Any

from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, SettingsError

from paceline.base.variables import CONNECT, KEY, NOTICE, PREFIX, TLS
from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config


class _Environment(BaseSettings, Config):
    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True)


class _Variables(EnvSettingsSource):
    """Whole sections are JSON, or a name where a section may be written as one."""

    def __init__(self, by_name: Callable[[str, str], Any]) -> None:
        super().__init__(_Environment)
        self._by_name = by_name

    def decode_complex_value(self, field_name: str, field: Any, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            named = None if value[:1] in ("{", "[") else self._by_name(field_name, value)
            if named is None:
                raise
            return named


def environment_settings(by_name: Callable[[str, str], Any]) -> dict[str, Any]:
    """The settings that the variables name. `by_name`: the section that a name stands for, given its key; None where that
    section can't be written so. ConfigError: a variable is no setting, or can't be read."""
    unknown = [
        name
        for name in os.environ
        if name.startswith(PREFIX)
        and name not in (CONNECT, KEY, NOTICE, TLS)
        and name[len(PREFIX) :].lower().split("__")[0] not in Config.model_fields
    ]
    if unknown:
        raise ConfigError(
            f"{unknown[0]} is not a setting: after {PREFIX} comes a key of the config, inner keys after '__'."
        )
    try:
        return _Variables(by_name)()
    except SettingsError as error:
        field = re.search(r'field "(\w+)"', str(error))
        name = PREFIX + (field[1].upper() if field else "*")
        raise ConfigError(
            f"{name} can't be read: a whole section must be JSON. Single keys are shorter, like "
            f"{PREFIX}POLICY__NAME=ssp."
        ) from error
