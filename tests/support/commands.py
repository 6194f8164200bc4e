"""Commands and scripts as people start them, but forked from a process that has imported torch and what `paceline run` does: a
start takes 0.1 s of CPU instead of 5. What they fork themselves is forked again."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from paceline.launch.forks.fork_program import run_line
from tests.support.processes import QUIET, TORCH, forker_of


def python(*words: object, cwd: Path, patience: float = 240, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `python WORDS` prints and ends with. `environment`: what it sees besides what this process does. Ends it and raises
    subprocess.TimeoutExpired where it takes longer."""
    line = [str(word) for word in words]
    with tempfile.TemporaryDirectory() as folder:
        out, error = Path(folder, "out"), Path(folder, "error")
        program = ["-m", "tests.support.commands", str(out), str(error), *line]
        child = forker_of(TORCH).start(program, error, cwd, {**os.environ, **QUIET, **environment})
        assert child is not None, "the process that forks has ended; see what it wrote to stderr"
        try:
            code = child.wait(patience)
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(line, code, out.read_text(), error.read_text())


def paceline(*words: object, cwd: Path, patience: float = 240) -> subprocess.CompletedProcess[str]:
    """What `paceline WORDS` prints and ends with, as `python`."""
    return python("-m", "paceline.cli", *words, cwd=cwd, patience=patience)


def main(out: str, error: str, *words: str) -> None:
    """In the fork: writes there from now on, and is what `python WORDS` is."""
    for path, number in ((out, 1), (error, 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    if words[0] != "-m":
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
    run_line([*words])


if __name__ == "__main__":
    main(*sys.argv[1:])
