"""Two runs with room for one, on a cluster without Kueue: the test lets pods begin as Kueue does."""

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import SLOW_SVM, paceline, put_rows, run_of, status, until
from paceline.data.dataset import Dataset
from paceline_k8s.cluster_status import look
from paceline_k8s.deploy import apply_all
from paceline_k8s.kubectl import COMPONENT, Kubectl
from paceline_k8s.overlay import Changes, read_overlay
from paceline_k8s.queue import GATE
from paceline_k8s.run_secrets import make_secrets

PODS = 6  # two servers, two workers, evaluator, and a sharder that streams
pytestmark = pytest.mark.timeout(900)


def gated(kubectl: Kubectl) -> list[dict[str, Any]]:
    """The run's pods that may not begin."""
    return [pod for pod in kubectl.items("pods") if {"name": GATE} in pod["spec"].get("schedulingGates", [])]


def admit(kubectl: Kubectl) -> None:
    """Lets all pods that the run has now begin."""
    for pod in gated(kubectl):
        patch = json.dumps([{"op": "remove", "path": "/spec/schedulingGates"}])
        kubectl.run("patch", f"pod/{pod['metadata']['name']}", "--type=json", f"--patch={patch}")


def end_of(kubectl: Kubectl) -> str:
    """How the run has ended, empty before; what is made again meanwhile may begin."""
    admit(kubectl)
    result = look(kubectl).result
    return result.sentence if result else ""


def evict(kubectl: Kubectl, pod: str) -> None:
    """As a drain does; ConfigError where a budget forbids it just now."""
    about = {"name": pod, "namespace": kubectl.namespace}
    order = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}/eviction"
    kubectl.run("create", f"--raw={path}", "--filename=-", stdin=json.dumps(order))


def test_of_two_runs_with_room_for_one_the_second_waits_whole(namespace: str, tmp_path: Path, rows: Dataset) -> None:
    svm = run_of(tmp_path / "run", SLOW_SVM, queue="team-a")
    put_rows(rows, tmp_path / "data", namespace)
    first, second = (Kubectl(namespace, name) for name in ("first", "second"))
    refused = paceline("k8s", "deploy", *svm, "--run", "first", "-n", namespace)
    assert (refused.returncode, "this cluster has no Kueue" in refused.stderr) == (78, True)

    for run in (first, second):
        wanted = read_overlay(run, svm[0], Changes(profile=svm[2]))
        make_secrets(run, wanted, print)
        apply_all(run, wanted.documents)
    until("both to wait", lambda: [len(gated(run)) for run in (first, second)] == [PODS, PODS])
    shown = paceline("k8s", "status", "--run", "second", "-n", namespace)
    assert (shown.returncode, "waits in queue team-a" in shown.stdout) == (0, True)

    admit(first)
    until("the first steps", lambda: look(first).serves and (found := status(first)) and found.version > 20)
    servers = first.items("pods", f"{first.selector},{COMPONENT}=server")
    for pod in servers:  # both at once
        evict(first, pod["metadata"]["name"])
    first_end = until("the end of the first run", lambda: end_of(first), 300)
    waiting = gated(second)
    assert len(waiting) == PODS
    assert not [pod for pod in waiting if "nodeName" in pod["spec"]]

    second_end = until("the end of the second run", lambda: end_of(second), 300)
    assert {end.startswith("test accuracy ") for end in (first_end, second_end)} == {True}
