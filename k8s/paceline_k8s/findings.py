"""What is wrong with a deployed run, in plain words, from what Kubernetes says of its pods, claims and events. Nothing
here asks the cluster: all comes as values."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.errors import ConfigError, PacelineError, ServersGone, UsageError
from paceline.launch.supervise.children import printable

Item = dict[str, Any]
_PULL = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable")
_FATAL_CODES = (UsageError.exit_code, 65, ConfigError.exit_code)
"""Exit codes that the next start gives again."""
_STOPPED = (0, 75, 130, 143)
GROWS = ("TriggeredScaleUp", "Nominated")
"""What the cluster autoscaler, and Karpenter, say of a pod for which they make a node."""
_ELSEWHERE = ("volume node affinity conflict", "PersistentVolume's node affinity")
_TRACEBACK = "Traceback (most recent call last)"
_NAME = re.compile(r"^[a-z][a-z0-9-]*: (?=[A-Z]\w+: )")
"""Of a process, before the sentence that it ends with."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One trouble."""

    part: str
    """kind/name it is about."""
    what: str
    todo: str
    fatal: bool = True
    """Whether waiting longer is useless."""
    exit_code: int = ConfigError.exit_code
    lasting: float = 30.0
    """How long it may last before it counts: Kubernetes tries again by itself, and clusters grow (seconds)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What Kubernetes says."""

    pods: Sequence[Item] = ()
    claims: Sequence[Item] = ()
    events: Sequence[Item] = ()


def findings(seen: Seen, log: Callable[[str, bool], str] = lambda pod, previous: "") -> list[Finding]:
    """All troubles, first those that waiting does not fix, causes before what they lead to. `log(pod, previous)` gives a
    pod's last lines, or those of its container that ended last."""
    found = [
        *_claims(seen),
        *_refused(seen),
        *_scheduling(seen),
        *_nodes(seen),
        *_containers(seen, log),
        *_mounts(seen),
    ]
    return sorted({(one.part, one.what): one for one in found}.values(), key=lambda one: not one.fatal)


def condition(item: Item, kind: str) -> Item | None:
    """The object's condition of this kind, where it is true."""
    for one in item.get("status", {}).get("conditions", []):
        if one["type"] == kind and one["status"] == "True":
            return dict(one)
    return None


def finding_lines(found: Iterable[Finding]) -> list[str]:
    """A line for each trouble, with all the parts that have it."""
    parts: dict[tuple[str, str], list[str]] = {}
    for one in found:
        parts.setdefault((one.what, one.todo), []).append(one.part)
    return [f"{', '.join(names)}: {what} {todo}".rstrip() for (what, todo), names in parts.items()]


def owner_of(pod: Item) -> str:
    """The name of what has made it, like its StatefulSet; empty where nothing has."""
    owners = pod["metadata"].get("ownerReferences", [])
    return str(owners[0]["name"]) if owners else ""


def _made(item: Item) -> str:
    return str(item["metadata"].get("creationTimestamp", ""))


def _claims(seen: Seen) -> Iterable[Finding]:
    """Claims without a volume."""
    for claim in seen.claims:
        name = claim["metadata"]["name"]
        if claim.get("status", {}).get("phase") == "Lost":
            yield Finding(
                f"claim/{name}", "its volume is gone.", "Bring it back, or delete the claim: what was on it is lost."
            )
        if claim.get("status", {}).get("phase") != "Pending":
            continue
        for event in _events(seen, "PersistentVolumeClaim", name):
            if event["reason"] in ("ProvisioningFailed", "FailedBinding"):
                yield Finding(
                    f"claim/{name}",
                    f"no volume can be had: {_short(event['message'])}.",
                    "Set a storage class that the cluster has (kubectl get storageclass), and an access mode that it offers; "
                    "claims can't be changed: `make purge` deletes those of a run, with DATA=yes that of the input data too.",
                )


def _refused(seen: Seen) -> Iterable[Finding]:
    """Pods that the cluster does not even make."""
    for event in seen.events:
        if event["reason"] != "FailedCreate":
            continue
        owner = event["involvedObject"]
        if any(owner_of(pod) == owner["name"] and _made(pod) > str(event.get("lastTimestamp")) for pod in seen.pods):
            continue  # it could be made since
        # without the pod's name, so that all pods that are refused alike are one trouble
        part = f"{owner['kind'].lower()}/{owner['name']}"
        message = _short(event["message"].rpartition(" is forbidden: ")[2])
        if "violates PodSecurity" in message:
            yield Finding(
                part,
                f"the namespace's Pod Security refuses its pods: {message}.",
                "Correct the patches of the profile or overlay.",
            )
        elif found := re.search(r"exceeded quota: ([^,\s]+)(?:.*(limited: .*))?", message):
            yield Finding(
                part,
                f"the namespace's quota {found[1]} is spent{f' ({found[2]})' if found[2] else ''}.",
                "Ask for less, or for a larger quota; what is used: kubectl describe quota"
                f"{_option(owner.get('namespace', ''))}.",
            )
        elif found := re.search(r"no PriorityClass with name (\S+)", message):
            todo = (
                "The cluster's administrator makes it (docs/run/kubernetes-overlays.md#workers-go-first); otherwise take "
                "priority_class out of the profile, or the class out of the overlay."
            )
            yield Finding(part, f"the cluster has no PriorityClass {found[1]}.", todo)
        else:
            yield Finding(part, f"its pods can't be made: {message}.", "See: kubectl describe.", fatal=False)


def _scheduling(seen: Seen) -> Iterable[Finding]:
    """Pods that no node takes."""
    for pod in seen.pods:
        for scheduled in pod.get("status", {}).get("conditions", []):
            if scheduled["type"] != "PodScheduled" or scheduled["status"] == "True":
                continue
            message = scheduled.get("message", "")
            if scheduled.get("reason") != "Unschedulable":
                continue
            if "persistentvolumeclaim" in message and "not found" not in message:
                todo = "Its claim has no volume yet: see the claim."
            elif "not found" in message:
                todo = "Deploy the whole run; where it is paceline-data: `make put-data DATA=...` first."
            elif any(words in message for words in _ELSEWHERE):
                todo = (
                    "Its volume belongs to one node, which is away, full, or takes no pods: bring that node back, or make room "
                    "there. If the node is gone for good, so is what was on the volume: make teardown purge, then deploy again."
                )
            else:
                todo = _no_room(message)
            grows = any(event["reason"] in GROWS for event in _events(seen, "Pod", pod["metadata"]["name"]))
            yield Finding(_of(pod), f"no node takes it: {_short(message)}.", todo, not grows, lasting=90.0)


def _no_room(message: str) -> str:
    """What to do, by each reason for which nodes don't take a pod; what the scheduler could evict to make room is left out."""
    reasons = message.partition(" preemption: ")[0]
    found = [
        f"Nodes with the taint {taint} take only pods that tolerate it: "
        + ("add the component gpu (workers), or " if taint.startswith("nvidia.com/gpu") else "add ")
        + "a toleration in the profile or overlay, or remove the taint: kubectl taint node NODE TAINT-."
        for taint in re.findall(r"untolerated taint\(?s?\)? ?\{([^}:]+)", reasons)
    ]
    if "were unschedulable" in reasons:
        found.append("A cordoned node takes no new pods: kubectl uncordon NODE.")
    if "node affinity/selector" in reasons:
        found.append("No node has the labels that nodeSelector or affinity ask for: kubectl get nodes --show-labels.")
    if "Insufficient nvidia.com/gpu" in reasons:
        found.append(
            "No node has a GPU left: add one, lower the number of workers, or leave the component gpu out. If nodes have free "
            "GPUs, do they offer nvidia.com/gpu (kubectl describe node)?"
        )
    if not found or re.search(r"Insufficient (?!nvidia\.com/gpu)", reasons):
        found.append("No node has room: lower requests or the number of workers, or add a node.")
    return " ".join(found)


def _nodes(seen: Seen) -> Iterable[Finding]:
    """Pods of nodes that are silent: Kubernetes calls such a pod not ready, though its containers were when last heard of."""
    for pod in seen.pods:
        states = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", [])}
        if (states.get("Ready"), states.get("ContainersReady")) == ("False", "True"):
            node = pod["spec"].get("nodeName", "")
            yield Finding(
                _of(pod),
                f"its node {node} does not answer, and it may still run there.",
                f"Bring the node back. If it is off for good: kubectl delete node {node}; Kubernetes then makes the pod again.",
                fatal=False,
                exit_code=ServersGone.exit_code,
            )


def _containers(seen: Seen, log: Callable[[str, bool], str]) -> Iterable[Finding]:
    """Containers that don't start, or end."""
    for pod in seen.pods:
        status = pod.get("status", {})
        if status.get("reason") == "Evicted":
            yield Finding(
                _of(pod), f"the node evicted it: {_short(status.get('message', ''))}.", "It is made again.", False
            )
        for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
            waiting = container.get("state", {}).get("waiting", {})
            reason, message = waiting.get("reason", ""), _short(waiting.get("message", ""))
            if reason in _PULL:
                yield Finding(
                    _of(pod),
                    f"the image {container['image']} can't be had: {message or reason}.",
                    "Build it (make images) and push it where the cluster finds it, or set images: in kustomization.yaml.",
                )
            elif reason in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
                yield Finding(_of(pod), f"its container can't be made: {message}.", _lacks(message, pod))
            ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated")
            if ended and not (status.get("phase") == "Succeeded" or _is_well_again(container)):
                yield from _ended(pod, container, ended, log)


def _is_well_again(container: Item) -> bool:
    """Whether the container runs, and has for some time: what ended is over."""
    return bool(container.get("ready")) and "running" in container.get("state", {})


def _ended(pod: Item, container: Item, ended: Item, log: Callable[[str, bool], str]) -> Iterable[Finding]:
    code, times = ended.get("exitCode", 0), container.get("restartCount", 0)
    if ended.get("reason") == "OOMKilled":
        limit = _limit(pod, container["name"])
        yield Finding(
            _of(pod),
            f"it was killed for memory: its limit is {limit}.",
            "Raise its memory (paceline plan says what servers need), or lower batch_size.",
            fatal=times > 1,
            exit_code=ServersGone.exit_code,
        )
    elif code not in _STOPPED:
        name = pod["metadata"]["name"]
        lines = log(name, "running" in container.get("state", {}) or "waiting" in container.get("state", {}))
        cause = last_sentence(lines) or last_sentence(ended.get("message", "")) or f"see `kubectl logs {name}`"
        yield Finding(
            _of(pod),
            f"ended with exit code {code}: {re.sub(_NAME, '', cause)}",
            "",
            code in _FATAL_CODES or times > 4,
            code if code in _FATAL_CODES else PacelineError.exit_code,
        )


def _mounts(seen: Seen) -> Iterable[Finding]:
    """Pods that wait for what they mount."""
    stuck = {pod["metadata"]["name"]: pod for pod in seen.pods if pod.get("status", {}).get("phase") == "Pending"}
    for event in seen.events:
        name = event["involvedObject"]["name"]
        if event["reason"] in ("FailedMount", "FailedAttachVolume") and name in stuck:
            message = _short(event["message"])
            what, is_elsewhere = f"a volume can't be mounted: {message}.", "Multi-Attach" in message
            yield Finding(
                _of(stuck[name]),
                what,
                _lacks(message, stuck[name]),
                "not found" in message or is_elsewhere,
                lasting=90.0 if is_elsewhere else 30.0,
            )


def _option(namespace: str) -> str:
    """What makes a command of kubectl go there."""
    return f" -n {namespace}" if namespace else ""


def _lacks(message: str, pod: Item) -> str:
    if found := re.search(r"[a-z0-9-]*paceline-token", message):
        return (
            "The run's token is missing: `make deploy` makes it, or: kubectl create secret generic"
            f"{_option(pod['metadata'].get('namespace', ''))} {found[0]} --from-file=token."
        )
    if "paceline-tls" in message:
        return "The run's certificate is missing: `make deploy` makes it, or see docs/run/kubernetes-security.md under TLS."
    if "Multi-Attach" in message:
        return (
            "Its volume is in use on another node: set shared_storage in the profile, or use the component data-server."
        )
    if "configmap" in message.lower():
        return "Apply all manifests of the run, not single files."
    return "See: kubectl describe pod."


def last_sentence(lines: str) -> str:
    """The sentence with which a process of Paceline ends, otherwise its last line; below that a script's traceback."""
    told = [line for line in lines.splitlines() if line.strip()]
    for line in reversed(told):
        if re.match(r"[a-z][a-z0-9-]*: [A-Z]\w+: ", line):
            return line
    return f"{printable(told[-1])}{_trace(told)}" if told else ""


def _trace(lines: Sequence[str]) -> str:
    """The last traceback, indented; '' where the last line belongs to none. `lines`: not empty."""
    begins = [number for number, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    own = [line for line in lines[begins[-1] :] if not line.startswith("{")] if begins else []
    return "".join(f"\n    {printable(line)}" for line in own if own[-1] == lines[-1])


def _limit(pod: Item, name: str) -> str:
    for container in pod["spec"]["containers"]:
        if container["name"] == name:
            return str(container.get("resources", {}).get("limits", {}).get("memory", "the node's memory"))
    return "unknown"


def _events(seen: Seen, kind: str, name: str) -> list[Item]:
    return [e for e in seen.events if (e["involvedObject"]["kind"], e["involvedObject"]["name"]) == (kind, name)]


def _of(pod: Item) -> str:
    return f"pod/{pod['metadata']['name']}"


def _short(message: str, most: int = 400) -> str:
    """One line, no control characters."""
    line = " ".join(message.split())
    line = "".join(letter for letter in line if letter.isprintable())
    return (line if len(line) <= most else line[:most] + " ...").rstrip(".")
