"""What can be changed of a run on Kubernetes while it trains: its policy, its number of workers, and its end."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from paceline.base.own_files import is_own
from paceline.cli.set_policy import set_policy as set_policy_of
from paceline.core.errors import UsageError
from paceline.launch.status.run_status import Connect, Elsewhere, stop_run
from paceline_k8s.cluster_status import chief_of, look
from paceline_k8s.deploy import control
from paceline_k8s.kubectl import Kubectl, NotThere, settings_of
from paceline_k8s.queue import queue_of
from paceline_k8s.wanted import WORKER, WORKERS


def set_policy(kubectl: Kubectl, settings: Sequence[str]) -> str:
    """Changes the policy, as `paceline set` does; returns what to say. UsageError where the run is finished, and for a policy
    of the user's own, whose file its servers don't have."""
    if own := [each for each in settings if is_own(each.partition("=")[2])]:
        raise UsageError(
            f"{own[0]}: servers read a policy of your own from the run's ConfigMap. Put the file there by kustomization.yaml, "
            "and deploy the run under another name."
        )
    with _connected(kubectl) as connect:
        return set_policy_of(Elsewhere(Path(kubectl.run_name)), settings, connect)


def stop(kubectl: Kubectl) -> str:
    """Ends the training properly, as `paceline stop` does; returns what to say. UsageError where the run is finished."""
    with _connected(kubectl) as connect:
        return stop_run(Elsewhere(Path(kubectl.run_name)), connect)


@contextmanager
def _connected(kubectl: Kubectl) -> Iterator[Connect]:
    """How to reach the chief, whatever its address. ServersGone where server 0 does not answer."""
    if look(kubectl).result is not None:
        raise UsageError(
            f"Run {kubectl.run_name} is finished, and its servers are scaled to zero. To go on, raise `epochs` in its "
            "run.yaml and deploy it again."
        )
    with chief_of(kubectl) as chief:
        yield lambda address, credentials: chief


def scale(kubectl: Kubectl, workers: int, say: Callable[[str], None]) -> None:
    """Another number of workers while the run trains. The pool's size is the run's `workers`: those beyond it wait for a
    seat."""
    if workers < 1:
        raise UsageError(
            f"--workers {workers}: a run needs at least one worker. To end it: make stop RUN={kubectl.run_name}."
        )
    if kubectl.find(kubectl.state) is None:
        raise NotThere(f"Run {kubectl.run_name} is not deployed. To make it again: make deploy RUN={kubectl.run_name}.")
    part = kubectl.get(f"statefulset/{kubectl.part(WORKER)}")
    if queue_of(part):
        raise UsageError(
            f"--workers {workers}: the run is in a queue, and Kueue has counted its pods. For another number, change workers "
            "in run.yaml, and deploy it under another name."
        )
    change = json.dumps({"data": {WORKERS: str(workers)}})
    kubectl.run("patch", kubectl.state, "--type=merge", f"--patch={change}")
    control(kubectl, look(kubectl))
    say(f"workers: {part['spec']['replicas']} now, {workers} in a few seconds")
    if (seats := _seats(kubectl, part)) is not None and workers > seats:
        say(
            f"warning: the run has {seats} seats (workers: {seats} in run.yaml), so {workers - seats} of these wait until one "
            "is free. For more seats, deploy it under another name with more workers."
        )


def _seats(kubectl: Kubectl, part: dict[str, Any]) -> int | None:
    """Returns the run's `workers`; None where its settings can't be seen."""
    found = kubectl.find(f"configmap/{settings_of(part)}")
    settings = yaml.safe_load((found or {}).get("data", {}).get("run.yaml", "")) or {}
    seats = settings.get("workers")
    return seats if isinstance(seats, int) else None
