"""What `data.path` may be: a path where the user must bring the data, or 'bundled' where the task brings its own. Data that
does not exist is refused before anything is started."""

from pathlib import Path

from paceline.base.own_files import is_own
from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
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


def refuse_missing_data(config: Config) -> None:
    """Raises what the task itself says of `data.path` where that names local files and one of them does not exist. Of a user's
    task, whose paths may be any words, only those with a '/' are looked at."""
    paths = config.data.path.split(",")
    own = is_own(config.task)
    if config.is_script or all(not is_local(path, own) or Path(path).exists() for path in paths):
        return
    from paceline.tasks.task import load_task  # here: runs the task's file, which nobody else needs in this process

    load_task(config.task, config.model, config.svm.positive, config.data.table).data(config.data.path)


def is_local(path: str, is_own_task: bool) -> bool:
    """Whether it names a file or a folder of this machine; a user's own task may take any words without a '/'."""
    is_file = "/" in path or not (is_own_task or path == BUNDLED or path.isdecimal())
    return is_file and "://" not in path
