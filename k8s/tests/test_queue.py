"""Runs that wait in a queue of Kueue: what is said of them, and when the queue is free again."""

import copy
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from paceline.core.errors import ConfigError, UsageError
from paceline_k8s import deploy as deploying
from paceline_k8s import follow as following
from paceline_k8s import live_changes
from paceline_k8s.cluster_status import look
from paceline_k8s.deploy import Lasting, Trouble, wait_until
from paceline_k8s.follow import doctor, show
from paceline_k8s.kubectl import NotThere
from paceline_k8s.overlay import Overlay, config_of
from paceline_k8s.queue import GATE, check_queue
from paceline_k8s.wanted import Memory, Result
from tests.support.kubectl import Cluster, settings_map, state_map, statefulset
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


def waiting(component: str, count: int, told: int = 4, **status: Any) -> dict[str, Any]:
    """A part whose pods wait; `told`: how many pods of the run Kueue counts."""
    found = statefulset(component, count, **status)
    about = {"labels": LABELS, "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(told)}}
    found["spec"]["template"]["metadata"] = about
    return found


def pod(component: str, number: int = 0, is_gated: bool = True, phase: str = "Pending") -> dict[str, Any]:
    labels = {**LABELS, "app.kubernetes.io/component": component}
    gates = [{"name": GATE}] if is_gated else []
    return {
        "kind": "Pod",
        "metadata": {"name": f"demo-paceline-{component}-{number}", "labels": labels},
        "spec": {"containers": [], "schedulingGates": gates},
        "status": {"phase": phase},
    }


SERVERS, WORKERS = waiting("server", 2), waiting("worker", 2)
NOTED = [settings_map(), state_map(), waiting("evaluator", 1)]
ALL_WAIT = [SERVERS, WORKERS, *NOTED, *(pod(part, number) for part in ("server", "worker") for number in (0, 1))]
TRAINS = [
    waiting("server", 2, readyReplicas=2, updatedReplicas=2),
    waiting("worker", 2, readyReplicas=1),
    *NOTED,
    *(pod("server", number, is_gated=False, phase="Running") for number in (0, 1)),
    pod("worker", 0, is_gated=False, phase="Running"),
    pod("worker", 1),  # made again, a second ago
]
OVER = state_map(Memory(Result(20, "test accuracy 0.9")))


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
        check_queue(cluster, [SERVERS, WORKERS], 4)
    assert cluster.calls == []


def test_a_queue_that_is_there_or_may_not_be_seen_or_is_not_wanted_holds_up_nobody():
    check_queue(Queued([], {QUEUE: {"status": {}}}), [SERVERS, WORKERS], 4)
    check_queue(Queued([], {}, ConfigError("localqueues is forbidden")), [SERVERS, WORKERS], 4)
    check_queue(Queued([], {}, NO_KUEUE), [statefulset("server", 2)], 4)


def test_another_number_of_pods_than_kueue_is_told_is_refused_with_the_right_one():
    with pytest.raises(ConfigError, match=r"The run has 5 pods, and kustomization.yaml says pods=4.*: set pods=5"):
        check_queue(Queued([], {QUEUE: {}}), [SERVERS, WORKERS], 5)


def test_status_and_doctor_say_that_a_run_waits_and_call_it_no_error():
    cluster = Queued(ALL_WAIT, {QUEUE: {}, WORKLOAD: {"status": {"conditions": [FULL]}}})
    lacks = "insufficient unused quota for cpu in flavor default, 600m more needed"
    told = f"waits in queue team-a, and begins by itself ({lacks})"
    said: list[str] = []
    shown = StringIO()

    assert doctor(cluster, said.append) == 0
    assert said[:2] == [f"server: 2 Pending; worker: 2 Pending; {told}", "Kubernetes sees no trouble."]
    assert [line.partition(":")[0] for line in said[2:]] == ["note", "note"]
    assert show(cluster, Console(file=shown, width=300)) == 0  # asks no chief: there is none
    assert told in shown.getvalue()


def test_doctor_names_a_queue_that_is_gone_while_the_run_waits():
    said: list[str] = []

    assert doctor(Queued(ALL_WAIT, {}), said.append) == 78
    assert "queue/team-a: namespace here has no such queue" in said[1]


def test_a_run_waits_though_its_controller_runs_which_is_in_no_queue():
    controller = pod("controller", is_gated=False, phase="Running")
    controller["metadata"]["labels"] = {"app.kubernetes.io/component": "controller"}

    assert "waits in queue" in look(Queued([*ALL_WAIT, controller], {QUEUE: {}})).line()


def test_a_pod_that_was_just_made_again_does_not_make_its_run_wait():
    assert look(Queued(TRAINS, {QUEUE: {}})).queue == ""
    assert "waits in queue" in look(Queued(ALL_WAIT, {QUEUE: {}})).line()


def test_pods_that_have_ended_say_nothing_of_a_run_that_waits():
    assert look(Queued([*ALL_WAIT, pod("sharder", is_gated=False, phase="Succeeded")], {QUEUE: {}})).queue


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


def test_no_other_number_of_workers_is_asked_for_than_kueue_has_counted():
    cluster = Queued([WORKERS, *NOTED], {})

    with pytest.raises(UsageError, match=r"--workers 3: the run is in a queue, and Kueue has counted its pods"):
        live_changes.scale(cluster, 3, lambda text: None)
    assert cluster.calls == []


def test_the_quota_of_a_finished_run_is_freed_though_its_pods_go_meanwhile(monkeypatch: pytest.MonkeyPatch):
    class Going(Queued):
        """A pod goes while kubectl annotates them."""

        def run(self, *arguments: str, stdin: str | None = None, seconds: float = 120) -> str:
            super().run(*arguments)
            if arguments[:2] == ("annotate", "pods"):
                raise NotThere('Error from server (NotFound): pods "demo-paceline-server-0" not found')
            return ""

    cluster = Going([waiting("server", 0), waiting("worker", 0), *NOTED[:1], OVER], {})
    monkeypatch.setattr(following, "deploy", lambda *told: Overlay([], config_of([settings_map()], "here")))
    monkeypatch.setattr(following, "follow", lambda *told: "test accuracy 0.9")

    assert following.run(cluster, "x", lambda text: None) == 0

    freed = ("--selector=" + cluster.selector, "--overwrite", "kueue.x-k8s.io/retriable-in-group=false")
    assert ("annotate", "pods", *freed) in cluster.calls


def test_a_finished_run_waits_anew_when_it_is_deployed_again(monkeypatch: pytest.MonkeyPatch):
    over = {"status": {"conditions": [{"type": "Finished", "status": "True"}]}}
    more = settings_map("run: demo\ntask: digits\nservers: 2\nworkers: 2\nepochs: 30\n")

    class Stopped(Queued):
        def items(self, kinds: str, selector: str | None = None) -> list[dict[str, Any]]:
            if "statefulset" not in kinds:
                return []
            is_applied = ("apply", "--filename=-") in self.calls
            there = [SERVERS, WORKERS, OVER]
            return [*there, more, *ALL_WAIT[4:]] if is_applied else [*there, settings_map()]

    cluster = Stopped([SERVERS, WORKERS], {QUEUE: {}, WORKLOAD: over})
    documents = [more, copy.deepcopy(SERVERS), copy.deepcopy(WORKERS)]
    monkeypatch.setattr(deploying, "read_overlay", lambda *told: Overlay(documents, config_of([more], "here")))
    monkeypatch.setattr(deploying, "IN_QUEUE", 0.0)
    said: list[str] = []

    deploying.deploy(cluster, "x", said.append)

    changes = [call[:2] for call in cluster.calls if call[0] in ("delete", "apply")]
    assert changes == [("delete", WORKLOAD), ("apply", "--filename=-")]
    assert any("waits in queue team-a" in line for line in said)
