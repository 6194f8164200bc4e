"""A real Prometheus next to a real run: no panel is empty (a misspelt metric gives no error, only nothing)."""

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.support.commands import paceline
from tests.support.tree import ROOT

pytest.importorskip("torch")

from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder
from tools.dashboard import ALERTS
from tools.panels import PEERS, ROWS, Panel, Query
from tools.prometheus import Prometheus, Watched, beside, other_exporters, ports_of

pytestmark = [
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="there is no prometheus here (apt: prometheus)"),
    pytest.mark.timeout(400),
]
PANELS = [(panel, query) for title, row in ROWS.items() if title != PEERS for panel in row for query in panel.queries]
OF_PEERS = [(panel, query) for panel in ROWS[PEERS] for query in panel.queries]
WITHOUT_SERVERS = ("Training", "Phase", "Members", "Examples per second", "Loss", "Accuracy", "Step time by phase")
"""Panels of other rows that say as much of a run without servers."""
OVERLAY = ROOT / "k8s" / "overlays" / "monitoring" / "prometheus.yml"
RUNNING = {
    "namespace": "n",
    "pod_name": "paceline-server-0",
    "pod_phase": "Running",
    "pod_container_port_name": "metrics",
    "pod_label_app_kubernetes_io_name": "paceline",
}
PODS = [
    RUNNING,
    RUNNING | {"pod_container_port_name": "grpc"},
    RUNNING | {"pod_phase": "Succeeded"},
    RUNNING | {"pod_label_app_kubernetes_io_name": "grafana"},
]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One for both runs, whose series have the run's name."""
    with (
        other_exporters(Config(workers=2, servers=2)) as others,
        beside(tmp_path_factory.mktemp("prometheus"), others) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def watched(prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """One whose pace stays: under auto it would be over within a second of leaving lock-step."""
    more = (
        "--policy",
        "ssp",
        "--set",
        "nominal_step=0.05",
        "--set",
        "checkpoint.every=1s",
        "--slow",
        "1=5x",
        "--epochs",
        "2",
    )
    return seen(prometheus, tmp_path_factory.mktemp("watched"), "digits", "-w", "2", "-s", "2", *more)


@pytest.fixture(scope="module")
def peers(prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A run without servers."""
    more = ("--policy", "dpsgd", "--set", "nominal_step=0.05", "--slow", "2=5x", "--epochs", "2")
    return seen(prometheus, tmp_path_factory.mktemp("peers"), "digits", "-w", "3", "-s", "0", *more)


def seen(prometheus: Prometheus, folder: Path, *arguments: str) -> Watched:
    """A run of these arguments, which is called as its folder; forked, as the other one, from a process that has torch."""
    place, began = RunFolder(folder / "runs" / folder.name), time.time()
    has_ended = threading.Event()

    def watch() -> None:
        while not has_ended.wait(0.2):
            prometheus.watch(ports_of(place))

    with ThreadPoolExecutor(1) as beside_this:
        watching = beside_this.submit(watch)
        try:
            done = paceline("run", *arguments, "--run", place.name, cwd=folder)
        finally:
            has_ended.set()
    watching.result()
    assert done.returncode == 0, done.stderr
    return Watched(prometheus, place.name, began, time.time())


@pytest.mark.parametrize(("panel", "query"), OF_PEERS, ids=lambda part: getattr(part, "title", ""))
def test_a_panel_about_peers_is_not_empty(peers: Watched, panel: Panel, query: Query) -> None:
    assert peers.trouble(query) == ""


def test_a_run_without_servers_shows_in_the_other_rows_too(peers: Watched) -> None:
    asked = {panel.title: query for panel, query in PANELS if panel.title in WITHOUT_SERVERS}
    assert {title: peers.trouble(query) for title, query in asked.items()} == dict.fromkeys(WITHOUT_SERVERS, "")


def test_the_neighbours_of_a_slow_peer_wait_for_it_and_know_all_members(peers: Watched) -> None:
    def of(title: str) -> dict[str, float]:
        query = next(query for panel, query in OF_PEERS if panel.title == title)
        return {
            series["metric"]["process"]: max(float(value) for _, value in series["values"])
            for series in peers.ask(query)
        }

    assert of("Members in view") == {f"worker-{rank}": 3 for rank in range(3)}
    waits = of("Waiting for other workers")
    assert waits["worker-2"] < min(waits["worker-0"], waits["worker-1"])


@pytest.mark.parametrize(("panel", "query"), PANELS, ids=lambda part: getattr(part, "title", ""))
def test_a_panel_is_not_empty(watched: Watched, panel: Panel, query: Query) -> None:
    assert watched.trouble(query) == ""


def test_all_processes_were_scraped_under_their_names(watched: Watched) -> None:
    found = watched.ask(Query("count by (process) (paceline_memory_limit_bytes{RUN})"))
    names = {series["metric"]["process"] for series in found}
    assert names == {"server-0", "server-1", "worker-0", "worker-1", "evaluator"}


def test_the_slow_worker_is_the_one_whose_straggler_ratio_is_high(watched: Watched) -> None:
    ratio = next(query for panel, query in PANELS if panel.title == "Straggler ratio")
    last = {series["metric"]["process"]: float(series["values"][-1][1]) for series in watched.ask(ratio)}
    assert last["worker-0"] == 1
    assert last["worker-1"] > 2


def test_what_was_trained_grows_to_about_the_whole_budget(watched: Watched) -> None:
    trained = next(query for panel, query in PANELS if panel.title == "Trained")
    (series,) = watched.ask(trained)
    shares = [float(value) for _, value in series["values"]]
    assert shares == sorted(shares)
    assert 0.8 < shares[-1] <= 1  # the last scrape may have been a little before the end


def test_the_overlays_prometheus_takes_running_pods_with_metrics_and_no_others(tmp_path: Path) -> None:
    """Debian's Prometheus can't ask Kubernetes, so what that would say is written down for it."""
    config = yaml.safe_load(OVERLAY.read_text())
    scrape = config["scrape_configs"][0]
    assert scrape.pop("kubernetes_sd_configs") == [{"role": "pod", "namespaces": {"own_namespace": True}}]
    scrape["static_configs"] = [
        {
            "targets": [f"10.0.0.{number}:9464"],
            "labels": {f"__meta_kubernetes_{key}": value for key, value in pod.items()},
        }
        for number, pod in enumerate(PODS)
    ]
    config["rule_files"] = [str(ALERTS)]
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    for command in (["check", "config", file], ["check", "service-discovery", "--timeout=2s", file, "paceline"]):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    kept = [found["labels"] for found in json.loads(done.stdout) if found["labels"]]
    assert [(labels["namespace"], labels["pod"], labels["instance"]) for labels in kept] == [
        ("n", "paceline-server-0", "10.0.0.0:9464")
    ]
