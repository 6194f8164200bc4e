"""The controller of a run on Kubernetes: what it reads of the cluster, and in which order it writes."""

import json
import math
from typing import Any

import pytest

from paceline.core.errors import ConfigError, TryAgain
from paceline.v1.run_service_pb2 import StatusReply
from paceline_k8s.controller import Controller, patient
from paceline_k8s.kubectl import NotThere
from paceline_k8s.observation import DEADLINE, PODS, chief_of, part_of, sizes_in
from paceline_k8s.pod_api import PodApi
from paceline_k8s.wanted import Chief, Ended, Memory, Pod, Result, Sizes
from tests.support.kubectl import SETTINGS, statefulset

AT, LATER = "2026-11-30T06:00:00Z", "2026-11-30T06:01:00Z"
SECONDS = 1796018400.0
"""The first of these."""
SIZES = Sizes(servers=2, workers=2, epochs=20)
END = json.dumps(
    {"result": {"epochs": 20, "sentence": "test accuracy 0.9"}, "failed": {}, "sharded": "", "is_open": False}
)


def pod(component: str = "worker", name: str = "demo-paceline-worker-0", **status: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": component, "controller-revision-hash": "a"}
    volumes = [{"name": "config", "configMap": {"name": SETTINGS}}]
    return {"metadata": {"name": name, "labels": labels}, "spec": {"volumes": volumes}, "status": status}


def ready(since: str = AT) -> list[dict[str, Any]]:
    return [{"type": "Ready", "status": "True", "lastTransitionTime": since}]


class Api(PodApi):
    """The objects of one run, and what was changed of them."""

    def __init__(self) -> None:
        self.there: dict[str, dict[str, Any]] = {
            "configmaps/demo-paceline-state": {"data": None},
            "statefulsets/demo-paceline-server": statefulset("server", 2),
            "statefulsets/demo-paceline-worker": statefulset("worker", 1),
            "statefulsets/demo-paceline-evaluator": statefulset("evaluator", 1),
        }
        servers = [pod("server", f"demo-paceline-server-{index}", conditions=ready()) for index in range(2)]
        self.pods = [*servers, pod("controller", "me")]
        self.changes: list[str] = []

    def get(self, group: str, path: str) -> dict[str, Any]:
        kind, is_list, labels = path.partition("?labelSelector=")
        if is_list:
            assert labels == "app.kubernetes.io/part-of=paceline,app.kubernetes.io/instance=demo"
            parts = [each for path, each in self.there.items() if path.startswith("statefulsets/")]
            return {"items": self.pods if kind == "pods" else parts}
        if path not in self.there:
            raise NotThere(path)
        return self.there[path]

    def patch(self, group: str, path: str, change: Any) -> dict[str, Any]:
        self.changes.append(path)
        path, _, is_scale = path.partition("/scale")[0], None, path.endswith("/scale")
        if is_scale:
            self.there[path]["spec"]["replicas"] = change["spec"]["replicas"]
        else:
            self.there[path] = change
        return change

    @property
    def counts(self) -> list[int]:
        return [each["spec"]["replicas"] for path, each in self.there.items() if path.startswith("statefulsets/")]


def controller(api: Api, status: StatusReply | None = None) -> Controller:
    return Controller(api, "demo", "me", SIZES, lambda: status)


def test_counts_follow_and_what_stays_as_it_is_is_not_written_again():
    api = Api()

    said = controller(api).step(SECONDS)
    written = list(api.changes)

    assert said == api.there["configmaps/demo-paceline-state"]["data"]["says"] == "The run trains, with 2 workers."
    assert api.counts == [2, 2, 1]
    assert written == ["configmaps/demo-paceline-state", "statefulsets/demo-paceline-worker/scale"]
    assert controller(api).step(SECONDS) == said
    assert api.changes == written


def test_the_end_is_remembered_before_the_servers_go():
    api = Api()

    controller(api, StatusReply(phase="RUN_PHASE_FINISHED")).step(SECONDS)

    assert api.changes[0] == "configmaps/demo-paceline-state"
    assert api.counts == [0, 0, 0]
    kept = Memory.of(api.there["configmaps/demo-paceline-state"]["data"]["state"])
    assert kept.result == Result(20, "test score unknown: the run was not scored")


def test_another_controller_of_a_finished_run_wakes_nothing():
    api = Api()
    api.there["configmaps/demo-paceline-state"] = {"data": {"state": END}}

    controller(api).step(SECONDS)

    assert api.counts == [0, 0, 0]


def test_the_number_that_a_person_wrote_down_counts():
    api = Api()
    api.there["configmaps/demo-paceline-state"] = {"data": {"workers": "5"}}

    controller(api).step(SECONDS)

    assert api.counts == [2, 5, 1]


@pytest.mark.parametrize(("noted", "workers"), [({}, 1), ({"workers": "5"}, 5)])
def test_with_seats_for_others_the_manifest_names_fewer_workers_unless_a_person_wrote_a_number_down(
    noted: dict[str, str], workers: int
):
    api = Api()
    api.there["statefulsets/demo-paceline-worker"]["metadata"]["annotations"] = {PODS: "1"}
    api.there["configmaps/demo-paceline-state"] = {"data": noted}

    controller(api).step(SECONDS)

    assert api.counts == [2, workers, 1]


def test_a_part_that_does_not_exist_is_left_alone():
    api = Api()
    del api.there["statefulsets/demo-paceline-worker"]

    assert "no StatefulSet of the worker" in controller(api).step(SECONDS)
    assert api.counts == [2, 1]


def test_without_its_memory_or_itself_it_changes_nothing():
    api, alone = Api(), Api()
    del api.there["configmaps/demo-paceline-state"]
    alone.pods = []

    with pytest.raises(NotThere):
        controller(api).step(SECONDS)
    with pytest.raises(TryAgain, match="does not list this pod, me"):
        controller(alone).step(SECONDS)
    assert api.changes == alone.changes == []


def test_a_chief_that_refuses_is_no_answer_and_is_told_once():
    class Refusing:
        def status(self) -> None:
            raise ConfigError("The token is of another run.")

    said: list[str] = []
    ask = patient(Refusing(), said.append)  # type: ignore[arg-type]

    assert (ask(), ask()) == (None, None)
    assert said == ["The token is of another run."]


def end(code: int, at: str, message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "finishedAt": at, "message": message}}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, Pod("a")),
        ({"conditions": ready()}, Pod("a", ready_since=SECONDS)),
        (
            {
                "containerStatuses": [
                    {"restartCount": 3, "lastState": end(78, AT, "noise\nworker-0: ConfigError: No GPU.")}
                ]
            },
            Pod("a", starts=3, ended=Ended(78, SECONDS, "worker-0: ConfigError: No GPU.")),
        ),
        (
            {"containerStatuses": [{"lastState": end(1, AT), "state": end(0, LATER)}]},
            Pod("a", ended=Ended(0, SECONDS + 60)),
        ),
        ({"initContainerStatuses": [{"state": end(0, AT)}]}, Pod("a")),
        ({"initContainerStatuses": [{"state": end(78, AT)}]}, Pod("a", ended=Ended(78, SECONDS))),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": AT}
                ]
            },
            Pod("a", homeless=90.0),
        ),
        ({"startTime": AT}, Pod("a", age=90.0)),
    ],
)
def test_a_pod_is_read_from_what_kubernetes_says_of_it(status: dict[str, Any], expected: Pod):
    found = part_of(statefulset("worker", 2), [pod(**status), pod("server")], SECONDS + 90)

    assert found.pods == (expected,)
    assert (found.replicas, found.template, found.settings) == (2, "a", SETTINGS)


def test_a_sharder_has_the_deadline_that_its_manifest_names():
    sharder = statefulset("worker", 1)
    sharder["spec"]["template"]["metadata"] = {"annotations": {DEADLINE: "3600"}}

    assert part_of(sharder, [], SECONDS).deadline == 3600.0
    assert part_of(statefulset("worker", 1), [], SECONDS).deadline == math.inf


def test_a_pod_that_leaves_is_not_ready_and_a_template_that_nobody_has_seen_has_no_revision():
    leaving = pod(conditions=ready())
    leaving["metadata"]["deletionTimestamp"] = AT

    found = part_of(statefulset("worker", 2, observedGeneration=0), [leaving], SECONDS)

    assert math.isinf(found.pods[0].ready_since)
    assert found.template == ""


def test_the_settings_and_the_chief_are_read():
    finished = StatusReply(phase="RUN_PHASE_FINISHED", reason="stopped", version=7, gave_up=True)

    assert chief_of(None) is None
    assert chief_of(finished) == Chief(True, "test score unknown: the run was not scored", "stopped", 7, 76)
    assert chief_of(StatusReply(phase="RUN_PHASE_TRAINING")) == Chief(False)
    assert sizes_in("workers: 3\nservers: 0\nepochs: 4\ndata: {source: server}\n") == Sizes(1, 3, 4, streams=True)


def test_sizes_are_read_without_the_files_of_ones_own_that_the_settings_name():
    text = "task: /etc/paceline/mine.py\npolicy: {name: own.py, bound: 3}\nworkers: 3\nservers: 2\nepochs: 4\n"

    assert sizes_in(text) == Sizes(2, 3, 4)
    with pytest.raises(ConfigError, match="workers: got 'many'"):
        sizes_in("workers: many\n")
