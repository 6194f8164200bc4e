"""Where a deployed run is: what Kubernetes has of it, and what its chief says."""

import base64
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from paceline.base.variables import TLS
from paceline.core.errors import ConfigError
from paceline.launch.status.chief_status import RemoteChief
from paceline.rpc.auth import Credentials
from paceline.v1.run_service_pb2 import StatusReply
from paceline_k8s.findings import GROWS, Finding, Seen, condition, findings
from paceline_k8s.kubectl import COMPONENT, DATA, GRPC, Kubectl, settings_of
from paceline_k8s.observation import chief_of as chief_of_status
from paceline_k8s.observation import seen_of, sizes_in
from paceline_k8s.queue import reason, troubles_of_queues, waits_whole
from paceline_k8s.wanted import EVALUATOR, SERVER, SHARDER, STATE, WORKER, Chief, Memory, Result, Wanted, wanted

RECENT = 180.0
"""Events older than this say nothing about now (seconds)."""
GROWTH = 900.0
"""The same of those that say that a node is being made: they come once."""
PATIENCE = 15.0
"""Seconds a call to the chief may take: pods of one node share its CPU cores."""
ORDER = (SHARDER, SERVER, WORKER, EVALUATOR, "controller")


class State(NamedTuple):
    """One look."""

    parts: dict[str, Any]
    """The StatefulSets, by what they are, like worker."""
    pods: list[dict[str, Any]]
    troubles: list[Finding]
    wanted: Wanted | None = None
    """What the run needs now; None where its settings can't be read."""
    queue: str = ""
    """Where Kueue has let none of its pods begin: in which queue it waits, and why."""

    @property
    def servers(self) -> dict[str, Any] | None:
        """Their StatefulSet."""
        return self.parts.get(SERVER)

    @property
    def result(self) -> Result | None:
        """How the run has ended; None before."""
        return self.wanted.kept.result if self.wanted else None

    @property
    def makes_shards(self) -> bool:
        """Whether the sharder still makes shards, however long that takes."""
        return self.wanted is not None and bool(self.wanted.counts.get(SHARDER)) and not self.wanted.counts.get(WORKER)

    @property
    def is_up(self) -> bool:
        """Whether all processes that the run needs are ready, made as its manifests say now, or it has ended."""
        if self.wanted is None:
            return False
        counts = {name: count for name, count in self.wanted.counts.items() if name != SHARDER}
        is_running = bool(counts.get(WORKER)) and all(is_rolled_out(self.parts[name], counts[name]) for name in counts)
        return self.result is not None or is_running

    @property
    def serves(self) -> bool:
        """Whether all servers are ready."""
        count = self.wanted.counts.get(SERVER, 0) if self.wanted else 0
        return self.servers is not None and count > 0 and is_rolled_out(self.servers, count)

    def line(self) -> str:
        """Every part in one line: what runs, and what is waited for."""
        found = []
        for component in sorted({_component(pod) for pod in self.pods}, key=_order):
            phases = Counter(_phase(pod) for pod in self.pods if _component(pod) == component)
            found.append(f"{component}: " + ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items())))
        return "; ".join([*(found or ["no pods yet"]), *filter(None, [self.queue])])


def look(kubectl: Kubectl, status: StatusReply | None = None) -> State:
    """What the cluster has of the run now, and of the input data that it mounts, which is of no run. `status`: what the chief
    says, where it was asked."""
    found = kubectl.items("statefulsets,pods,configmaps,persistentvolumeclaims")
    claims = {_claim(volume) for item in found if item["kind"] == "Pod" for volume in item["spec"].get("volumes", [])}
    if kubectl.run_name and DATA in claims and (data := kubectl.find(f"persistentvolumeclaim/{DATA}")):
        found.append(data)
    kinds: dict[str, list[dict[str, Any]]] = {}
    for item in found:
        kinds.setdefault(item["kind"], []).append(item)
    pods = kinds.get("Pod", [])
    parts = {_component(one): one for one in kinds.get("StatefulSet", [])}
    needs = _wanted(kubectl, parts, pods, kinds.get("ConfigMap", []), chief_of_status(status))

    recent = [event for event in kubectl.items("events", selector="") if _is_recent(event)]
    events = [event for event in recent if _may_concern(kubectl, event)]
    seen = Seen(pods, kinds.get("PersistentVolumeClaim", []), events)
    troubles = findings(seen, lambda pod, previous: kubectl.logs(pod, previous=previous) or kubectl.logs(pod))
    troubles += [*troubles_of_queues(kubectl, pods), *_of_run(kubectl, parts, needs, troubles)]
    troubles.sort(key=lambda one: not one.fatal)
    queue = reason(kubectl, pods) if waits_whole(pods) else ""
    return State(parts, pods, troubles, needs, queue)


def _wanted(
    kubectl: Kubectl,
    parts: dict[str, Any],
    pods: list[dict[str, Any]],
    configs: list[dict[str, Any]],
    chief: Chief | None,
) -> Wanted | None:
    """What the run needs, by its servers' settings."""
    by_name = {one["metadata"]["name"]: one.get("data") or {} for one in configs}
    servers = parts.get(SERVER)
    settings = settings_of(servers) if servers else ""
    if "run.yaml" not in by_name.get(settings, {}):
        return None
    state = by_name.get(kubectl.part("state"), {})
    try:
        sizes = sizes_in(by_name[settings]["run.yaml"])
    except ConfigError:
        return None
    seen = seen_of(parts, pods, settings, sizes, state, chief, datetime.now(UTC).timestamp())
    return wanted(seen, Memory.of(state.get(STATE, "")))


def _of_run(
    kubectl: Kubectl, parts: dict[str, Any], needs: Wanted | None, of_pods: Sequence[Finding]
) -> Iterator[Finding]:
    """What keeps the run from going on that no pod says, since there is none: parts that have failed or were deleted.
    `of_pods`: what pods say, which is not repeated."""
    if needs is None or needs.kept.result is not None:
        return
    for name, failed in needs.kept.failed.items():
        part = f"statefulset/{kubectl.part(name)}"
        pod = f"pod/{kubectl.part(name)}-"
        is_known = any(one.part.startswith(pod) and one.exit_code == failed.code for one in of_pods)
        why = "." if is_known else f": {failed.sentence}"
        what = f"ended with exit code {failed.code}, and is not started again as it is{why}"
        todo = f"Remove the cause, then: kubectl rollout restart -n {kubectl.namespace} {part}"
        yield Finding(part, what, todo, exit_code=failed.code, lasting=0.0)
    for name in (WORKER, EVALUATOR):
        if name not in parts:
            todo = f"To make it again: make deploy OVERLAY=... (or CONFIG=...) RUN={kubectl.run_name}."
            yield Finding(f"statefulset/{kubectl.part(name)}", "it does not exist.", todo, fatal=False)


@contextmanager
def chief_of(kubectl: Kubectl) -> Iterator[RemoteChief]:
    """The run's chief, through a forwarded port. ServersGone where server 0 can't be reached."""
    token = secret_of(kubectl, "token")["token"].decode()
    with TemporaryDirectory() as folder, kubectl.forwarded(kubectl.chief_pod, GRPC) as address:
        chief = RemoteChief(address, Credentials(token, keys_of(kubectl, Path(folder)), run=kubectl.run_name), PATIENCE)
        try:
            yield chief
        finally:
            chief.close()


def has_tls(servers: dict[str, Any]) -> bool:
    """Whether these servers speak TLS."""
    container = servers["spec"]["template"]["spec"]["containers"][0]
    return any(variable["name"] == TLS for variable in container.get("env", ()))


def keys_of(kubectl: Kubectl, folder: Path) -> Path | None:
    """The folder with the run's keys in it, where its servers have some; None otherwise."""
    if not has_tls(kubectl.get(kubectl.servers)):
        return None
    for name, content in secret_of(kubectl, "tls").items():
        (folder / name).write_bytes(content)
    return folder


def secret_of(kubectl: Kubectl, name: str) -> dict[str, bytes]:
    """What the run's Secret of that name holds, by key."""
    found = kubectl.get(f"secret/{kubectl.part(name)}")["data"]
    return {key: base64.b64decode(value) for key, value in found.items()}


def _is_recent(event: dict[str, Any]) -> bool:
    last = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    past = (datetime.now(UTC) - datetime.fromisoformat(last)).total_seconds()
    return past < (GROWTH if event["reason"] in GROWS else RECENT)


def _may_concern(kubectl: Kubectl, event: dict[str, Any]) -> bool:
    """Whether it is about the run that is meant, or about no run's part."""
    name = str(event["involvedObject"].get("name", "")).removeprefix("checkpoints-")
    is_part = "-paceline-" in name
    return not kubectl.run_name or not is_part or name.startswith(kubectl.part(""))


def _claim(volume: dict[str, Any]) -> str:
    """The claim that a pod's volume is; empty where it is something else."""
    return str(volume.get("persistentVolumeClaim", {}).get("claimName", ""))


def is_rolled_out(one: dict[str, Any], count: int) -> bool:
    """Whether a StatefulSet has this many pods, all ready and made as it says now."""
    status = one.get("status", {})
    return bool(
        status.get("observedGeneration", 0) >= one["metadata"].get("generation", 0)
        and one["spec"].get("replicas", 1) == count
        and status.get("readyReplicas", 0) >= count
        and status.get("updatedReplicas", 0) >= count
    )


def _component(part: dict[str, Any]) -> str:
    found: str = part["metadata"]["labels"].get(COMPONENT, "other")
    return found


def _order(component: str) -> int:
    return ORDER.index(component) if component in ORDER else len(ORDER)


def _phase(pod: dict[str, Any]) -> str:
    """In words: the container's reason where it waits."""
    if pod["metadata"].get("deletionTimestamp"):
        return "leaving"
    status = pod.get("status", {})
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason"):
            return str(waiting["reason"])
    phase = str(status.get("phase", "Unknown"))
    is_ready = condition(pod, "Ready") is not None
    return {"Running": "ready" if is_ready else "starting", "Succeeded": "done"}.get(phase, phase)
