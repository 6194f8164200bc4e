"""What Kubernetes says of a run's StatefulSets and pods, and its chief of the run, as values that `wanted` decides by."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from paceline.core.chief.best_model import result
from paceline.core.errors import ConfigError, Diverged
from paceline.core.registry import explain
from paceline.core.settings.config import Config
from paceline.launch.status.chief_status import scores
from paceline.rpc.enums import phase_of
from paceline.settings.load_settings import settings_above
from paceline.v1.run_service_pb2 import StatusReply
from paceline_k8s.findings import condition, last_sentence
from paceline_k8s.kubectl import COMPONENT, settings_of
from paceline_k8s.queue import queue_of
from paceline_k8s.wanted import PARTS, SERVER, WORKER, WORKERS, Chief, Ended, Part, Pod, Seen, Sizes, count_of

Item = dict[str, Any]
PODS = "paceline.dev/workers"
"""The annotation of the workers' StatefulSet by which a run has fewer of them in the cluster than seats."""

DEADLINE = "paceline.dev/deadline"
"""The annotation of the sharder's pods that says how long they may take (seconds)."""


def seen_of(
    statefulsets: Mapping[str, Item],
    pods: Sequence[Item],
    settings: str,
    sizes: Sizes,
    state: Mapping[str, str],
    chief: Chief | None,
    now: float,
) -> Seen:
    """One observation. `statefulsets`: by part; `state`: the data of the run's ConfigMap; `now`: seconds since 1970."""
    return Seen(
        parts={name: part_of(statefulsets[name], pods, now) for name in PARTS if name in statefulsets},
        settings=settings,
        sizes=sizes,
        chief=chief,
        workers=count_of(state.get(WORKERS)) or pods_of(statefulsets.get(WORKER)),
        in_queue=SERVER in statefulsets and bool(queue_of(statefulsets[SERVER])),
    )


def deadline_text(statefulset: Item) -> str:
    """How long its pods may take, as its manifest says it; '': it does not."""
    about = statefulset["spec"].get("template", {}).get("metadata", {})
    return str(about.get("annotations", {}).get(DEADLINE, ""))


def pods_of(workers: Item | None) -> int | None:
    """The number of workers that their manifest names; None where it names none."""
    return count_of((workers or {}).get("metadata", {}).get("annotations", {}).get(PODS))


def pods_in(manifests: Sequence[Item], config: Config) -> int:
    """Returns how many pods there are while the run trains, with its sharder and without its controller."""
    makers = {one["metadata"]["labels"][COMPONENT]: one for one in manifests if one["kind"] == "StatefulSet"}
    counts = {"server": config.server_processes, "worker": pods_of(makers.get("worker")) or config.workers}
    return sum(counts.get(component, 1) for component in makers)


def sizes_in(text: str) -> Sizes:
    """What run.yaml says, by its text alone: no policy or task of the user's own that it names is read, since nothing that is
    in the cluster is run here. ConfigError where this release can't read it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.yaml"
        path.write_text(text)
        found = settings_above(None, path)
    known = {key: found[key] for key in ("servers", "workers", "epochs") if key in found}
    data = found.get("data")
    source = {"source": data["source"]} if isinstance(data, Mapping) and "source" in data else {}
    try:
        config = Config.model_validate({**known, "data": source})
    except ValidationError as error:
        raise ConfigError(f"Can't read run.yaml: {'; '.join(explain(error, Config))}") from error
    return Sizes(
        servers=config.server_processes,
        workers=config.workers,
        epochs=config.epochs,
        is_script=config.is_script,
        streams=config.data.source == "server",
    )


def chief_of(status: StatusReply | None) -> Chief | None:
    """What the chief says; None where it has not answered."""
    if status is None:
        return None
    code = Diverged.exit_code if status.gave_up else 0
    return Chief(phase_of(status) == "finished", result_of(status), status.reason, status.version, code)


def part_of(statefulset: Item, pods: Iterable[Item], now: float) -> Part:
    """The StatefulSet with those of these pods that are its own. `now`: seconds since 1970."""
    status, about = statefulset.get("status", {}), statefulset["metadata"]
    is_seen = status.get("observedGeneration", 0) >= about.get("generation", 0)
    own = [pod for pod in pods if pod["metadata"]["labels"].get(COMPONENT) == about["labels"][COMPONENT]]
    return Part(
        replicas=statefulset["spec"].get("replicas", 1),
        template=str(status.get("updateRevision", "")) if is_seen else "",
        settings=settings_of(statefulset),
        pods=tuple(_pod(pod, now) for pod in own),
        deadline=count_of(deadline_text(statefulset)) or math.inf,
    )


def _pod(pod: Item, now: float) -> Pod:
    about, status = pod["metadata"], pod.get("status", {})
    ready = condition(pod, "Ready") if "deletionTimestamp" not in about else None
    main = status.get("containerStatuses", [])
    before = [end for one in status.get("initContainerStatuses", []) for end in _ends(one) if end.code]
    ends = [*before, *(end for one in main for end in _ends(one))]
    return Pod(
        template=str(about["labels"].get("controller-revision-hash", "")),
        ready_since=_time(ready["lastTransitionTime"]) if ready else math.inf,
        starts=max((one.get("restartCount", 0) for one in main), default=0),
        ended=max(ends, key=lambda end: end.at, default=None),
        homeless=_homeless(status, now),
        age=max(0.0, now - _time(status["startTime"])) if "startTime" in status else 0.0,
    )


def _ends(container: Item) -> Iterator[Ended]:
    for state in (container.get("lastState", {}), container.get("state", {})):
        if end := state.get("terminated"):
            yield Ended(end["exitCode"], _time(end["finishedAt"]), last_sentence(end.get("message", "")))


def _homeless(status: Item, now: float) -> float:
    """How long no node has had room for the pod (seconds)."""
    for one in status.get("conditions", []):
        if (one["type"], one["status"], one.get("reason")) == ("PodScheduled", "False", "Unschedulable"):
            return max(0.0, now - _time(one["lastTransitionTime"]))
    return 0.0


def _time(text: str | None) -> float:
    """Seconds since 1970; 0 where Kubernetes does not know."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def result_of(status: StatusReply) -> str:
    """'test accuracy 0.9667' of a finished run, or that it was not scored; empty before."""
    if phase_of(status) != "finished":
        return ""
    found = scores(status)
    return result(found[-1].metrics, found[-1].measure) if found and found[-1].final else result({})
