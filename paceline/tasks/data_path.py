"""What `data.path` may be: a path where the user must bring the data, or 'bundled' where the task brings its own."""

from paceline.core.errors import ConfigError
from paceline.data.files import BUNDLED


def users_own(path: str, what: str, where: str) -> str:
    """The path; ConfigError where it was left at 'bundled'. `where`: how to get `what`, and what the path is of."""
    if path == BUNDLED:
        raise ConfigError(f"{what} does not come with Paceline: {where} with --data PATH (data.path).")
    return path


def refuse_path(path: str, what: str) -> None:
    """ConfigError where the task brings its own data and a path was given."""
    if path != BUNDLED:
        raise ConfigError(f"data.path is {path!r}, but {what}. Leave it at 'bundled'.")
