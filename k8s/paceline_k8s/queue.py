"""A run whose pods wait in a queue of Kueue until it lets all of them begin (k8s/components/kueue)."""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from paceline.core.errors import ConfigError
from paceline_k8s.findings import Finding, condition
from paceline_k8s.kubectl import Kubectl, NotThere

Item = dict[str, Any]
GATE = "kueue.x-k8s.io/admission"
"""The scheduling gate that Kueue takes away."""
_QUEUE, _GROUP = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/pod-group-name"
_COUNT, _LAST = "kueue.x-k8s.io/pod-group-total-count", "kueue.x-k8s.io/retriable-in-group"
_QUEUES, _WORKLOADS = "localqueue.kueue.x-k8s.io", "workload.kueue.x-k8s.io"
_OF_A_PART = re.compile(r"couldn't assign flavors to pod set \S+: ")
_OVER = ("Succeeded", "Failed")


def queue_of(makes_pods: Item) -> str:
    """The queue in which the pods of a StatefulSet wait; empty where they don't."""
    return str(_pod(makes_pods).get("metadata", {}).get("labels", {}).get(_QUEUE, ""))


def waits_whole(pods: Iterable[Item]) -> bool:
    """Whether Kueue has let none of the pods that there are begin, but for the controller, which is in no queue."""
    in_queue = [pod for pod in pods if _QUEUE in pod["metadata"].get("labels", {})]
    left = [pod for pod in in_queue if pod.get("status", {}).get("phase") not in _OVER]
    return bool(left) and all(_is_gated(pod) for pod in left)


def troubles_of_queues(kubectl: Kubectl, pods: Sequence[Item]) -> list[Finding]:
    """Why a queue never lets these pods begin; nothing where they wait for room."""
    queues = {pod["metadata"].get("labels", {}).get(_QUEUE, "") for pod in pods if _is_gated(pod)}
    return [found for queue in sorted(queues - {""}) if (found := _trouble(kubectl, queue)) is not None]


def reason(kubectl: Kubectl, pods: Sequence[Item]) -> str:
    """'waits in queue team-a ...' for pods that all wait, with Kueue's own words where it has some."""
    labels = next(pod["metadata"].get("labels", {}) for pod in pods if _is_gated(pod))
    queue, workload = labels.get(_QUEUE, ""), _workload(kubectl, labels.get(_GROUP, ""))
    told = "".join(one.get("message", "") for one in _conditions(workload) if one["type"] == "QuotaReserved")
    missing = _OF_A_PART.split(told)[-1]  # what Kueue says of the last part counts those before it
    return f"waits in queue {queue}, and begins by itself" + (f" ({missing})" if missing else "")


def set_count(documents: Sequence[Item], count: int) -> None:
    """Tells the queue how many pods begin together."""
    for one in documents:
        if queue_of(one):
            _pod(one)["metadata"]["annotations"][_COUNT] = str(count)


def check_queue(kubectl: Kubectl, documents: Sequence[Item], count: int) -> None:
    """ConfigError where the run's pods would wait forever. `count`: how many there are."""
    in_queue = [one for one in documents if queue_of(one)]
    if not in_queue:
        return
    told = _pod(in_queue[0])["metadata"]["annotations"][_COUNT]
    if told != str(count):
        raise ConfigError(
            f"The run has {count} pods, and kustomization.yaml says pods={told} for its queue, so Kueue would wait for "
            f"others or delete some: set pods={count} in paceline-queue."
        )
    if (found := _trouble(kubectl, queue_of(in_queue[0]))) is not None:
        raise ConfigError(f"{found.part}: {found.what} {found.todo}")


def drop_finished(kubectl: Kubectl, servers: Item) -> None:
    """Takes a finished run out of its queue, so that it may wait there again. Its pods are gone."""
    group = _pod(servers)["metadata"]["labels"][_GROUP] if queue_of(servers) else ""
    if group and condition(_workload(kubectl, group), "Finished") is not None:
        kubectl.run("delete", f"{_WORKLOADS}/{group}", "--ignore-not-found")


def release(kubectl: Kubectl, servers: Item) -> None:
    """Frees the quota of a finished run: without it Kueue keeps that for pods that replace those which go."""
    if not queue_of(servers):
        return
    with suppress(NotThere):  # a pod that went meanwhile holds nothing; kubectl goes on with the others
        kubectl.run("annotate", "pods", f"--selector={kubectl.selector}", "--overwrite", f"{_LAST}=false")


def _trouble(kubectl: Kubectl, queue: str) -> Finding | None:
    part = f"queue/{queue}"
    try:
        found = kubectl.get(f"{_QUEUES}/{queue}")
    except NotThere:
        return Finding(
            part,
            f"namespace {kubectl.namespace} has no such queue of Kueue.",
            f"Set name= in paceline-queue of kustomization.yaml to one of `kubectl get localqueues -n {kubectl.namespace}`, or "
            "ask the cluster's administrator for this one.",
        )
    except ConfigError as error:
        if "resource type" not in str(error):
            return None  # this user may not look
        return Finding(
            part,
            "this cluster has no Kueue, so nothing lets the run begin.",
            "Install Kueue, or take the component kueue out of kustomization.yaml and deploy again.",
        )
    for one in _conditions(found):
        if (one["type"], one["status"]) == ("Active", "False"):
            return Finding(
                part, f"it takes no runs: {one.get('message', '')}.", "Ask the cluster's administrator.", False
            )
    return None


def _workload(kubectl: Kubectl, name: str) -> Item:
    """What Kueue has made of the run's pods; empty where it has not, or nobody may look."""
    try:
        return kubectl.get(f"{_WORKLOADS}/{name}")
    except ConfigError:
        return {}


def _conditions(item: Item) -> list[Item]:
    return list(item.get("status", {}).get("conditions", []))


def _pod(makes_pods: Item) -> Item:
    return dict(makes_pods.get("spec", {}).get("template", {}))


def _is_gated(pod: Item) -> bool:
    return any(gate["name"] == GATE for gate in pod.get("spec", {}).get("schedulingGates", []))
