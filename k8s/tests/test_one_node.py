"""Claims that keep pods of several nodes waiting are named before the pods are made."""

import shutil
from typing import Any

import pytest

from paceline_k8s.kubectl import COMPONENT, Kubectl
from paceline_k8s.one_node import one_node_claims
from paceline_k8s.overlay import OVERLAYS, read_overlay

TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}


def node(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def claim(name: str, *modes: str) -> dict[str, Any]:
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {"accessModes": list(modes)}}


def job(part: str, claim: str, pods: int = 1) -> dict[str, Any]:
    volumes = [{"name": "x", "persistentVolumeClaim": {"claimName": claim}}, {"name": "y", "emptyDir": {}}]
    spec = {"completions": pods, "template": {"spec": {"volumes": volumes}}}
    return {"kind": "Job", "metadata": {"name": f"run-{part}", "labels": {COMPONENT: part}}, "spec": spec}


SHARDS = claim("run-shards", "ReadWriteOnce")
NODES = [node("a"), node("b"), node("cordoned", unschedulable=True), node("of-gpus", taints=[TAINT])]


def test_a_claim_that_one_node_can_mount_is_named_with_its_parts_and_what_to_do() -> None:
    overlay = [SHARDS, job("sharder", "run-shards"), job("worker", "run-shards", 4)]
    (said,) = one_node_claims(overlay, [], NODES)
    assert said.startswith(
        "claim run-shards is ReadWriteOnce: one node at a time can mount it, and 2 nodes take pods of"
    )
    assert "sharder, 4 x worker" in said
    assert "the component shared-volume or data-server" in said


@pytest.mark.parametrize(
    ("overlay", "claims", "nodes"),
    [
        ([SHARDS, job("worker", "run-shards", 4)], [], [NODES[0], *NODES[2:]]),
        ([SHARDS, job("evaluator", "run-shards")], [], NODES),
        ([claim("run-shards", "ReadWriteMany"), job("worker", "run-shards", 4)], [], NODES),
        ([SHARDS, job("worker", "run-shards", 4)], [claim("run-shards", "ReadWriteMany")], NODES),
        ([job("worker", "of-another", 4)], [], NODES),
    ],
    ids=["one node", "one pod", "many nodes may", "the cluster's claim counts", "unknown claim"],
)
def test_nothing_is_said_where_no_pod_can_wait(overlay: list[Any], claims: list[Any], nodes: list[Any]) -> None:
    assert not list(one_node_claims(overlay, claims, nodes))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here to render with")
@pytest.mark.parametrize(("name", "is_named"), [("demo", True), ("cifar10-shat", False)])
def test_of_the_overlays_only_those_without_a_shared_volume_are_warned_of(name: str, is_named: bool) -> None:
    overlay = read_overlay(Kubectl("here"), str(OVERLAYS / name))
    assert bool(list(one_node_claims(overlay.documents, [], NODES))) == is_named
