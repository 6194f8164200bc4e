"""A Spark session whose chatter stays away and whose errors are sentences."""

import atexit
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from paceline.base.extras import needing
from paceline.core.errors import ConfigError, PacelineError, error_classes

SETTINGS = {
    "spark.log.level": "OFF",  # errors are shown in one line; only `SCHEDULER` may log
    "spark.speculation": "false",  # no second task that writes the same shard
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
SCHEDULER = "org.apache.spark.scheduler.TaskSchedulerImpl"
"""The one part of Spark that may log: it reports that no executor is available, or that one is lost."""


@contextmanager
def spark_session(
    master: str | None, name: str, purpose: str, told: str, settings: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """The Spark session of this process, an existing one as it is. ConfigError where none can be had; what a task raised is
    raised here. `name`: of the application; `purpose`: what needs Spark; `told`: what was asked for, for people."""
    with needing(purpose):
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
    try:
        session = _session(master, name, settings or {})
    except (Py4JError, PySparkException) as error:
        raise ConfigError(
            f"Spark does not start: {_reason(error)} It needs Java 17 or newer (JAVA_HOME or PATH), and a Spark "
            f"master that answers; {told}."
        ) from error
    try:
        yield session
    except (Py4JError, PySparkException) as error:
        raise _raised_by_task(error) from error


def _session(master: str | None, name: str, settings: Mapping[str, str]) -> Any:
    """The existing session, or a new one, which ends with the process."""
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is not None:
        return found
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).config(map={**SETTINGS, **settings})
    found = (builder if master is None else builder.master(master)).getOrCreate()
    atexit.register(found.stop)
    logging = found.sparkContext._jvm.org.apache.logging.log4j
    logging.core.config.Configurator.setLevel(SCHEDULER, logging.Level.WARN)
    return found


def _raised_by_task(error: Exception) -> PacelineError:
    """Paceline's error that ended a task, or Spark's reason in one line."""
    own = re.search(r".*^paceline\.core\.errors\.(\w+): (.*)", str(error), re.DOTALL | re.MULTILINE)
    if own:
        return error_classes()[own[1]](own[2].strip())
    reason = _reason(error)
    if reason.startswith("ModuleNotFoundError"):
        return ConfigError(
            f"A package is missing on a Spark executor: {reason} Driver and executors need the same environment."
        )
    return PacelineError(f"Spark failed: {reason}")


def _reason(error: Exception) -> str:
    """The sentence in Spark's message that says what happened: Python's last line, or the first of Java's own."""
    lines = str(error).strip().splitlines()
    line = next((line for line in lines if line.startswith(": ")), lines[-1])
    return line.lstrip(": ").rstrip(".") + "."
