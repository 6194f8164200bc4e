"""A Python environment for every peer, so that one peer's dependencies never hold back another's or the project's."""

import shutil
import subprocess
import sys
from pathlib import Path

from paceline.core.errors import TryAgain

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "project": (),
    "tensorflow": ("tensorflow-cpu>=2.21,<3",),
    "ray": ("ray>=2.50,<3", "numba>=0.60,<1"),
    "svm": ("liblinear-official>=2.49,<3", "vowpalwabbit>=9.11,<10"),
}
"""What each environment needs installed; `project` is the interpreter that runs the harness."""
ROOT = Path(".bench")
PATIENCE = 900.0
"""Longest that one step of building an environment may take (seconds)."""


class NoEnvironment(TryAgain):
    """A peer's environment does not exist and could not be built; the others can still be measured."""


def python_of(name: str, root: Path = ROOT) -> Path:
    """The environment's interpreter; builds the environment where it is missing, NoEnvironment where that fails."""
    if name not in REQUIREMENTS:
        raise NoEnvironment(f"no environment: there is no '{name}'; known are {', '.join(REQUIREMENTS)}.")
    if not REQUIREMENTS[name]:
        return Path(sys.executable)
    folder = (root / name).absolute()
    finished = folder / "finished"
    wanted = "\n".join(REQUIREMENTS[name])
    if not (finished.is_file() and finished.read_text() == wanted):
        _build(name, folder, REQUIREMENTS[name])
        finished.write_text(wanted)
    return folder / "bin" / "python"


def _build(name: str, folder: Path, requirements: tuple[str, ...]) -> None:
    print(
        f"Building the environment '{name}' in {folder}: {', '.join(requirements)} (once, some minutes).",
        file=sys.stderr,
    )
    shutil.rmtree(folder, ignore_errors=True)
    python = str(folder / "bin" / "python")
    _do(name, [sys.executable, "-m", "venv", str(folder)])
    _do(name, [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements])


def _do(name: str, command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise NoEnvironment(
            f"no environment: building '{name}' took longer than {PATIENCE:g} s; is the index reachable?"
        ) from None
    except OSError as error:
        raise NoEnvironment(f"no environment: '{name}' can't be built, {command[0]} does not run ({error}).") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise NoEnvironment(
            f"no environment: '{name}' can't be built, `{' '.join(command[1:])}` said: {said[-1]}. "
            f"Check the network and the package index, then run the benchmark again."
        )
