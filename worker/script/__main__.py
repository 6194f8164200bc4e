"""`python -m paceline.worker.script [SCRIPT.py ARGS...]`: runs a script as one worker of a run, told where by
PACELINE_CONNECT; without a script the one that the run's settings name, with their arguments."""

import paceline.base.first_process  # noqa: F401  # isort: skip

import ast
import os
import runpy
import sys
from pathlib import Path

from paceline.base.extras import needing
from paceline.base.own_files import package_of
from paceline.core.errors import ConfigError, PacelineError, Stopped
from paceline.worker.script.alone import Alone
from paceline.worker.script.current import current


def main() -> None:
    """The script as Python runs it: its folder first on the path, `__main__` its own, and everything that is drawn at random
    until the first step alike in all workers."""
    with needing("A training script"):  # an image may lack torch
        from paceline.worker.script.draws import seed_all
        from paceline.worker.script.to_its_end import run_to_end
        from paceline.worker.training.device import device_of_script
        from paceline.worker.training.model_and_gradient import use_threads

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
    use_threads(run.told.threads)
    if run.told.device != "auto":
        device_of_script(run.told.device)  # refuses a missing GPU; the script moves its model itself
    seed_all(run.seed)
    sys.path.insert(0, str(Path(script).resolve().parent))
    run_to_end(run, script, lambda: _run_script(Path(script)))


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
