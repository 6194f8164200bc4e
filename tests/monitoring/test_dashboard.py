"""The dashboard as Grafana gets it: fresh, complete, without overlaps, and about metrics that exist."""

import json
import re
from itertools import combinations
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from paceline.rpc.process import serve_metrics
from paceline.v1 import parameter_service_pb2 as pb
from tests.support.in_process import Cluster, Pusher, config_of
from tests.support.tree import ROOT
from tools.dashboard import ALERTS, DASHBOARD, files
from tools.panels import ROWS

DASH: dict[str, Any] = json.loads(DASHBOARD.read_text())
PANELS = [panel for panel in DASH["panels"] if panel["type"] != "row"]
OTHERS = {panel.title for row in ROWS.values() for panel in row if panel.other_exporter}
NAME = re.compile(r"\b(?:paceline|process)_[a-z0-9_]+")
LABELS = {
    "run",
    "process",
    "policy",
    "task",
    "transport",
    "phase",
    "reason",
    "method",
    "code",
    "worker",
    "split",
    "le",
    "direction",
    "kind",
    "metric",
}
UNITS = {"none", "s", "percentunit", "percent", "bytes", "Bps"}


def queries() -> list[str]:
    """Of all panels and alerts."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    return [target["expr"] for panel in PANELS for target in panel["targets"]] + [rule["expr"] for rule in rules]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Every sample that a server, a worker and the evaluator offer to Prometheus."""
    progress_module, scoring = (
        pytest.importorskip("paceline.worker.training.status_and_metrics"),
        pytest.importorskip("paceline.worker.scoring.scorer"),
    )
    peer_messages = pytest.importorskip("paceline.worker.peers.peer_messages")
    step = pytest.importorskip("paceline.worker.training.step_result").Step
    cluster = Cluster(config_of("asp", workers=1, epochs=100), tmp_path_factory.mktemp("cluster"))
    cluster.evaluator_ready()
    Pusher(cluster).join().sit().push(1.0)
    of_worker, of_evaluator = CollectorRegistry(), CollectorRegistry()
    progress = progress_module.Progress(of_worker)
    for phase in ("data", "compute", "exchange", "data"):
        progress.enter(phase)
    progress.stepped(1, 0, step(None, 0.5, 32, True), [pb.PullHead(waited=0.1)], 0.25)
    peer_messages.PeerMetrics(of_worker)
    scoring.ScoreMetrics(of_evaluator).note(1, 0.5, {"test": {"loss": 0.5, "accuracy": 0.9}})
    found = []
    for name, registry in (
        ("server-0", cluster.servers[0].registry),
        ("worker-0", of_worker),
        ("evaluator", of_evaluator),
    ):
        with urlopen(f"http://localhost:{serve_metrics(0, registry, run='r', process=name)}/metrics") as page:
            families = list(text_string_to_metric_families(page.read().decode()))
        found += [sample for family in families for sample in family.samples]
    cluster.close()
    return found


def test_the_committed_files_are_what_the_script_makes() -> None:
    stale = [path.name for path, text in files().items() if path.read_text() != text]
    assert stale == [], "run: make docs"


def test_uids_and_variables_are_the_ones_that_links_use() -> None:
    assert DASH["uid"] == "paceline"
    assert [variable["name"] for variable in DASH["templating"]["list"]] == ["datasource", "run", "namespace"]
    ids = [panel["id"] for panel in DASH["panels"]]
    assert len(set(ids)) == len(ids)
    sources = re.findall(r'"uid": "([^"]*)"', json.dumps(DASH["panels"]))
    assert set(sources) == {"${datasource}"}


def test_rows_are_those_of_the_design() -> None:
    rows = [panel["title"] for panel in DASH["panels"] if panel["type"] == "row"]
    assert rows == [
        "Overview",
        "Consistency",
        "Latency",
        "Traffic",
        "Data plane",
        "Peers",
        "Balance",
        "Health",
        "GPU and pods",
    ]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_has_a_title_a_unit_a_description_and_legends(panel: dict[str, Any]) -> None:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    assert panel["title"]
    assert panel["description"].endswith((".", "?"))
    assert unit in UNITS or re.fullmatch(r"suffix: ?\S+", unit)
    assert panel["targets"]
    assert all(target["legendFormat"] and target["expr"] for target in panel["targets"])
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_panels_have_different_titles() -> None:
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)


def test_panels_lie_beside_one_another_and_inside_the_grid() -> None:
    places = [(panel["title"], panel["gridPos"]) for panel in DASH["panels"]]
    for title, at in places:
        assert at["x"] >= 0 < at["w"], title
        assert at["x"] + at["w"] <= 24, title
    for (one, a), (other, b) in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        below = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or below, (one, other)


def test_every_metric_of_paceline_is_asked_for_this_run_only() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            for name in NAME.findall(target["expr"]):
                assert f'{name}{{run="$run",namespace=~"$namespace"' in target["expr"], panel["title"]


def test_panels_about_others_metrics_say_whose() -> None:
    for panel in PANELS:
        about_others = re.search(r"DCGM_|container_|kube_pod_", panel["targets"][0]["expr"]) is not None
        assert about_others == (panel["title"] in OTHERS)
        assert about_others == ("Needs " in panel["description"]), panel["title"]


def test_every_metric_that_a_panel_or_alert_names_exists_in_a_live_process(live: list[Any]) -> None:
    named = {name for query in queries() for name in NAME.findall(query)}
    missing = named - {sample.name for sample in live}
    assert len(named) > 30
    assert missing == set()


def test_labels_that_queries_group_by_exist_in_a_live_process(live: list[Any]) -> None:
    asked = {
        name for query in queries() for names in re.findall(r"by \(([^)]*)\)", query) for name in names.split(", ")
    }
    others = {
        "namespace",
        "pod",
        "gpu",
        "job_name",
        "volume",
    }  # of Prometheus, other exporters and the alerts themselves
    assert asked - others <= {label for sample in live for label in sample.labels}


def test_labels_are_few_and_hold_only_names(live: list[Any]) -> None:
    assert {label for sample in live for label in sample.labels} <= LABELS | {"implementation", "version"}
    values = {value for sample in live for value in sample.labels.values()}
    assert [value for value in values if not re.fullmatch(r"[\w+.-]+", value)] == []


def test_the_page_shows_a_picture_of_every_row() -> None:
    page = (ROOT / "docs/watch/grafana.md").read_text()
    pictures = re.findall(r"\]\(\.\./(pictures/[\w-]+\.png)\)", page)
    assert len(pictures) == len(ROWS)
    sizes = [(ROOT / "docs" / name).stat().st_size for name in pictures]
    assert all(0 < size < 120_000 for size in sizes)
