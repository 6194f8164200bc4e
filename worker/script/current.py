"""The run that this process's script belongs to; without a launcher it is alone."""

import functools
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from paceline.base.variables import CONNECT
from paceline.core.errors import ConfigError
from paceline.core.registry import explain
from paceline.worker.script.alone import Alone

if TYPE_CHECKING:
    from paceline.worker.script.script_run import ScriptRun


@functools.cache
def current() -> "ScriptRun | Alone":
    """One for the whole process. ConfigError where the launcher started something else."""
    text = os.environ.get(CONNECT)
    if text is None:
        return Alone()
    from paceline.worker.command_line import ToldLaunched
    from paceline.worker.script.schedulers import notice
    from paceline.worker.script.script_run import ScriptRun

    notice()
    try:
        told: Any = ToldLaunched.model_validate(json.loads(text))
    except ValidationError as error:
        wrong = " ".join(explain(error, ToldLaunched))
        raise ConfigError(f"{CONNECT} does not say where the run is: {wrong} `paceline launch` sets it.") from error
    except ValueError as error:
        raise ConfigError(f"{CONNECT} is not JSON: {error}. `paceline launch {sys.argv[0]}` sets it.") from error
    run = ScriptRun(told)
    if not run.settings.is_script:
        raise ConfigError(
            f"{told.config} is of a run that trains the task {run.settings.task}, not this script. Start the script with: "
            f"paceline launch {sys.argv[0]}"
        )
    return run
