"""Models of MLlib's in another process, whose output is a log: a Spark session with some executors, then one training after the
other."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from paceline.base.extras import is_installed, lacks
from paceline.core.errors import ConfigError, PacelineError, error_classes
from paceline.launch.this_machine.end_with_parent import tethered
from paceline_papers.baseline.engine import Cluster, Found, Point
from paceline_papers.baseline.split import Split

MEMORY = 1024
"""Of an executor (MiB)."""
LOCAL = "127.0.0.1"
POINT, ERROR = "point", "error"
PROCESS, TOLD = "paceline_papers.baseline.mllib_process", "told"


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
    """Trains all points in its own session on this machine. `memory`: of driver and executors each (MiB). `kill`: an
    executor in the middle of each training. What Spark raised is raised here; the log says more."""
    settings = {
        "spark.driver.host": LOCAL,
        "spark.driver.memory": f"{memory}m",
        "spark.executor.memory": f"{memory}m",
    }
    spec = _spec(split, points) | {"master": master, "settings": settings, "kill": kill}
    command = tethered(sys.executable, "-m", PROCESS, TOLD, json.dumps(spec))
    with TemporaryDirectory(prefix="paceline-spark-") as home:
        yield from _results(command, environment(Path(home)), Path(home), log)


def submitted(cluster: Cluster, split: Split, points: Sequence[Point], log: Path) -> Iterator[tuple[Point, Found]]:
    """The same by spark-submit on a cluster, with as many executors of one core each as the points have. This machine has the
    driver; executors read the split at the same path. CPU seconds are not known."""
    count = points[0].executors
    settings = {
        "spark.submit.deployMode": "client",
        "spark.dynamicAllocation.enabled": "false",
        "spark.executor.instances": str(count),
        "spark.executor.cores": "1",
        "spark.cores.max": str(count),
    }
    given = [f"{name}={value}" for name, value in settings.items()] + list(cluster.settings)
    spec = _spec(split, points) | {
        "master": None,
        "settings": dict(each.split("=", 1) for each in cluster.settings),
        "kill": False,
        "executors": count,
        "called": cluster.master,
    }
    with TemporaryDirectory(prefix="paceline-spark-") as home:
        script = Path(home) / "mllib.py"
        script.write_text(f"from {PROCESS} import main\n\nmain()\n")
        command = tethered(
            *(str(spark_submit()), "--master", cluster.master, "--name", "paceline baseline"),
            *(word for each in given for word in ("--conf", each)),
            *(str(script), TOLD, json.dumps(spec)),
        )
        around = {"PYSPARK_PYTHON": sys.executable, **os.environ, "PYSPARK_DRIVER_PYTHON": sys.executable}
        for point, found in _results(command, around, Path(home), log):
            yield point, {**found, "cpu": None}


def spark_submit() -> Path:
    """The program: of SPARK_HOME, on the PATH, or pyspark's."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home) / "bin" / "spark-submit"
    if found := shutil.which("spark-submit"):
        return Path(found)
    return _pyspark() / "bin" / "spark-submit"


def _spec(split: Split, points: Sequence[Point]) -> dict[str, Any]:
    return {"folder": str(split.folder.resolve()), "points": [asdict(point) for point in points]}


def _results(command: Sequence[str], around: Mapping[str, str], home: Path, log: Path) -> Iterator[tuple[Point, Found]]:
    """What the process of this command tells through a pipe in `home`, whose path replaces `TOLD`. The process inherits
    an end of the pipe, so reading ends with it and with all that it has started in its place."""
    log.parent.mkdir(parents=True, exist_ok=True)
    pipe = home / TOLD
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY)
    os.set_blocking(reader, True)
    given = [str(pipe) if word == TOLD else word for word in command]
    with log.open("ab") as output, os.fdopen(reader) as lines:
        process = subprocess.Popen(
            given, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[writer], env=around
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
    for file in _pyspark().iterdir():
        (home / file.name).symlink_to(file)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return plain | {"SPARK_LOCAL_IP": LOCAL, "SPARK_HOME": str(home)}


def _pyspark() -> Path:
    found = find_spec("pyspark")
    return Path(str(found and found.origin)).parent
