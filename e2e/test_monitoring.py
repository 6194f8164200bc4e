"""The dashboard and the alerts, by a real Prometheus that scrapes a run on the cluster through forwarded ports."""

import re
import shutil
import subprocess
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from e2e.cluster import REPOSITORY, SLOW_SVM, paceline, put_rows, run_of, until
from paceline.core.errors import ServersGone
from paceline.data.dataset import Dataset
from paceline_k8s.kubectl import COMPONENT, Kubectl
from tools.dashboard import ALERTS
from tools.panels import PEERS, ROWS, Query
from tools.prometheus import Watched, beside

RUN = "svm"
NOT_HERE = {("Loss", "mini-batches")}
"""Panel and legend of what a sparse run has by design not."""
PROCESSES = {"server-0", "server-1", "worker-0", "worker-1", "evaluator", "sharder"}
PANELS = [(panel, query) for title, row in ROWS.items() if title != PEERS for panel in row for query in panel.queries]
METRICS = 9464

pytestmark = [
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="there is no prometheus here (apt: prometheus)"),
    pytest.mark.timeout(900),
]


def is_scraped(pod: dict[str, Any]) -> bool:
    """By a Prometheus that uses annotations."""
    asked = {"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS), "prometheus.io/path": "/metrics"}
    return bool(asked.items() <= pod["metadata"].get("annotations", {}).items())


def process_of(pod: dict[str, Any]) -> str:
    """The name that its series should have."""
    labels = pod["metadata"]["labels"]
    index = [] if labels[COMPONENT] in ("evaluator", "sharder") else [labels["apps.kubernetes.io/pod-index"]]
    return "-".join([labels[COMPONENT], *index])


def discovered(pod: dict[str, Any], address: str) -> dict[str, Any]:
    """What Kubernetes' discovery tells Prometheus of the pod's port of metrics, but for the address."""
    about = pod["metadata"]
    ports = [each for container in pod["spec"]["containers"] for each in container["ports"]]
    (name,) = [each["name"] for each in ports if each["containerPort"] == METRICS]
    meta = {
        "namespace": about["namespace"],
        "pod_name": about["name"],
        "pod_phase": pod["status"]["phase"],
        "pod_container_port_name": name,
    } | {f"pod_label_{re.sub(r'[^a-zA-Z0-9_]', '_', key)}": value for key, value in about["labels"].items()}
    return {"targets": [address], "labels": {f"__meta_kubernetes_{key}": value for key, value in meta.items()}}


def answers(kubectl: Kubectl, pod: str) -> bool:
    """Whether it has metrics yet: kubectl ends where what it forwards to refuses a connection."""
    with suppress(OSError, ServersGone), kubectl.forwarded(pod, METRICS) as address:
        return bool(urlopen(f"http://{address}/metrics", timeout=5).status == 200)
    return False


def relabelling() -> Any:
    """What makes labels of that: the same as in the overlay `monitoring`."""
    config = yaml.safe_load((REPOSITORY / "k8s/overlays/monitoring/prometheus.yml").read_text())
    return config["scrape_configs"][0]["relabel_configs"]


def test_panels_show_a_run_on_the_cluster_and_no_alert_fires(namespace: str, tmp_path: Path, rows: Dataset) -> None:
    kubectl = Kubectl(namespace, RUN)
    svm = run_of(tmp_path / "run", SLOW_SVM, ["prometheus"])
    put_rows(rows, tmp_path / "data", namespace)

    with beside(tmp_path / "prometheus", relabel=relabelling()) as prometheus, ExitStack() as forwards:
        config = tmp_path / "prometheus" / "prometheus.yml"
        checked = subprocess.run(["promtool", "check", "config", config], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        start = time.time()
        assert paceline("k8s", "deploy", *svm, "-n", namespace).returncode == 0
        pods = {str(pod["metadata"]["name"]): pod for pod in kubectl.items("pods") if is_scraped(pod)}
        for name in pods:
            until(f"an answer of {name}", partial(answers, kubectl, name))
        prometheus.scrape(
            discovered(pod, forwards.enter_context(kubectl.forwarded(name, METRICS))) for name, pod in pods.items()
        )
        assert paceline("k8s", "run", *svm, "-n", namespace).returncode == 0
        until("the end of the servers", lambda: not prometheus.query('up{pod=~".*-paceline-server-.*"} == 1'))
        watched = Watched(prometheus, RUN, start, time.time(), namespace)
        seen = {
            tuple(series["metric"].get(label) for label in ("namespace", "pod", "process"))
            for series in watched.ask(Query("paceline_memory_limit_bytes{RUN}"))
        }
        troubles = {
            (panel.title, query.legend): trouble
            for panel, query in PANELS
            if not panel.other_exporter and (trouble := watched.trouble(query))
        }
        rules = prometheus.rules()
        fired = prometheus.query_range('ALERTS{alertstate="firing"}', watched.start, watched.end)

    assert seen == {(namespace, name, process_of(pod)) for name, pod in pods.items()}
    assert {process for _, _, process in seen} == PROCESSES
    assert set(troubles) == NOT_HERE, troubles
    alerts = [rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert {rule["name"]: (rule["health"], rule["state"]) for rule in rules} == dict.fromkeys(
        alerts, ("ok", "inactive")
    )
    assert fired == []
