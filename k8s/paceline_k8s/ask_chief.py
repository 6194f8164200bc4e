"""Asks the chief of a run on Kubernetes where the run is; on a busy node it takes its time."""

import time
from collections.abc import Callable

from paceline.core.errors import ServersGone
from paceline.rpc.retries import backoff
from paceline.v1.run_service_pb2 import StatusReply
from paceline_k8s.cluster_status import State, chief_of
from paceline_k8s.kubectl import Kubectl

LONGEST = 90.0
"""Time after which nobody asks again (seconds)."""
QUIET = 5.0
"""Time after which a word says what is waited for (seconds)."""


def ask_chief(
    kubectl: Kubectl,
    state: State,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> StatusReply:
    """The run's status. ServersGone where no answer comes in `LONGEST`; after one try where Kubernetes names a trouble of
    server 0 that waiting does not fix."""
    began, has_said = clock(), False
    is_hopeless = any(kubectl.chief_pod in trouble.part and trouble.fatal for trouble in state.troubles)
    for pause in backoff():
        try:
            return _answer(kubectl)
        except ServersGone as error:
            waited, why = clock() - began, str(error).rstrip(".")
        if is_hopeless or waited >= LONGEST:
            tried = "does not answer" if is_hopeless else f"has not answered for {waited:.0f} s"
            raise ServersGone(
                f"Server 0 {tried}: {why}. On a busy node the run may train on; ask again later. To see what is wrong: "
                f"paceline k8s doctor --run {kubectl.run_name} -n {kubectl.namespace}"
            )
        if waited >= QUIET and not has_said:
            has_said = True
            say(f"server 0 has not answered for {waited:.0f} s ({why}); asking again, for {LONGEST:.0f} s in all")
        sleep(pause)
    raise AssertionError("backoff never ends")


def _answer(kubectl: Kubectl) -> StatusReply:
    """That to one call. ServersGone where there is none."""
    with chief_of(kubectl) as chief:
        status = chief.status()
    if status is None:
        raise ServersGone(chief.why)
    return status
