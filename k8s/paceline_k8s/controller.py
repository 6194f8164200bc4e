"""`python -m paceline_k8s.controller`: next to a run, sets how many processes of each part there are, again and again."""

import paceline.base.first_process  # noqa: F401  # isort: skip

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.core.errors import ConfigError, TryAgain
from paceline.launch.status.chief_status import RemoteChief
from paceline.processes.exits import exits, run_command
from paceline.processes.tls_option import Tls
from paceline.rpc.auth import read_credentials
from paceline.rpc.process import make_log, stop_on_signals
from paceline.v1.run_service_pb2 import StatusReply
from paceline_k8s.kubectl import COMPONENT, RUN, NotThere, part_name, settings_of_pod
from paceline_k8s.kubectl import PARTS as OF_ANY_RUN
from paceline_k8s.observation import chief_of, seen_of, sizes_in
from paceline_k8s.pod_api import PodApi
from paceline_k8s.wanted import SAYS, SERVER, STATE, Memory, Seen, Sizes, Wanted, wanted

_APPS, _CORE = "apis/apps/v1", "api/v1"
EVERY = 5.0
"""Seconds between two observations."""


class Controller:
    """One run, by the cluster's API. All that it remembers is in the run's ConfigMap, so it may be killed at any moment."""

    def __init__(self, api: PodApi, run: str, pod: str, sizes: Sizes, ask: Callable[[], StatusReply | None]) -> None:
        """`pod`: its own, which says which settings `sizes` are of; `ask`: the chief, None where it does not answer."""
        self._api = api
        self._run = run
        self._pod = pod
        self._sizes = sizes
        self._ask = ask

    def step(self, now: float) -> str:
        """Observes, decides, remembers and sets counts; what the run does, in words. `now`: seconds since 1970. TryAgain,
        ConfigError: see PodApi."""
        about = self._api.get(_CORE, f"configmaps/{part_name(self._run, 'state')}").get("data") or {}
        found = wanted(seen := self._look(about, now), Memory.of(about.get(STATE, "")))
        self._remember(about, found)
        for name, count in found.counts.items():
            if count != seen.parts[name].replicas:
                self._api.patch(
                    _APPS, f"statefulsets/{part_name(self._run, name)}/scale", {"spec": {"replicas": count}}
                )
        return found.says

    def _look(self, about: dict[str, Any], now: float) -> Seen:
        of_run = f"?labelSelector={OF_ANY_RUN},{RUN}={self._run}"
        there = {
            one["metadata"]["labels"][COMPONENT]: one for one in self._api.get(_APPS, f"statefulsets{of_run}")["items"]
        }
        pods = self._api.get(_CORE, f"pods{of_run}")["items"]
        own = next((pod for pod in pods if pod["metadata"]["name"] == self._pod), None)
        if own is None:
            raise TryAgain(f"The cluster does not list this pod, {self._pod}, yet.")
        return seen_of(there, pods, settings_of_pod(own["spec"]), self._sizes, about, chief_of(self._ask()), now)

    def _remember(self, before: dict[str, Any], found: Wanted) -> None:
        """Before any count is set: servers that are gone could not say again that the run is finished."""
        new = {STATE: found.kept.text(), SAYS: found.says}
        if any(before.get(key) != text for key, text in new.items()):
            self._api.patch(_CORE, f"configmaps/{part_name(self._run, 'state')}", {"data": new})


def main(
    run: Annotated[str, typer.Option(help="The run's name.")],
    config: Annotated[Path, typer.Option(help="The run's settings.")] = Path("/etc/paceline/run.yaml"),
    token_file: Annotated[Path, typer.Option(help="File with a token.")] = Path("/run/secrets/paceline/token"),
    tls: Tls = None,
) -> None:
    """Keeps the run as its manifests say, until it is stopped."""
    with exits("controller"):
        say = make_log("controller")
        stop, _ = stop_on_signals()
        servers = part_name(run, SERVER)
        chief = RemoteChief(f"{servers}-0.{servers}:50051", read_credentials(token_file, tls))
        controller = Controller(
            PodApi(), run, os.environ["HOSTNAME"], sizes_in(config.read_text()), patient(chief, say)
        )
        before = ""
        while True:
            try:
                says = controller.step(time.time())
            except (TryAgain, NotThere) as error:
                says = str(error)
            if says != before:
                say(says)
                before = says
            if stop.wait(EVERY):
                raise SystemExit(143)


def patient(chief: RemoteChief, say: Callable[[str], None]) -> Callable[[], StatusReply | None]:
    """Asks the chief; a refusal, as of a token that was replaced, is said once and counts as no answer."""
    refused = ""

    def ask() -> StatusReply | None:
        nonlocal refused
        try:
            return chief.status()
        except ConfigError as error:
            if str(error) != refused:
                refused = str(error)
                say(refused)
            return None

    return ask


if __name__ == "__main__":
    run_command(main)
