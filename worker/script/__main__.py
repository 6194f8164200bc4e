"""`python -m paceline.worker.script [SCRIPT.py ARGS...]`: runs a script as one worker of a run, told where by
PACELINE_CONNECT; without a script the one that the run's settings name, with their arguments."""

import paceline.base.first_process  # noqa: F401  # isort: skip

import ast
import os
import runpy
import sys
from bdb import BdbQuit
from pathlib import Path

from paceline.base.own_files import package_of, said, show_own, where
from paceline.core.errors import ConfigError, PacelineError, ScriptFailed, Stopped
from paceline.processes.exits import NO_TERMINAL
from paceline.worker.script.alone import Alone
from paceline.worker.script.current import current
from paceline.worker.script.draws import seed_all
from paceline.worker.training.device import device_of_script
from paceline.worker.training.model_and_gradient import use_threads

_EVERY = (
    "Every process of the run runs this line: each worker, and one that is started again; another may have made "
    "it. Let it pass where it exists already, as os.makedirs(folder, exist_ok=True) does; if only one worker should make "
    "it, put `if paceline.rank() == 0:` before that."
)
"""What to say where a script makes something that exists already."""


def main() -> None:
    """The script as Python runs it: its folder first on the path, `__main__` its own, and everything that is drawn at random
    until the first step alike in all workers."""
    run = current()
    if isinstance(run, Alone):
        raise ConfigError(
            "PACELINE_CONNECT is not set. `paceline launch SCRIPT.py`, or a pod, starts this program with it; don't "
            "start it yourself."
        )
    if len(sys.argv) < 2:
        sys.argv += [run.settings.task, *run.settings.arguments]
    del sys.argv[0]
    script = sys.argv[0]
    if not Path(script).is_file():
        raise ConfigError(f"There is no script {script} here. Check `task` in the run's settings, or the command line.")
    use_threads(run.threads)
    if run.device != "auto":
        device_of_script(run.device)  # refuses a missing GPU; the script moves its model itself
    seed_all(run.seed)
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        _run_script(Path(script))
    except PacelineError as error:
        kind = ScriptFailed if run.has_trained and not isinstance(error, Stopped) else type(error)
        raise kind(f"{where(error, script)}: {error}") from error
    except BdbQuit as error:  # of pdb.set_trace(), which reads an input that has ended
        raise ConfigError(f"{where(error, script)}: {NO_TERMINAL}") from error
    except Exception as error:
        if isinstance(error, FileExistsError) and not run.position:  # another start would find it, too
            raise ConfigError(f"{where(error, script)}: {said(error)}. {_EVERY}") from error
        if note := _EVERY if isinstance(error, FileExistsError) else run.overtime:
            error.add_note(note)
        show_own(error, script)
        sys.exit(ScriptFailed.exit_code if run.has_trained else 1)
    except SystemExit as end:
        if not end.code:
            run.finish()
        elif run.has_trained:
            raise ScriptFailed(f"{script}: sys.exit({end.code!r}) after its training.") from end
        elif end.code == ScriptFailed.exit_code:  # it would be taken for one that has trained
            sys.exit(1)
        raise
    else:
        run.finish()
    finally:
        run.close()


def _run_script(script: Path) -> None:
    """Runs the file as Python does. One in a package can import from it; one with relative imports, which would fail so, runs
    as by `python -m`."""
    package, root = package_of(script)
    if package:
        sys.path.append(str(root))
    nodes = ast.walk(ast.parse(script.read_bytes())) if package else ()
    if any(isinstance(node, ast.ImportFrom) and node.level for node in nodes):
        runpy.run_module(f"{package}.{script.stem}", run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(str(script), run_name="__main__")


def _end(error: PacelineError) -> None:
    """The launcher tells by the exit code what another start would only repeat."""
    if not isinstance(error, Stopped):  # who told it to stop knows
        print(f"script: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(error.exit_code)


if __name__ == "__main__":
    try:
        main()
    except PacelineError as error:
        _end(error)
