"""Runs that wait in a queue of Kueue, or were suspended, and namespaces that hang: what is said of them."""

import copy
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from paceline.core.errors import ConfigError, UsageError
from paceline_k8s import deploy as deploying
from paceline_k8s import live_changes
from paceline_k8s.cluster_status import RESULT, look
from paceline_k8s.deploy import Lasting, Trouble, wait_until
from paceline_k8s.follow import doctor, show
from paceline_k8s.kubectl import NotThere
from paceline_k8s.overlay import Overlay, config_of
from paceline_k8s.queue import GATE, check_queue
from tests.support.kubectl import Cluster
from tests.support.own_time import own_time

LABELS = {"kueue.x-k8s.io/queue-name": "team-a", "kueue.x-k8s.io/pod-group-name": "demo-paceline-run"}
QUEUE, WORKLOAD = "localqueue.kueue.x-k8s.io/team-a", "workload.kueue.x-k8s.io/demo-paceline-run"
NO_KUEUE = ConfigError('error: the server doesn\'t have a resource type "localqueue"')
TOLD = (
    "couldn't assign flavors to pod set 8032da5b: insufficient unused quota for cpu in flavor default, 100m more needed; "
    "couldn't assign flavors to pod set 8ce7b85c: insufficient unused quota for cpu in flavor default, 600m more needed"
)
"""As Kueue 0.17.0 said."""
FULL = {"type": "QuotaReserved", "status": "False", "message": TOLD}


SETTINGS = {"name": "config", "configMap": {"name": "demo-paceline-config"}}


def maker(kind: str, component: str, pods: int, told: int = 4, name: str = "") -> dict[str, Any]:
    """A StatefulSet or Job whose pods wait; `told`: as the component kueue counts them."""
    count = {"replicas": pods} if kind == "StatefulSet" else {"parallelism": pods, "completions": pods}
    about = {"labels": LABELS, "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(told)}}
    return {
        "kind": kind,
        "metadata": {
            "name": name or f"demo-paceline-{component}",
            "labels": {"app.kubernetes.io/component": component},
        },
        "spec": {**count, "template": {"metadata": about, "spec": {"volumes": [SETTINGS], "containers": [{}]}}},
    }


def pod(component: str, number: int = 0, is_gated: bool = True, phase: str = "Pending") -> dict[str, Any]:
    labels = {**LABELS, "app.kubernetes.io/component": component}
    gates = [{"name": GATE}] if is_gated else []
    return {
        "kind": "Pod",
        "metadata": {"name": f"demo-paceline-{component}-{number}", "labels": labels},
        "spec": {"containers": [], "schedulingGates": gates},
        "status": {"phase": phase},
    }


SERVERS, WORKERS = maker("StatefulSet", "server", 2), maker("Job", "worker", 2)
ALL_WAIT = [SERVERS, WORKERS, *(pod(part, number) for part in ("server", "worker") for number in (0, 1))]
TRAINS = [
    maker("StatefulSet", "server", 2) | {"status": {"readyReplicas": 2, "updatedReplicas": 2}},
    maker("Job", "worker", 2) | {"status": {"ready": 1}},
    *(pod("server", number, is_gated=False, phase="Running") for number in (0, 1)),
    pod("worker", 0, is_gated=False, phase="Running"),
    pod("worker", 1),  # made again, a second ago
]


class Queued(Cluster):
    """With these parts of Kueue; the error comes of any other."""

    def __init__(
        self, items: list[dict[str, Any]], kueue: dict[str, dict[str, Any]], lacks: Exception | None = None
    ) -> None:
        super().__init__(*items)
        self.there |= kueue
        self._lacks = lacks

    def get(self, *what: str) -> dict[str, Any]:
        if self._lacks is not None and "kueue" in what[0] and what[0] not in self.there:
            raise self._lacks
        return super().get(*what)


@pytest.mark.parametrize(
    ("kueue", "lacks", "told"),
    [
        ({}, None, r"queue/team-a: namespace here has no such queue of Kueue\. Set name= in paceline-queue"),
        ({}, NO_KUEUE, r"this cluster has no Kueue.*Install Kueue, or take the component kueue out"),
        (
            {QUEUE: {"status": {"conditions": [{"type": "Active", "status": "False", "message": "no ClusterQueue"}]}}},
            None,
            r"it takes no runs: no ClusterQueue\. Ask the cluster's administrator",
        ),
    ],
    ids=["no such queue", "no Kueue", "a queue that takes nothing"],
)
def test_a_queue_that_would_never_let_the_run_begin_is_named_before_anything_starts(
    kueue: dict[str, dict[str, Any]], lacks: Exception | None, told: str
):
    cluster = Queued([], kueue, lacks)

    with pytest.raises(ConfigError, match=told):
        check_queue(cluster, [SERVERS, WORKERS])
    assert cluster.calls == []


def test_a_queue_that_is_there_or_may_not_be_seen_or_is_not_wanted_holds_up_nobody():
    check_queue(Queued([], {QUEUE: {"status": {}}}), [SERVERS, WORKERS])
    check_queue(Queued([], {}, ConfigError("localqueues is forbidden")), [SERVERS, WORKERS])
    plain = copy.deepcopy(SERVERS)
    del plain["spec"]["template"]["metadata"]["labels"]
    check_queue(Queued([], {}, NO_KUEUE), [plain])


def test_another_number_of_pods_than_kueue_is_told_is_refused_with_the_right_one():
    with pytest.raises(ConfigError, match=r"The run has 5 pods, and kustomization.yaml says pods=4.*: set pods=5"):
        check_queue(Queued([], {QUEUE: {}}), [SERVERS, maker("Job", "worker", 3)])


def test_status_and_doctor_say_that_a_run_waits_and_call_it_no_error():
    cluster = Queued(ALL_WAIT, {QUEUE: {}, WORKLOAD: {"status": {"conditions": [FULL]}}})
    lacks = "insufficient unused quota for cpu in flavor default, 600m more needed"
    told = f"waits in queue team-a, and begins by itself ({lacks})"
    said: list[str] = []
    shown = StringIO()

    assert doctor(cluster, said.append) == 0
    assert said[:2] == [f"server: 2 Pending; worker: 2 Pending; {told}", "Kubernetes sees no trouble."]
    assert [line.partition(":")[0] for line in said[2:]] == ["note"]
    assert show(cluster, Console(file=shown, width=300)) == 0  # asks no chief: there is none
    assert told in shown.getvalue()


def test_doctor_names_a_queue_that_is_gone_while_the_run_waits():
    said: list[str] = []

    assert doctor(Queued(ALL_WAIT, {}), said.append) == 78
    assert "queue/team-a: namespace here has no such queue" in said[1]


def test_a_pod_that_was_just_made_again_does_not_make_its_run_wait():
    assert look(Queued(TRAINS, {QUEUE: {}})).waits == ""
    assert "waits in queue" in look(Queued(ALL_WAIT, {QUEUE: {}})).line()


def test_pods_that_have_ended_say_nothing_of_a_run_that_waits():
    assert look(Queued([*ALL_WAIT, pod("sharder", is_gated=False, phase="Succeeded")], {QUEUE: {}})).queue


def test_a_suspended_job_is_named_with_the_way_to_resume_it():
    workers = copy.deepcopy(WORKERS)
    workers["spec"]["suspend"] = True
    cluster = Queued([SERVERS, workers], {})

    assert look(cluster).waits == (
        "job/demo-paceline-worker is suspended "
        """(kubectl patch job demo-paceline-worker --type=merge --patch='{"spec":{"suspend":false}}')"""
    )
    assert doctor(cluster, lambda text: None) == 0


def test_servers_for_which_nobody_works_are_a_trouble_unless_they_are_stopped():
    said: list[str] = []

    assert doctor(Queued([SERVERS], {}), said.append) == 78
    assert "the run has no Job of workers. To make it again: make deploy OVERLAY=... RUN=demo." in said[1]
    assert doctor(Queued([maker("StatefulSet", "server", 0)], {}), said.append) == 0


def test_what_lasts_is_so_for_the_whole_time():
    now = 0.0
    lasting = Lasting(15.0, lambda: now)

    assert not lasting.has(True)
    now = 10.0
    assert not lasting.has(False)
    now = 20.0
    assert not lasting.has(True)
    now = 35.0
    assert lasting.has(True)


def test_the_time_in_a_queue_does_not_count_against_the_longest_wait(monkeypatch: pytest.MonkeyPatch):
    now = 0.0

    class Later(Queued):
        def items(self, kinds: str, selector: str | None = None) -> list[dict[str, Any]]:
            return [] if kinds == "events" else ALL_WAIT if now < 5000 else TRAINS

    def sleep(seconds: float) -> None:
        nonlocal now
        now += 100.0

    own_time(monkeypatch, deploying, sleep=sleep)

    with pytest.raises(Trouble, match="did not all run within 600 s"):
        wait_until(lambda state: state.is_up, Later([], {QUEUE: {}}), lambda text: None, 600.0, lambda: now)
    assert 5600 <= now <= 5800


def test_no_more_workers_are_asked_for_than_kueue_has_counted():
    cluster = Queued([WORKERS], {})

    with pytest.raises(UsageError, match=r"--workers 3: the run is in a queue with 2 workers"):
        live_changes.scale(cluster, 3, lambda text: None)
    live_changes.scale(cluster, 1, lambda text: None)
    assert cluster.calls[-1][0] == "patch"


def test_the_quota_of_a_finished_runs_servers_is_freed_before_they_go():
    class Going(Queued):
        """A server is evicted while kubectl annotates the pods."""

        def run(self, *arguments: str, stdin: str | None = None, seconds: float = 120) -> str:
            super().run(*arguments)
            if arguments[:2] == ("annotate", "pods"):
                raise NotThere('Error from server (NotFound): pods "demo-paceline-server-0" not found')
            return ""

    cluster = Going([SERVERS], {})

    deploying.stop_servers(cluster, "test accuracy 0.9")

    freed = (
        "annotate",
        "pods",
        f"--selector={cluster.selector}",
        "--overwrite",
        "kueue.x-k8s.io/retriable-in-group=false",
    )
    assert [call for call in cluster.calls if call == freed or call[0] == "scale"] == [
        freed,
        ("scale", cluster.servers, "--replicas=0"),
    ]


def test_a_finished_run_waits_anew_when_it_is_deployed_again(monkeypatch: pytest.MonkeyPatch):
    config = {
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"run.yaml": "run: demo\ntask: digits\nworkers: 2\n"},
    }
    stopped = maker("StatefulSet", "server", 0)
    stopped["metadata"]["annotations"] = {RESULT: "test accuracy 0.9"}
    stopped["spec"]["template"]["spec"]["volumes"] = [{"name": "config", "configMap": {"name": "c"}}]
    over = {"status": {"conditions": [{"type": "Finished", "status": "True"}]}}

    class Stopped(Queued):
        def items(self, kinds: str, selector: str | None = None) -> list[dict[str, Any]]:
            asked = {"jobs": ["Job"], "events": [], "persistentvolumeclaims": []}.get(kinds)
            there = ALL_WAIT if ("apply", "--filename=-") in self.calls else [stopped, WORKERS]
            return [one for one in there if asked is None or one["kind"] in asked]

    cluster = Stopped([stopped, WORKERS], {QUEUE: {}, WORKLOAD: over})
    documents = [config, copy.deepcopy(SERVERS), copy.deepcopy(WORKERS)]
    monkeypatch.setattr(deploying, "read_overlay", lambda *told: Overlay(documents, config_of([config], "here")))
    monkeypatch.setattr(deploying, "IN_QUEUE", 0.0)
    said: list[str] = []

    deploying.deploy(cluster, "x", said.append)

    changes = [call[:2] for call in cluster.calls if call[0] in ("delete", "apply") and "--dry-run=server" not in call]
    assert changes == [("delete", "job/demo-paceline-worker"), ("delete", WORKLOAD), ("apply", "--filename=-")]
    assert any("waits in queue team-a" in line for line in said)


def test_a_namespace_that_waits_for_pods_that_have_ended_is_named_with_what_lets_them_go():
    ended = pod("worker", is_gated=False, phase="Failed")
    ended["metadata"] |= {
        "deletionTimestamp": "2026-11-26T18:00:38Z",
        "finalizers": ["batch.kubernetes.io/job-tracking"],
    }
    going = {"metadata": {"name": "here", "deletionTimestamp": "2026-11-26T18:00:30Z"}}
    seen = [look(Queued([ended], {"namespace/here": each})).troubles for each in (going, {"metadata": {}})]

    assert [str(one.part) for one in seen[0]] == ["namespace/here"]
    assert seen[0][0].todo == "Let them go: kubectl -n here delete jobs --all"
    assert seen[1] == []
