"""Where a deployed run is: what Kubernetes has of it, and what its chief says."""

import base64
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from paceline.base.variables import TLS
from paceline.core.chief.best_model import result
from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.status.chief_status import RemoteChief, scores
from paceline.rpc.auth import Credentials
from paceline.rpc.enums import phase_of
from paceline.v1.run_service_pb2 import StatusReply
from paceline_k8s.findings import GROWS, Finding, Seen, condition, findings, lost_some, owner_of
from paceline_k8s.kubectl import COMPONENT, DATA, GRPC, Kubectl, newest_jobs
from paceline_k8s.queue import reason, troubles_of_queues, waits_whole

RECENT = 180.0
"""Events older than this say nothing about now (seconds)."""
GROWTH = 900.0
"""The same of those that say that a node is being made: they come once."""
PATIENCE = 15.0
"""Seconds a call to the chief may take: pods of one node share its CPU cores."""
RESULT = "paceline.dev/result"
"""Annotation of the StatefulSet that keeps a finished run's result when its servers are gone."""
_TRACKED = "batch.kubernetes.io/job-tracking"
"""The finalizer of a Job's pods."""
ORDER = ("sharder", "server", "worker", "evaluator", "autostop")


class State(NamedTuple):
    """One look."""

    servers: dict[str, Any] | None
    """The StatefulSet."""
    jobs: dict[str, dict[str, Any]]
    """By what they are, like worker."""
    deployments: list[dict[str, Any]]
    """What streams shards, where there is such."""
    pods: list[dict[str, Any]]
    troubles: list[Finding]
    queue: str = ""
    """Where Kueue has let none of its pods begin: in which queue it waits, and why."""

    def finished(self, job: str) -> bool:
        """Whether the Job has completed, but for pods that were lost for good."""
        found = self.jobs.get(job, {})
        return condition(found, "Complete") is not None or lost_some(found)

    @property
    def waits(self) -> str:
        """What keeps it back without being a trouble; empty where nothing does."""
        held = [job["metadata"]["name"] for name, job in self.jobs.items() if _is_suspended(job)]
        resumed = """--type=merge --patch='{"spec":{"suspend":false}}'"""
        return self.queue or "; ".join(f"job/{name} is suspended (kubectl patch job {name} {resumed})" for name in held)

    @property
    def makes_shards(self) -> bool:
        """Whether what streams shards runs, and is not ready: it makes them first, however long that takes."""
        makes = any(_component(pod) == "sharder" and _phase(pod) == "starting" for pod in self.pods)
        return makes and not all(map(_is_rolled_out, self.deployments))

    @property
    def is_up(self) -> bool:
        """Whether all servers, and what streams shards, are ready as they are wanted now, and every Job has its pods
        running, or has finished."""
        return self.serves and all(self.finished(name) or _running(job) for name, job in self.jobs.items())

    @property
    def serves(self) -> bool:
        """The same without Jobs."""
        return self.servers is not None and _is_rolled_out(self.servers) and all(map(_is_rolled_out, self.deployments))

    def line(self) -> str:
        """Every part in one line: what runs, and what is waited for."""
        found = []
        for component in sorted({_component(pod) for pod in self.pods}, key=_order):
            phases = Counter(_phase(pod) for pod in self.pods if _component(pod) == component)
            found.append(f"{component}: " + ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items())))
        return "; ".join([*(found or ["no pods yet"]), *filter(None, [self.waits])])


def look(kubectl: Kubectl) -> State:
    """What the cluster has of the run now, and of the input data that it mounts, which is of no run."""
    found = kubectl.items("statefulsets,deployments,jobs,pods,persistentvolumeclaims")
    claims = {_claim(volume) for item in found if item["kind"] == "Pod" for volume in item["spec"].get("volumes", [])}
    if kubectl.run_name and DATA in claims and (data := kubectl.find(f"persistentvolumeclaim/{DATA}")):
        found.append(data)
    kinds: dict[str, list[dict[str, Any]]] = {}
    for item in found:
        kinds.setdefault(item["kind"], []).append(item)
    jobs = newest_jobs(kinds.get("Job", []))
    pods = [pod for pod in kinds.get("Pod", []) if not _is_replaced(pod, jobs)]
    recent = [event for event in kubectl.items("events", selector="") if _is_recent(event)]
    events = [event for event in recent if _may_concern(kubectl, event)]
    seen = Seen(pods, kinds.get("PersistentVolumeClaim", []), list(jobs.values()), events)
    troubles = findings(seen, lambda pod, previous: kubectl.logs(pod, previous=previous) or kubectl.logs(pod))
    servers = next(iter(kinds.get("StatefulSet", [])), None)
    troubles += [*troubles_of_queues(kubectl, pods), *_without_workers(kubectl, servers, jobs), *_held(kubectl, pods)]
    troubles.sort(key=lambda one: not one.fatal)
    queue = reason(kubectl, pods) if waits_whole(pods) else ""
    streams = [one for one in kinds.get("Deployment", []) if _component(one) == "sharder"]
    return State(servers, jobs, streams, pods, troubles, queue)


def _without_workers(
    kubectl: Kubectl, servers: dict[str, Any] | None, jobs: dict[str, dict[str, Any]]
) -> list[Finding]:
    """Servers for which nobody works: their Job has been deleted, or cleaned up after it had failed."""
    if servers is None or servers["spec"]["replicas"] == 0 or "worker" in jobs:
        return []
    todo = f"To make it again: make deploy OVERLAY=... RUN={kubectl.run_name}."
    return [Finding(f"job/{kubectl.part('worker')}", "the run has no Job of workers.", todo, fatal=False)]


def _held(kubectl: Kubectl, pods: list[dict[str, Any]]) -> list[Finding]:
    """A namespace that waits for workers which have ended: their Job counts them only once it has made the next ones."""
    failed = (pod["metadata"] for pod in pods if pod["status"].get("phase") == "Failed")
    if not any("deletionTimestamp" in about and _TRACKED in about.get("finalizers", ()) for about in failed):
        return []
    with suppress(ConfigError):  # not everybody may look at namespaces
        namespace = kubectl.find(f"namespace/{kubectl.namespace}")
        if namespace is not None and "deletionTimestamp" in namespace["metadata"]:
            what = "it is being deleted, and waits for pods that have ended, since their Jobs can't make the next ones."
            todo = f"kubectl -n {kubectl.namespace} delete jobs --all"
            return [Finding(f"namespace/{kubectl.namespace}", what, f"Let them go: {todo}")]
    return []


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


def result_of(status: StatusReply) -> str:
    """'test accuracy 0.9667' of a finished run, or that it was not scored; empty before."""
    if phase_of(status) != "finished":
        return ""
    found = scores(status)
    return result(found[-1].metrics, found[-1].measure) if found and found[-1].final else result({})


def kept_result(state: State) -> str:
    """The result of a run whose servers are gone already; empty where there is none."""
    return str((state.servers or {}).get("metadata", {}).get("annotations", {}).get(RESULT, ""))


def end_of(kubectl: Kubectl) -> str:
    """The result in the last words of the evaluator, which outlives the servers; empty where there is none."""
    try:
        job = kubectl.job("evaluator")
        lines = kubectl.run("logs", f"job/{job['metadata']['name']}", "--tail=20").splitlines() if job else []
    except PacelineError:
        return ""
    for line in reversed(lines):
        with suppress(ValueError):
            found = json.loads(line)
            if found.get("final") and found.get("event") == "scored":
                metrics = {name: value for name, value in found.items() if isinstance(value, float)}
                return result(metrics, found.get("measure", ""))
    return ""


def _is_recent(event: dict[str, Any]) -> bool:
    last = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    past = (datetime.now(UTC) - datetime.fromisoformat(last)).total_seconds()
    return past < (GROWTH if event["reason"] in GROWS else RECENT)


def _may_concern(kubectl: Kubectl, event: dict[str, Any]) -> bool:
    """Whether it is about the run that is meant, or about no run's part."""
    name = str(event["involvedObject"].get("name", "")).removeprefix("checkpoints-")
    is_part = "-paceline-" in name
    return not kubectl.run_name or not is_part or name.startswith(kubectl.part(""))


def _is_replaced(pod: dict[str, Any], jobs: dict[str, dict[str, Any]]) -> bool:
    """Whether it has ended, and is of a Job that is not the newest one of its kind."""
    newest = jobs.get(_component(pod))
    has_ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return has_ended and newest is not None and owner_of(pod) not in ("", newest["metadata"]["name"])


def _claim(volume: dict[str, Any]) -> str:
    """The claim that a pod's volume is; empty where it is something else."""
    return str(volume.get("persistentVolumeClaim", {}).get("claimName", ""))


def _is_rolled_out(one: dict[str, Any]) -> bool:
    """Whether a StatefulSet or Deployment has all its pods ready, made as it says now."""
    wanted, status = one["spec"]["replicas"], one.get("status", {})
    return bool(
        status.get("observedGeneration", 0) >= one["metadata"].get("generation", 0)
        and status.get("readyReplicas", 0) >= wanted
        and status.get("updatedReplicas", 0) >= wanted
    )


def _is_suspended(job: dict[str, Any]) -> bool:
    return bool(job.get("spec", {}).get("suspend")) and condition(job, "Complete") is None


def _running(job: dict[str, Any]) -> bool:
    status = job.get("status", {})
    through = status.get("succeeded", 0)
    wanted = min(job["spec"].get("parallelism", 1), job["spec"].get("completions", 1))
    return bool(status.get("ready", 0) + through >= wanted)


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
