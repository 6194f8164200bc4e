"""`python -m paceline_k8s.autostop`: in a pod next to a run, scales its servers to zero when it is finished."""

import paceline.base.first_process  # noqa: F401  # isort: skip

import time
from pathlib import Path
from typing import Annotated

import typer

from paceline.launch.status.chief_status import RemoteChief
from paceline.launch.status.run_status import patiently
from paceline.processes.exits import exits, run_command
from paceline.processes.tls_option import Tls
from paceline.rpc.auth import read_credentials
from paceline.rpc.enums import phase_of
from paceline.rpc.process import make_log, stop_on_signals
from paceline_k8s.cluster_status import result_of
from paceline_k8s.pod_api import PodApi

EVERY, SAY_EVERY = 5.0, 10.0
"""Seconds between two questions to the chief, and between two words while it does not answer."""
LONGEST = 120.0
"""Seconds for which the cluster's API may give no answer: a new pod's name service may be late."""
FAREWELL = 60.0
"""Seconds that workers and evaluator have to end after the run is finished."""


def main(
    chief: Annotated[str, typer.Option(help="host:port of server 0.")],
    statefulset: Annotated[str, typer.Option(help="The servers.")],
    token_file: Annotated[Path, typer.Option(help="File with the run's token.")] = Path("/run/secrets/paceline/token"),
    tls: Tls = None,
) -> None:
    """Waits for the end of the run, then scales its servers to zero; done also once somebody else has."""
    with exits("autostop"):
        say = make_log("autostop")
        stop, _ = stop_on_signals()
        remote, said, since = RemoteChief(chief, read_credentials(token_file, tls)), time.monotonic(), None
        while since is None or time.monotonic() - since < FAREWELL:
            status = remote.status()
            if status is None and time.monotonic() - said >= SAY_EVERY:
                said = time.monotonic()
                if patiently(lambda: scale(statefulset), said + LONGEST) == 0:
                    say("somebody has scaled the servers to zero")
                    return
                say("waiting for the chief", address=chief)
            if status is not None and phase_of(status) != "finished":
                since = None  # with more epochs a finished run goes on
            elif status is not None and since is None:
                since, result = time.monotonic(), result_of(status)
                say("the run is finished; the servers are scaled to zero in a minute")
            if stop.wait(EVERY):
                raise SystemExit(143)
        patiently(lambda: scale(statefulset, 0), time.monotonic() + LONGEST)
        say(result)


def scale(statefulset: str, replicas: int | None = None, api: PodApi | None = None) -> int:
    """The number of servers that there should be, set if `replicas` is given. TryAgain, ConfigError: see PodApi."""
    api, path = api or PodApi(), f"statefulsets/{statefulset}/scale"
    if replicas is None:
        found = api.get("apis/apps/v1", path)
    else:
        found = api.patch("apis/apps/v1", path, {"spec": {"replicas": replicas}})
    return int(found["spec"].get("replicas", 0))


if __name__ == "__main__":
    run_command(main)
