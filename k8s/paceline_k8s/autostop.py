"""`python -m paceline_k8s.autostop`: in a pod next to a run, scales its servers to zero when it is finished."""

import paceline.base.first_process  # noqa: F401  # isort: skip

import json
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated

import typer

from paceline.core.errors import ConfigError, TryAgain
from paceline.launch.status.chief_status import RemoteChief
from paceline.launch.status.run_status import patiently
from paceline.processes.exits import exits, run_command
from paceline.processes.tls_option import Tls
from paceline.rpc.auth import read_credentials
from paceline.rpc.enums import phase_of
from paceline.rpc.process import make_log, stop_on_signals
from paceline_k8s.cluster_status import result_of

_TOO_MANY, _SERVER_ERROR = 429, 500
"""HTTP statuses of an API that does not refuse, but can't answer now; the second one and all above it."""
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
API = "https://kubernetes.default.svc"
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


def scale(statefulset: str, replicas: int | None = None, account: Path = ACCOUNT, api: str = API) -> int:
    """The number of servers that there should be, set if `replicas` is given: asks the cluster's API with this pod's own
    account. TryAgain where it does not answer, or can't just now; ConfigError where it refuses."""
    try:
        namespace, token = (account / "namespace").read_text().strip(), (account / "token").read_text().strip()
    except OSError as error:
        raise ConfigError(
            f"This pod has no service account ({error}). Deploy the component autostop without changes."
        ) from error
    authority = account / "ca.crt"
    context = ssl.create_default_context(cafile=str(authority)) if authority.exists() else None
    request = urllib.request.Request(
        f"{api}/apis/apps/v1/namespaces/{namespace}/statefulsets/{statefulset}/scale",
        data=None if replicas is None else json.dumps({"spec": {"replicas": replicas}}).encode(),
        method="GET" if replicas is None else "PATCH",
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return int(json.load(answer)["spec"].get("replicas", 0))
    except urllib.error.HTTPError as error:
        if error.code == _TOO_MANY or error.code >= _SERVER_ERROR:
            raise TryAgain(f"The cluster's API answers {error.code} {error.reason}; it may be busy.") from error
        raise ConfigError(
            f"The cluster refuses to scale {statefulset} ({error.code} {error.reason}). Deploy the component autostop with "
            "its Role."
        ) from error
    except OSError as error:
        raise TryAgain(f"The cluster's API does not answer: {error}.") from error


if __name__ == "__main__":
    run_command(main)
