"""Every alert fires when it should, stays quiet when it should, and says what to do: with promtool, in its virtual time."""

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.core.chief.warnings import Kind
from tests.support.tree import ROOT
from tools.dashboard import ALERTS

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool here (apt: prometheus)")

RULES: dict[str, Any] = {
    rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
}
RUN = 'namespace="n",run="r"'
WORKERS = ("worker-0", "worker-1")
UPDATES = f'paceline_server_updates_total{{{RUN},process="server-0",policy="ssp"}}'
REJECTED = f'paceline_server_pushes_rejected_total{{{RUN},process="server-0",reason="too_stale"}}'
WRITTEN = f'paceline_server_checkpoint_timestamp_seconds{{{RUN},process="server-0"}}'
DAMAGED = f'paceline_server_damaged_snapshots_total{{{RUN},process="server-0"}}'
INTERVAL = f'paceline_server_checkpoint_interval_seconds{{{RUN},process="server-0"}}'


def phase(name: str, server: str = "server-0", pod: str = "p") -> str:
    return f'paceline_server_phase{{{RUN},process="{server}",pod="{pod}",phase="{name}"}}'


def steps(worker: str) -> str:
    return f'paceline_worker_steps_total{{{RUN},process="{worker}"}}'


def seconds(worker: str, phase: str) -> str:
    return f'paceline_worker_step_seconds_sum{{{RUN},process="{worker}",phase="{phase}"}}'


def screened(worker: str) -> str:
    return f'paceline_worker_screened_steps_total{{{RUN},process="{worker}"}}'


def loss(split: str) -> str:
    return f'paceline_eval_loss{{{RUN},process="evaluator",split="{split}"}}'


def warned(kind: str) -> str:
    return f'paceline_server_warnings{{{RUN},process="server-0",kind="{kind}"}}'


def computing(slow: int, phase: str = "compute") -> dict[str, str]:
    """worker-0 takes 6 s a minute for 60 steps, worker-1 `slow` times as much in this phase."""
    clocks = {steps(worker): "0+60x40" for worker in WORKERS}
    return clocks | {
        seconds("worker-0", "compute"): "0+6x40",
        seconds("worker-1", "compute"): "0+6x40",
        seconds("worker-1", phase): f"0+{6 * slow}x40",
    }


def kube(name: str, values: str, **labels: str) -> dict[str, str]:
    """A series of kube-state-metrics or a kubelet, by its own labels."""
    return {f"{name}{{{','.join(f'{key}={chr(34)}{value}{chr(34)}' for key, value in labels.items())}}}": values}


def pending(pod: str, values: str = "1x40", **labels: str) -> dict[str, str]:
    return kube("kube_pod_status_phase", values, namespace="n", pod=pod, uid="u", phase="Pending", **labels)


def queued(pod: str, values: str) -> dict[str, str]:
    """Gated by Kueue while the value is 1."""
    return kube("kube_pod_labels", "1x40", namespace="n", pod=pod, uid="u", label_kueue_x_k8s_io_managed="true") | kube(
        "kube_pod_status_scheduled", values, namespace="n", pod=pod, uid="u", condition="false"
    )


def servers(wanted: str, ready: str, name: str = "r-paceline-server") -> dict[str, str]:
    return kube("kube_statefulset_replicas", wanted, namespace="n", statefulset=name) | kube(
        "kube_statefulset_status_replicas_ready", ready, namespace="n", statefulset=name
    )


def replicas(run: str = "r", **parts: str) -> dict[str, str]:
    """How many processes each part shall have."""
    return {
        name: values
        for part, each in parts.items()
        for name, values in kube(
            "kube_statefulset_replicas", each, namespace="n", statefulset=f"{run}-paceline-{part}"
        ).items()
    }


def claim(name: str, used: int) -> dict[str, str]:
    """Of 100 bytes that its pods may fill."""
    labels = {"namespace": "n", "node": "one", "persistentvolumeclaim": name}
    return kube("kubelet_volume_stats_used_bytes", f"{used}x40", **labels) | kube(
        "kubelet_volume_stats_available_bytes", f"{100 - used}x40", **labels
    )


def disk(used: float) -> dict[str, str]:
    return {f'paceline_server_disk_used_ratio{{{RUN},process="server-0"}}': f"{used}x40"}


def started(*times: str, process: str = "worker-1") -> dict[str, str]:
    """In pod after pod, each of which is seen at the given minutes."""
    return {
        f'process_start_time_seconds{{{RUN},process="{process}",pod="p{number}"}}': values
        for number, values in enumerate(times)
    }


TRAINING = {phase("training"): "1x40", phase("finished"): "0x40"}
FINISHED = {phase("training"): "0x40", phase("finished"): "1x40"}


@dataclass(frozen=True)
class Case:
    """Series by name, one value a minute, and what the alert says after that number of minutes."""

    alert: str
    when: str
    series: dict[str, str]
    minute: int
    labels: dict[str, str] = field(default_factory=dict)
    value: str = ""
    """As the text of the alert has it."""


SERVER, WORKER, EVALUATOR = ({"process": name} for name in ("server-0", "worker-1", "evaluator"))
CLOCK_0 = steps("worker-0")
FIRES = [
    Case("NoProgress", "no push is counted", TRAINING | {UPDATES: "100x40"}, 20),
    Case("NoProgress", "a run waits for workers forever", {phase("finished"): "0x40", UPDATES: "0x40"}, 15),
    Case(
        "CheckpointStale",
        "a server trains but writes nothing",
        {UPDATES: "0+60x40", WRITTEN: "60x40", INTERVAL: "5x40"},
        10,
        SERVER,
        "9m 0s",
    ),
    Case(
        "RejectRatioHigh",
        "two of five pushes are too stale",
        {UPDATES: "0+100x40", REJECTED: "0+40x40"},
        15,
        value="40%",
    ),
    Case("RejectRatioHigh", "all pushes are refused", {UPDATES: "0x40", REJECTED: "0+40x40"}, 15, value="+Inf%"),
    Case("StragglerSevere", "one worker computes six times as long", computing(6), 20, WORKER, "6"),
    Case("StragglerSevere", "one worker reads its data forever", computing(5, "data"), 20, WORKER, "6"),
    Case(
        "ServerDown",
        "a server vanishes during a run",
        TRAINING | {phase("training", "server-1"): "1x5 stale", phase("finished", "server-1"): "0x5 stale"},
        10,
        {"process": "server-1"},
    ),
    Case(
        "ServerDown",
        "the only server vanishes and workers remain",
        {phase("training"): "1x5 stale", CLOCK_0: "0+60x40"},
        10,
        SERVER,
    ),
    Case(
        "LossNotFinite",
        "half of the gradients are not finite",
        {CLOCK_0: "0+60x40", screened("worker-0"): "0+30x40"},
        10,
        {"process": "worker-0"},
    ),
    Case(
        "LossNotFinite",
        "the evaluator scores NaN",
        {loss("test"): "0.5 " + "NaN " * 20, loss("train"): "0.5x20"},
        10,
        EVALUATOR,
    ),
    Case("LossNotFinite", "the evaluator scores infinity", {loss("test"): "0.5 " + "+Inf " * 20}, 10, EVALUATOR),
    Case(
        "NotLearning",
        "the loss stays above its start",
        {warned("loss_above_start"): "0 0 1x30", warned("majority_class"): "0x30"},
        10,
        {"kind": "loss_above_start"},
    ),
    Case(
        "NotLearning",
        "accuracy is that of the largest class",
        {warned("majority_class"): "0x5 1x30"},
        10,
        {"kind": "majority_class"},
    ),
    Case("SnapshotDamaged", "one was passed over", {DAMAGED: "_x5 1x30"}, 7, SERVER, "1"),
    Case("NotLearning", "gradients are not finite", {warned("not_finite"): "1x30"}, 10, {"kind": "not_finite"}),
    Case("PartFailed", "its workers are given up", replicas(server="2x40", evaluator="1x40", worker="2x5 0x30"), 12),
    Case(
        "PartFailed", "nobody scores it", replicas(server="2x40", sharder="1x40", evaluator="0x40", worker="4x40"), 12
    ),
    Case(
        "PartFailed",
        "its sharder is given up",
        servers("2x40", "2x40") | replicas(sharder="0x40", evaluator="0x40", worker="0x40"),
        12,
    ),
    Case("RunWithoutServers", "all its pods are gone", servers("2x40", "2x5 0x30"), 25, value="2"),
    Case(
        "RunWithoutServers",
        "Kueue has let it begin and no node takes it",
        servers("2x40", "0x40") | queued("r-paceline-server-0", "0x40"),
        25,
        value="2",
    ),
    Case("PodPending", "no node takes it", pending("r-paceline-worker-0"), 15, {"pod": "r-paceline-worker-0"}),
    Case(
        "PodPending",
        "Kueue has let it begin and its image is missing",
        pending("r-paceline-server-0") | queued("r-paceline-server-0", "0x40"),
        15,
        {"pod": "r-paceline-server-0"},
    ),
    Case(
        "VolumeAlmostFull",
        "a claim is used to nine tenths",
        claim("r-paceline-models", 90) | claim("other", 99),
        10,
        {"volume": "r-paceline-models"},
        "90%",
    ),
    Case("VolumeAlmostFull", "the input data's is", claim("paceline-data", 90), 10, {"volume": "paceline-data"}, "90%"),
    Case(
        "VolumeAlmostFull",
        "a server and its kubelet say the same",
        claim("checkpoints-r-paceline-server-0", 90) | disk(0.9),
        10,
        {"volume": "r-paceline-server-0"},
        "90%",
    ),
    Case("VolumeAlmostFull", "a server alone says so", disk(0.9), 10, {"volume": "r-paceline-server-0"}, "90%"),
    Case(
        "RestartsOften",
        "a worker is in its fifth pod",
        started("1x5 stale", "_x6 2x5 stale", "_x12 3x5 stale", "_x18 4x5 stale", "_x24 5x20"),
        30,
        WORKER,
        "4",
    ),
    Case(
        "RestartsOften",
        "a server ends before it tells anything",
        kube("kube_pod_container_status_restarts_total", "0+1x60", namespace="n", pod="r-paceline-server-0", uid="u"),
        60,
        SERVER,
        "60",
    ),
    Case(
        "RestartsOften",
        "the controller may not do its work",
        kube(
            "kube_pod_container_status_restarts_total",
            "0+1x60",
            namespace="n",
            pod="r-paceline-controller-5c8-x",
            uid="u",
        ),
        60,
        {"process": "controller"},
        "60",
    ),
]
QUIET = [
    Case("SnapshotDamaged", "all are whole", {DAMAGED: "0x40"}, 20),
    Case("NoProgress", "the run is finished", FINISHED | {UPDATES: "100x40"}, 30),
    Case("NoProgress", "pushes are counted", TRAINING | {UPDATES: "0+1x40"}, 30),
    Case("NoProgress", "it has been waiting for a few minutes", {phase("finished"): "0x40", UPDATES: "0x40"}, 8),
    Case("CheckpointStale", "checkpoints are written", {UPDATES: "0+60x40", WRITTEN: "0+60x40", INTERVAL: "5x40"}, 20),
    Case(
        "CheckpointStale",
        "one is due in 10 minutes only",
        {UPDATES: "0+60x40", WRITTEN: "0x40", INTERVAL: "600x40"},
        20,
    ),
    Case("CheckpointStale", "nothing has changed since", {UPDATES: "60x40", WRITTEN: "60x40", INTERVAL: "5x40"}, 20),
    Case("RejectRatioHigh", "one of four is a spare one (backup)", {UPDATES: "0+100x40", REJECTED: "0+25x40"}, 20),
    Case("RejectRatioHigh", "nothing happens", {UPDATES: "5x40", REJECTED: "5x40"}, 20),
    Case("RejectRatioHigh", "a restart cost some pushes", {UPDATES: "0+10x40", REJECTED: "0x10 20x30"}, 14),
    Case("StragglerSevere", "one worker is three times slow", computing(3), 20),
    Case("StragglerSevere", "one worker waits for others", computing(20, "wait"), 20),
    Case("StragglerSevere", "there is one worker", {CLOCK_0: "0+60x40", seconds("worker-0", "compute"): "0+50x40"}, 20),
    Case(
        "ServerDown",
        "a finished run is torn down",
        {phase("training"): "1x4 0 stale", phase("finished"): "0x4 1 stale", CLOCK_0: "0+60x40"},
        10,
    ),
    Case(
        "ServerDown",
        "a run is torn down in the middle",
        {phase("training"): "1x5 stale", steps("worker-0"): "0+60x5 stale"},
        10,
    ),
    Case(
        "ServerDown",
        "it is back in another pod",
        TRAINING
        | {phase("training", "server-1", "old"): "1x5 stale", phase("training", "server-1", "new"): "_x6 1x30"},
        10,
    ),
    Case("LossNotFinite", "a step now and then overflows", {CLOCK_0: "0+60x40", screened("worker-0"): "0+1x40"}, 10),
    Case("LossNotFinite", "losses are numbers", {loss("test"): "0.5x40", loss("train"): "-3x40"}, 10),
    Case("NotLearning", "nothing is wrong", {warned(kind): "0x30" for kind in Kind}, 10),
    Case("NotLearning", "it passes at once", {warned("exploding"): "0x3 1 0x30"}, 4),
    Case("NotLearning", "the run has ended and its chief is gone", {warned("majority_class"): "0x3 1x3 stale"}, 20),
    Case("PartFailed", "it trains", replicas(server="2x40", sharder="0x40", evaluator="1x40", worker="2x40"), 20),
    Case(
        "PartFailed",
        "it shards",
        servers("2x40", "2x40") | replicas(sharder="1x40", evaluator="0x40", worker="0x40"),
        20,
    ),
    Case(
        "PartFailed",
        "its servers read large snapshots back",
        servers("2x40", "0x12 2x30") | replicas(sharder="0x40", evaluator="0x12 1x30", worker="0x12 2x30"),
        20,
    ),
    Case(
        "PartFailed",
        "it has ended",
        servers("2x9 0x30", "2x9 0x30") | replicas(evaluator="1x9 0x30", worker="2x9 0x30"),
        20,
    ),
    Case(
        "PartFailed",
        "another run of its namespace has ended",
        replicas(server="2x40", evaluator="1x40", worker="2x40")
        | replicas("other", server="0x40", evaluator="0x40", worker="0x40"),
        20,
    ),
    Case("RunWithoutServers", "one of two is ready", servers("2x40", "1x40"), 30),
    Case("RunWithoutServers", "it is over and scaled to zero", servers("2x5 0x30", "2x5 0x30"), 30),
    Case("RunWithoutServers", "they read large snapshots back", servers("2x40", "0x12 2x30"), 30),
    Case("RunWithoutServers", "another StatefulSet is away", servers("2x40", "0x40", "database"), 30),
    Case(
        "RunWithoutServers", "it waits in a queue", servers("2x40", "0x40") | queued("r-paceline-server-0", "1x40"), 30
    ),
    Case("PodPending", "it starts within minutes", pending("r-paceline-worker-0", "1x8 0x30"), 15),
    Case("PodPending", "it is no part of a run", pending("paceline-prometheus-x") | pending("other"), 20),
    Case(
        "PodPending", "it waits in a queue", pending("r-paceline-server-0") | queued("r-paceline-server-0", "1x40"), 30
    ),
    Case("VolumeAlmostFull", "there is room", claim("r-paceline-models", 80) | disk(0.8), 20),
    Case("RestartsOften", "a worker is in its second pod", started("1x5 stale", "_x6 2x30"), 30),
    Case("RestartsOften", "two run side by side", started("1x40", "2x40"), 30),
    Case("LossNotFinite", "nobody trains", {steps("worker-0"): "9x40", screened("worker-0"): "0x40"}, 10),
]


def filled(text: str, case: Case, labels: dict[str, str]) -> str:
    """An annotation as Prometheus writes it."""
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)
    return re.sub(r"\{\{ \$value[^}]*\}\}", lambda found: case.value, text)


def expected(case: Case) -> dict[str, Any]:
    rule = RULES[case.alert]
    labels = {"namespace": "n", "run": "r"} | case.labels
    if "volume" in labels:  # a claim's, not a run's
        del labels["run"]
    return {
        "exp_labels": labels | rule["labels"],
        "exp_annotations": {key: filled(text, case, labels) for key, text in rule["annotations"].items()},
    }


def promtool(cases: list[Case], alerts: list[list[dict[str, Any]]], folder: Path) -> str:
    """Runs all cases at once; what promtool complains of."""
    tests = [
        {
            "name": f"{case.alert}: {case.when}",
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
            "alert_rule_test": [{"eval_time": f"{case.minute}m", "alertname": case.alert, "exp_alerts": wanted}],
        }
        for case, wanted in zip(cases, alerts, strict=True)
    ]
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture(scope="module")
def all_hold(tmp_path_factory: pytest.TempPathFactory) -> bool:
    """Whether promtool, started once for all cases, complains of none."""
    wanted = [[expected(case)] for case in FIRES] + [[]] * len(QUIET)
    return promtool([*FIRES, *QUIET], wanted, tmp_path_factory.mktemp("all")) == ""


@pytest.mark.parametrize("case", FIRES, ids=lambda case: f"{case.alert} when {case.when}")
def test_an_alert_fires_and_its_text_names_whom(case: Case, all_hold: bool, tmp_path: Path) -> None:
    assert all_hold or promtool([case], [[expected(case)]], tmp_path) == ""


@pytest.mark.parametrize("case", QUIET, ids=lambda case: f"{case.alert} when {case.when}")
def test_an_alert_stays_quiet(case: Case, all_hold: bool, tmp_path: Path) -> None:
    assert all_hold or promtool([case], [[]], tmp_path) == ""


def test_promtool_complains_of_a_case_that_does_not_hold(tmp_path: Path) -> None:
    fires, quiet = FIRES[0], QUIET[0]

    assert fires.when in promtool([quiet, fires], [[], []], tmp_path)


@pytest.mark.parametrize("name", RULES)
def test_every_alert_is_tried_both_ways_and_says_what_to_do(name: str) -> None:
    assert {case.alert for case in FIRES} >= {name} <= {case.alert for case in QUIET}
    annotations = RULES[name]["annotations"]
    assert re.search(r"\b(look|Look|see|See|lower|Lower|make room|Make room|raise)\b", annotations["description"])


def test_every_alert_links_to_a_section_that_says_what_to_do_and_there_is_no_other() -> None:
    page = "docs/watch/alerts.md"
    sections = set(re.findall(r"^## ([A-Z]\w+)$", (ROOT / page).read_text(), re.MULTILINE))
    assert {name: rule["annotations"]["runbook_url"] for name, rule in RULES.items()} == {
        name: f"{page}#{name.lower()}" for name in sections
    }
