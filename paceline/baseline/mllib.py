"""Models of MLlib's in another process, whose output is a log: a Spark session with some executors, then one training after the
other."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from paceline.baseline.engine import Found, Point
from paceline.baseline.split import Split
from paceline.core.errors import ConfigError, PacelineError, error_classes
from paceline.extras import is_installed, lacks

MEMORY = 1024
"""Of an executor (MiB)."""
LOCAL = "127.0.0.1"
POINT, ERROR = "point", "error"


def missing_spark() -> str:
    """What to do where pyspark is not installed; empty where it is."""
    if is_installed("pyspark"):
        return ""
    return f"{lacks('pyspark', 'Training with MLlib')} In a checkout: make spark."


def check_spark() -> None:
    """ConfigError where pyspark is not installed."""
    if missing := missing_spark():
        raise ConfigError(f"{missing} Without it: --engine sklearn.")


def trained(
    master: str, memory: int, split: Split, points: Sequence[Point], log: Path, kill: bool = False
) -> Iterator[tuple[Point, Found]]:
    """Trains all points. `memory`: of driver and executors each (MiB). `kill`: an executor in the middle of each
    training. What Spark raised is raised here; the log says more."""
    spec = {
        "master": master,
        "memory": memory,
        "kill": kill,
        "folder": str(split.folder),
        "points": [asdict(point) for point in points],
    }
    log.parent.mkdir(parents=True, exist_ok=True)
    reader, writer = os.pipe()
    module = "paceline.baseline.mllib_process"
    command = [sys.executable, "-m", module, str(os.getpid()), str(writer), json.dumps(spec)]
    with log.open("ab") as output, os.fdopen(reader) as lines, TemporaryDirectory(prefix="paceline-spark-") as home:
        around = environment(Path(home))
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[writer], env=around
        )
        os.close(writer)
        try:
            for line in lines:
                told = json.loads(line)
                if ERROR in told:
                    raise error_classes()[told[ERROR]](f"{told['message']} Its log: {log}")
                yield Point(**told.pop(POINT)), told
            if process.wait():
                raise PacelineError(f"The process with Spark ended with exit code {process.returncode}. Its log: {log}")
        finally:
            process.terminate()
            process.wait()


def environment(home: Path) -> dict[str, str]:
    """Of the process: without what is set for other uses of pyspark, and with this machine's own address. `home`: an empty
    folder for Spark's home, of links to what is installed, since executors leave files in it."""
    found = find_spec("pyspark")
    for file in Path(str(found and found.origin)).parent.iterdir():
        (home / file.name).symlink_to(file)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return plain | {"SPARK_LOCAL_IP": LOCAL, "SPARK_HOME": str(home)}
