"""What Prometheus and Grafana get in a cluster: rendered by kubectl, and held against the runs that they watch."""

import re
import shutil
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.tree import ROOT
from tools.dashboard import ALERTS
from tools.rendered_manifests import objects, render

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here to render with")

PAGE = (ROOT / "docs/run/kubernetes.md").read_text()
OLDEST, NEWEST = re.search(r"Kubernetes (1\.\d+) to (1\.\d+)", PAGE).groups()  # type: ignore[union-attr]
PART, NAME = "app.kubernetes.io/component", "app.kubernetes.io/name"


@pytest.fixture(scope="module")
def overlay() -> list[dict[str, Any]]:
    return objects(render(ROOT / "k8s" / "overlays" / "monitoring"))


def demo_with(component: str, folder: Path, more: str = "") -> list[dict[str, Any]]:
    """The overlay demo with one more component, as a user would write it."""
    shutil.copytree(ROOT / "k8s", folder / "k8s")
    mine = folder / "k8s" / "overlays" / "mine"
    mine.mkdir()
    text = f"resources: [../demo]\ncomponents: [../../components/{component}]\n{more}"
    (mine / "kustomization.yaml").write_text(text)
    return objects(render(mine))


def of_kind(found: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [each for each in found if each["kind"] in kinds]


def pods(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["spec"]["template"] for each in of_kind(found, "Deployment", "StatefulSet", "Job")]


def is_selected(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(rule["key"]) in rule["values"] for rule in selector.get("matchExpressions", [])
    )


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_overlay_is_valid_kubernetes(overlay: list[dict[str, Any]], version: str) -> None:
    for each in overlay:
        kubernetes_validate.validate(each, version, strict=True)


def test_the_overlays_pods_meet_the_restricted_pod_security(overlay: list[dict[str, Any]]) -> None:
    for pod in pods(overlay):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert {next(iter(volume.keys() - {"name"})) for volume in spec.get("volumes", [])} <= {"configMap", "emptyDir"}
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"]
            assert not context["allowPrivilegeEscalation"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert (
                container["resources"]["limits"].keys()
                == container["resources"]["requests"].keys()
                == {"cpu", "memory", "ephemeral-storage"}
            )
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
            assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", container["image"]), "a tag that does not move"


def test_the_monitoring_may_only_look_at_parts_of_its_namespace(overlay: list[dict[str, Any]]) -> None:
    assert of_kind(overlay, "ClusterRole", "ClusterRoleBinding") == []
    rules = {
        (role["metadata"]["name"], resource): set(rule["verbs"])
        for role in of_kind(overlay, "Role")
        for rule in role["rules"]
        for resource in rule["resources"]
    }
    assert rules == {
        ("paceline-prometheus", "pods"): {"get", "list", "watch"},
        ("paceline-kube-state-metrics", "pods"): {"list", "watch"},
        ("paceline-kube-state-metrics", "statefulsets"): {"list", "watch"},
        ("paceline-kube-state-metrics", "jobs"): {"list", "watch"},
    }
    grafana = next(pod for pod in pods(overlay) if pod["metadata"]["labels"][NAME] == "grafana")
    assert not grafana["spec"]["automountServiceAccountToken"]


def test_services_and_policies_of_the_overlay_select_its_pods(overlay: list[dict[str, Any]]) -> None:
    labels = [pod["metadata"]["labels"] for pod in pods(overlay)]
    for service in of_kind(overlay, "Service"):
        assert sum(service["spec"]["selector"].items() <= each.items() for each in labels) == 1
    policies = of_kind(overlay, "NetworkPolicy")
    assert [sum(is_selected(policy["spec"]["podSelector"], each) for policy in policies) for each in labels] == [
        1,
        1,
        1,
    ]


def test_prometheus_asks_a_kube_state_metrics_that_knows_what_the_alerts_need(overlay: list[dict[str, Any]]) -> None:
    (config,) = [
        each["data"]["prometheus.yml"] for each in of_kind(overlay, "ConfigMap") if "prometheus.yml" in each["data"]
    ]
    (scrape,) = [each for each in yaml.safe_load(config)["scrape_configs"] if "static_configs" in each]
    host, port = scrape["static_configs"][0]["targets"][0].split(":")
    (service,) = [each for each in of_kind(overlay, "Service") if each["metadata"]["name"] == host]
    assert service["spec"]["ports"][0]["port"] == int(port)
    assert scrape["honor_labels"]
    (container,) = next(
        pod["spec"]["containers"] for pod in pods(overlay) if pod["metadata"]["labels"][NAME] == "kube-state-metrics"
    )
    told = dict(argument.removeprefix("--").split("=", 1) for argument in container["args"])
    alerts = ALERTS.read_text()
    assert {f"{name}s" for name in re.findall(r"\bkube_([a-z]+)_", alerts)} == set(told["resources"].split(","))
    label = told["metric-labels-allowlist"].removeprefix("pods=[").removesuffix("]")
    assert f'label_{re.sub(r"[^a-z0-9]", "_", label)}="true"' in alerts


def test_grafana_finds_its_data_source_and_the_dashboard(overlay: list[dict[str, Any]]) -> None:
    maps = {each["metadata"]["name"].split("-")[1]: each["data"] for each in of_kind(overlay, "ConfigMap")}
    (source,) = yaml.safe_load(maps["grafana"]["datasources.yaml"])["datasources"]
    services = {each["metadata"]["name"]: each["spec"]["ports"][0]["port"] for each in of_kind(overlay, "Service")}
    host, port = source["url"].removeprefix("http://").split(":")
    assert services[host] == int(port)
    assert source["isDefault"]
    (provider,) = yaml.safe_load(maps["grafana"]["dashboards.yaml"])["providers"]
    grafana = next(pod for pod in pods(overlay) if pod["metadata"]["labels"][NAME] == "grafana")["spec"]
    mounts = {mount["mountPath"]: mount["name"] for mount in grafana["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume.get("configMap", {}).get("name") for volume in grafana["volumes"]}
    assert volumes[mounts[provider["options"]["path"]]] == "paceline-dashboard"


def test_monitors_select_every_part_of_a_run_by_ports_that_there_are(tmp_path: Path) -> None:
    more = """patches:
- target: {group: monitoring.coreos.com}
  patch: |-
    - {op: replace, path: /metadata/labels/release, value: mine}
"""
    found = demo_with("monitoring", tmp_path, more)
    (of_servers,), (of_pods,) = of_kind(found, "ServiceMonitor"), of_kind(found, "PodMonitor")
    (service,) = [
        each
        for each in of_kind(found, "Service")
        if is_selected(of_servers["spec"]["selector"], each["metadata"]["labels"])
    ]
    assert of_servers["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    seen = set()
    for pod in pods(found):
        labels, ports = pod["metadata"]["labels"], pod["spec"]["containers"][0].get("ports", [])
        if is_selected(of_pods["spec"]["selector"], labels):
            seen.add(labels[PART])
            assert of_pods["spec"]["podMetricsEndpoints"][0]["port"] in {port["name"] for port in ports}
    assert seen == {"worker", "evaluator", "sharder"}
    ours = of_kind(found, "ServiceMonitor", "PodMonitor", "PrometheusRule")
    assert [each["metadata"]["labels"]["release"] for each in ours] == ["mine"] * 3
    boards = [
        each for each in of_kind(found, "ConfigMap") if each["metadata"]["labels"].get("grafana_dashboard") == "1"
    ]
    assert [list(each["data"]) for each in boards] == [["paceline.json"]]


def test_annotations_are_on_every_pod_that_has_metrics(tmp_path: Path) -> None:
    found = demo_with("scrape-annotations", tmp_path)
    for pod in pods(found):
        ports = [
            port["containerPort"] for port in pod["spec"]["containers"][0].get("ports", []) if port["name"] == "metrics"
        ]
        told = pod["metadata"].get("annotations", {})
        assert [told.get("prometheus.io/port")] == [str(port) for port in ports]
        assert told["prometheus.io/scrape"] == "true"
