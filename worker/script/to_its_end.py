"""Runs a script's code, or a function of a notebook, as one worker of a run: what its errors and exits mean to the run."""

import sys
from bdb import BdbQuit
from collections.abc import Callable
from pathlib import Path

from paceline.base.own_files import error_text, show_own, where
from paceline.core.errors import ConfigError, PacelineError, ScriptFailed, Stopped
from paceline.processes.exits import NO_TERMINAL
from paceline.worker.script.guard import unguarded_loader
from paceline.worker.script.script_run import ScriptRun

_EVERY = (
    "Every process of the run runs this line: each worker, and one that is started again; another may have made "
    "it. Let it pass where it exists already, as os.makedirs(folder, exist_ok=True) does; if only one worker should make "
    "it, put `if paceline.rank() == 0:` before that."
)
"""What to say where a script makes something that exists already."""
_LACKS = "Install it for the Python that runs the workers; on Kubernetes it belongs into their image."
"""What to say where a script imports what is not installed."""


def run_to_end(run: ScriptRun, script: str, code: Callable[[], object]) -> None:
    """Calls `code`, which is of the file `script`; then this worker's share of the run is done. Raises the PacelineError that
    it ended with, with file and line, and SystemExit for other errors."""
    try:
        code()
    except PacelineError as error:
        kind = ScriptFailed if run.has_trained and not isinstance(error, Stopped) else type(error)
        raise kind(f"{where(error, script)}: {error}") from error
    except BdbQuit as error:  # of pdb.set_trace(), which reads an input that has ended
        raise ConfigError(f"{where(error, script)}: {NO_TERMINAL}") from error
    except Exception as error:
        if isinstance(error, FileExistsError) and not run.position:  # another start would find it, too
            raise ConfigError(f"{where(error, script)}: {error_text(error)}. {_EVERY}") from error
        if "exited unexpectedly" in str(error) and (why := unguarded_loader(error, Path(script))):
            raise ConfigError(f"{where(error, script)}: {why}") from error
        if note := _note(error) or run.overtime:
            error.add_note(note)
        show_own(error, script)
        if run.has_trained:
            sys.exit(ScriptFailed.exit_code)
        is_hopeless = isinstance(error, ModuleNotFoundError | SyntaxError)  # another start would find it, too
        sys.exit(ConfigError.exit_code if is_hopeless else 1)
    except SystemExit as end:
        if not end.code:
            run.end()
        elif run.has_trained:
            raise ScriptFailed(f"{script}: sys.exit({end.code!r}) after its training.") from end
        elif end.code == ScriptFailed.exit_code:  # it would be taken for one that has trained
            sys.exit(1)
        raise
    else:
        run.end()
    finally:
        run.close()


def _note(error: Exception) -> str:
    """Returns what to say of this kind of error; empty where there is nothing."""
    match error:
        case FileExistsError():
            return _EVERY
        case ModuleNotFoundError():
            return _LACKS
    return ""
