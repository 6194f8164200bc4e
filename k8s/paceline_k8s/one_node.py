"""Claims that one node at a time can mount, found before pods of other nodes wait for them."""

from collections.abc import Iterable, Iterator
from typing import Any

from paceline_k8s.kubectl import COMPONENT, pod_spec
from paceline_k8s.wanted import WORKER

Item = dict[str, Any]
_ONE_NODE = {"ReadWriteOnce", "ReadWriteOncePod"}


def one_node_claims(documents: Iterable[Item], claims: Iterable[Item], nodes: Iterable[Item]) -> Iterator[str]:
    """A sentence for each claim that several parts of a run mount, where that may keep their pods from starting.
    `documents`: the overlay; `claims`, `nodes`: what the cluster has."""
    documents = list(documents)
    places = [node["metadata"]["name"] for node in nodes if _takes_pods(node)]
    if len(places) < 2:
        return
    made = [one for one in documents if one["kind"] == "PersistentVolumeClaim"]
    modes = {one["metadata"]["name"]: set(one["spec"]["accessModes"]) for one in [*made, *claims]}
    for claim, parts in _mounted(documents).items():
        if (len(parts) > 1 or WORKER in parts) and modes.get(claim, set()) and modes[claim] <= _ONE_NODE:
            yield (
                f"claim {claim} is {', '.join(sorted(modes[claim]))}: one node at a time can mount it, and {len(places)} nodes "
                f"take pods of {', '.join(parts)}. Those of another node stay Pending, unless the storage class keeps all of "
                "them on the volume's node. If they wait, set shared_storage in the profile, or use the component data-server."
            )


def _mounted(documents: Iterable[Item]) -> dict[str, list[str]]:
    """By claim, the parts that mount it."""
    found: dict[str, list[str]] = {}
    for one in documents:
        for volume in pod_spec(one).get("volumes", []):
            if claim := volume.get("persistentVolumeClaim", {}).get("claimName"):
                part = one["metadata"].get("labels", {}).get(COMPONENT, one["metadata"]["name"])
                found.setdefault(claim, []).append(part)
    return found


def _takes_pods(node: Item) -> bool:
    taints = node["spec"].get("taints", [])
    return not node["spec"].get("unschedulable") and all(taint["effect"] == "PreferNoSchedule" for taint in taints)
