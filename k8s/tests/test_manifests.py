"""The Kubernetes manifests: rendered by kubectl's kustomize, checked against the API's schemas and against Paceline itself;
and those of the monitoring, held against the runs that it watches."""

import json
import re
import shutil
from functools import cache
from importlib.metadata import version
from itertools import product
from pathlib import Path

import pytest
import typer
import yaml

from paceline.base.variables import CONNECT, TLS
from paceline.settings.load_settings import load, task_of
from paceline.tasks.task import load_task
from paceline.worker.command_line import ToldLaunched
from paceline_k8s.kubectl import Kubectl
from paceline_k8s.queue import check_queue
from paceline_k8s.run_name import rename
from paceline_k8s.script import script_of
from paceline_studies.planning.sizes import plan_report, task_shapes
from tests.support.kustomize import objects, render
from tests.support.nights import some
from tests.support.tree import ROOT
from tools.dashboard import ALERTS
from tools.manifests.schemas import NEWEST, OLDEST, complaint

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here to render with")

K8S, PAGE, STORES = ROOT / "k8s", ROOT / "docs/run/kubernetes.md", ROOT / "docs/run/object-stores.md"
PAGES = PAGE.read_text() + (ROOT / "docs/run/kubernetes-security.md").read_text()
OVERLAYS = sorted(path.parent.name for path in K8S.glob("overlays/*/run.yaml"))
SAME_FOR_ALL = ("kueue",)
"""What is the same in every overlay, so one is enough to try it alone."""
QUEUE = {
    "name": "paceline-queue",
    "literals": ["name=team-a", "pods=6"],
    "options": {"annotations": {"config.kubernetes.io/local-config": "true"}},
}
"""What an overlay with the component kueue has besides."""
OF_SHARDS = ("data-server", "shards-in-bucket")
"""Not with a script, which brings its data."""
IN_BUCKET, NOT_IN_BUCKET = "shards-in-bucket", ("data-server", "object-store")
"""What keeps shards in an object store, and what it replaces."""
SNAPSHOTS = "checkpoints-in-bucket"
"""What lets servers send their snapshots there; an overlay has one of the others, too."""
OF_SCRIPTS = ("script",)
OF_PODS, OF_DATA = (
    ("gpu", "spot", "network-policy", "outside", "tls"),
    ("data", "object-store", "checkpoints-in-bucket"),
)
COMPONENTS = (*OF_SHARDS, *OF_PODS, *OF_SCRIPTS, *OF_DATA, *SAME_FOR_ALL)
"""All of them, in the order in which overlays name them."""
NAME, PART = "app.kubernetes.io/name", "app.kubernetes.io/component"
INSTANCE, DATA, STORE_SECRET = "app.kubernetes.io/instance", "paceline-data", "paceline-object-store"
POD_INDEX = "apps.kubernetes.io/pod-index"
STREAMS = "paceline-streams"
MIB, GIB = 1 << 20, 1 << 30
PARTS = ("server", "worker", "evaluator", "sharder", "controller")
TASKS = [name for name in OVERLAYS if load(K8S / "overlays" / name / "run.yaml").data.source != "script"]
"""The overlays that train a task; the others run a script."""


@cache
def listed(overlay):
    """The overlay's own components."""
    found = yaml.safe_load((K8S / "overlays" / overlay / "kustomization.yaml").read_text())
    return [Path(component).name for component in found.get("components", ())]


def cases():
    """Every overlay as it is, also with each component that it does not have, and with all of them."""
    for overlay in OVERLAYS:
        yield (overlay,)
        own = listed(overlay)
        without = (*own, *(OF_SHARDS if "script" in own else OF_SCRIPTS))
        more = [component for component in COMPONENTS if component not in without]
        alone = [component for component in more if overlay == "demo" or component not in (*SAME_FOR_ALL, IN_BUCKET)]
        yield from [(overlay, component) for component in alone]
        yield (overlay, *(component for component in more if component != IN_BUCKET))
        if overlay == "demo":
            yield (overlay, *(component for component in more if component not in NOT_IN_BUCKET))


def by_day(combinations):
    """All of them; those with one component, which take most of the time, have the mark `nightly`."""
    return [pytest.param(case, marks=() if len(case) != 2 else pytest.mark.nightly) for case in combinations]


CASES = by_day(cases())
EVERYTHING = [case for case in cases() if len(case) > 2]
CLOSED = [("demo", "data-server"), *(tuple(name for name in case if name != "outside") for case in EVERYTHING)]
"""The same without what lets others in."""


@cache
def rendered(case, folder):
    """All objects of an overlay with these components; `folder` has a copy of all that they are made of."""
    overlay, *more = case
    path = folder / "overlays" / overlay / "kustomization.yaml"
    text = (K8S / path.relative_to(folder)).read_text()
    kustomization = yaml.safe_load(text)
    names = [name for name in COMPONENTS if name in more or name in listed(overlay)]
    if names:
        kustomization["components"] = [f"../../components/{name}" for name in names]
        if "kueue" in names:
            kustomization["configMapGenerator"].append(QUEUE)
    path.write_text(yaml.safe_dump(kustomization) if names else text)
    return objects(render(path.parent))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return shutil.copytree(K8S, tmp_path_factory.mktemp("made") / "k8s")


@pytest.fixture(params=CASES, ids="+".join)
def everything(request, folder):
    """All objects of one combination."""
    return rendered(request.param, folder)


@pytest.fixture(params=OVERLAYS)
def overlay(request):
    return request.param


@pytest.fixture
def plain(overlay, folder):
    """All objects of an overlay as it is."""
    return rendered((overlay,), folder)


@pytest.fixture
def config(overlay):
    return load(K8S / "overlays" / overlay / "run.yaml")


def of_kind(found, *kinds):
    return [each for each in found if each["kind"] in kinds]


def run_of(found):
    """What pods read as run.yaml."""
    return next(
        objects(each["data"]["run.yaml"])[0]
        for each in of_kind(found, "ConfigMap")
        if "run.yaml" in each.get("data", {})
    )


def is_script(found):
    return run_of(found).get("data", {}).get("source") == "script"


def parts_of(found):
    return tuple(part for part in PARTS if part != "sharder" or not is_script(found))


def named(found, kind, name):
    """The run's part of this kind; its name is in front of all names."""
    return next(each for each in of_kind(found, kind) if each["metadata"]["name"] == f"{run_of(found)['run']}-{name}")


def pods(found):
    """(the component's name, the workload, the pod's spec) of everything that makes pods."""
    for each in of_kind(found, "StatefulSet", "Deployment"):
        template = each["spec"]["template"]
        yield template["metadata"]["labels"][PART], each, template["spec"]


def pod_labels(found):
    return [each["spec"]["template"]["metadata"]["labels"] for _, each, _ in pods(found)]


def only_container(spec):
    """The one that stays; another one may make the pod's token before it."""
    assert len(spec["containers"]) == 1
    assert [each["name"] for each in spec.get("initContainers", [])] in ([], ["token"])
    return spec["containers"][0]


def container_of(found, part):
    return next(only_container(spec) for name, _, spec in pods(found) if name == part)


def quantity(text):
    number, unit = re.fullmatch(r"(\d+)(m|Mi|Gi)?", str(text)).groups()
    return int(number) * {"m": 0.001, "Mi": MIB, "Gi": GIB, None: 1}[unit]


def selected(selector, labels):
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        term["operator"] == "In" and labels.get(term["key"]) in term["values"]
        for term in selector.get("matchExpressions", [])
    )


@pytest.mark.parametrize("everything", by_day(cases()), ids="+".join, indirect=True)
@pytest.mark.parametrize("version", some([OLDEST, NEWEST], [OLDEST]))
def test_the_api_of_the_oldest_and_the_newest_version_takes_every_object(everything, version):
    assert not [found for each in everything if (found := complaint(json.dumps(each, sort_keys=True), version))]


class Queues(Kubectl):
    """A namespace that has every queue."""

    def get(self, *what):
        return {}


def test_all_pods_of_a_run_wait_in_the_queue_of_the_overlay_as_one_group(folder):
    found = rendered(("demo", "kueue"), folder)
    for each in (part["spec"]["template"] for part in of_kind(found, "StatefulSet")):
        about = {key: value for key, value in each["metadata"]["labels"].items() if "kueue" in key}
        assert about == {
            "kueue.x-k8s.io/queue-name": "team-a",
            "kueue.x-k8s.io/pod-group-name": "demo-paceline-run",
            "kueue.x-k8s.io/managed": "true",
        }
        assert each["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "6"
        assert each["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]
    check_queue(Queues("here"), found, 6)
    assert {each["kind"] for each in found} == {each["kind"] for each in rendered(("demo",), folder)}
    groups = {
        each["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"]
        for each in of_kind(rename(found, "demo", "mine"), "StatefulSet")
    }
    assert groups == {"mine-paceline-run"}


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_a_misspelt_key_would_be_found(folder, version):
    workers = json.loads(json.dumps(named(rendered(("demo",), folder), "StatefulSet", "paceline-worker")))
    workers["spec"]["podManagmentPolicy"] = workers["spec"].pop("podManagementPolicy")

    assert "podManagmentPolicy" in complaint(json.dumps(workers), version)


def test_nothing_is_of_the_cluster_or_names_a_namespace(everything):
    pods_of, rules = (
        {"StatefulSet", "Deployment"},
        {"Role", "RoleBinding", "NetworkPolicy", "PodDisruptionBudget"},
    )
    others = {"ConfigMap", "Service", "ServiceAccount", "PersistentVolumeClaim"}
    assert {each["kind"] for each in everything} <= pods_of | rules | others
    assert not [each for each in everything if "namespace" in each["metadata"]]


def test_everything_carries_the_recommended_labels_and_the_runs_name(everything):
    run = run_of(everything)["run"]
    expected = {NAME: "paceline", "app.kubernetes.io/part-of": "paceline", "app.kubernetes.io/instance": run}

    for labels in [*pod_labels(everything), *(each["metadata"]["labels"] for each in everything)]:
        assert expected.items() <= labels.items()
    assert {labels[PART] for labels in pod_labels(everything)} <= set(PARTS)


def test_pods_keep_to_the_restricted_standard(everything):
    for part, _, spec in pods(everything):
        assert spec["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "fsGroup": 10001,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert only_container(spec)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert spec["automountServiceAccountToken"] is (part == "controller")


def test_pods_get_no_variables_that_look_like_settings(everything):
    """Kubernetes would give every pod PACELINE_SHARDS_SERVICE_HOST and the like, which Paceline takes for a typo."""
    for _, _, spec in pods(everything):
        assert spec["enableServiceLinks"] is False
        found = {each["name"] for each in only_container(spec)["env"] if each["name"].startswith("PACELINE_")}
        assert found <= {TLS, CONNECT}


def test_every_container_asks_for_no_more_than_its_limits(everything):
    for _, _, spec in pods(everything):
        requests, limits = (only_container(spec)["resources"][key] for key in ("requests", "limits"))
        assert {"cpu", "memory", "ephemeral-storage"} <= set(requests) == set(limits)
        assert all(quantity(requests[key]) <= quantity(limits[key]) for key in requests)


def test_every_writable_folder_has_a_limit(everything):
    for part, _, spec in pods(everything):
        mounts = {each["mountPath"]: each for each in only_container(spec)["volumeMounts"]}
        volumes = {each["name"]: each for each in spec["volumes"]}
        assert {"/cache", "/tmp"} <= set(mounts)
        assert all(quantity(each["emptyDir"]["sizeLimit"]) for each in volumes.values() if "emptyDir" in each)
        folders = [each["emptyDir"] for each in volumes.values() if "emptyDir" in each]
        on_disk = sum(quantity(each["sizeLimit"]) for each in folders if each.get("medium") != "Memory")
        room = quantity(only_container(spec)["resources"]["limits"]["ephemeral-storage"])
        assert room == on_disk + 128 * MIB, "what may lie in its folders, and logs"
        if part == "worker":
            assert volumes[mounts["/dev/shm"]["name"]]["emptyDir"]["medium"] == "Memory"
            shared = quantity(volumes["shm"]["emptyDir"]["sizeLimit"])
            assert 64 * MIB < shared < quantity(only_container(spec)["resources"]["limits"]["memory"])


def test_images_have_versions_and_are_not_pulled_anew(everything):
    for _, _, spec in pods(everything):
        container = only_container(spec)
        assert re.fullmatch(r"localhost/paceline-(server|worker|worker-slim|sharder):\d+\.\d+\.\d+", container["image"])
        assert container["imagePullPolicy"] == "IfNotPresent"


def test_selectors_find_the_pods_that_they_mean(everything):
    labels = pod_labels(everything)
    for each in of_kind(everything, "Service", "PodDisruptionBudget", "StatefulSet", "Deployment"):
        selector = each["spec"]["selector"]
        if each["kind"] == "Service":  # the StatefulSet gives each pod its number
            selector = {"matchLabels": {key: value for key, value in selector.items() if key != POD_INDEX}}
        found = [one for one in labels if selected(selector, one)]
        assert [one[PART] for one in found] == [each["metadata"]["labels"][PART]], each["metadata"]["name"]
    for part, _, spec in pods(everything):
        for constraint in spec.get("topologySpreadConstraints", []):
            assert [one[PART] for one in labels if selected(constraint["labelSelector"], one)] == [part]


def test_every_name_and_every_selector_is_the_runs_own(everything):
    run = run_of(everything)["run"]

    assert [each["metadata"]["name"] for each in everything if not each["metadata"]["name"].startswith(f"{run}-")] == []
    for chosen in selectors(everything):
        terms = chosen.get("matchLabels", {})
        assert terms.get(INSTANCE) == (run if terms.get(NAME) == "paceline" else None)
    (claim,) = named(everything, "StatefulSet", "paceline-server")["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["labels"][INSTANCE] == run


def selectors(found):
    """Every selector of pods in these objects; a Service has one without `matchLabels`."""
    for each in found:
        if isinstance(each, dict):
            if each.get("kind") == "Service":
                yield {"matchLabels": each["spec"]["selector"]}
            for key, value in each.items():
                if key in ("selector", "podSelector", "labelSelector") and {"matchLabels", "matchExpressions"} & set(
                    value
                ):
                    yield value
                elif isinstance(value, dict | list):
                    yield from selectors([value] if isinstance(value, dict) else value)


def test_ports_have_their_names_everywhere(everything):
    numbers = {"grpc": 50051, "health": 50052, "peer": 50053, "lane": 50054, "metrics": 9464}
    expected = {
        "server": {"grpc", "lane", "health", "metrics"},
        "worker": {"peer", "metrics"},
        "evaluator": {"metrics"},
        "sharder": {"metrics"},
        "controller": set(),
    }
    for part, each, spec in pods(everything):
        ports = {port["name"]: port["containerPort"] for port in only_container(spec).get("ports", [])}
        served = {"grpc", "health"} if STREAMS in each["metadata"]["labels"] else set()
        assert set(ports) == expected[part] | served
        assert all(numbers[name] == port for name, port in ports.items())
    for service in of_kind(everything, "Service"):
        for port in service["spec"]["ports"]:
            assert port["name"] == port["targetPort"]
            assert port["port"] == numbers[port["name"]]


def test_each_server_has_an_address_before_it_is_ready(everything):
    service, servers = (named(everything, kind, "paceline-server") for kind in ("Service", "StatefulSet"))

    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert servers["spec"]["serviceName"] == service["metadata"]["name"]
    assert servers["spec"]["podManagementPolicy"] == "Parallel"


def test_servers_keep_their_checkpoints_whatever_happens_to_them(everything):
    servers = named(everything, "StatefulSet", "paceline-server")["spec"]
    (claim,) = servers["volumeClaimTemplates"]

    assert servers["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert (claim["metadata"]["name"], claim["spec"]["accessModes"]) == ("checkpoints", ["ReadWriteOnce"])
    assert {"name": "checkpoints", "mountPath": "/checkpoints"} in container_of(everything, "server")["volumeMounts"]


def test_a_drain_may_stop_all_servers_at_once_and_waits_for_nobody(everything):
    (budget,) = of_kind(everything, "PodDisruptionBudget")
    servers = named(everything, "StatefulSet", "paceline-server")["spec"]

    assert budget["spec"]["maxUnavailable"] == "100%"
    assert budget["spec"]["selector"] == servers["selector"]


def test_probes_ask_the_health_port_alone_and_leave_time_to_restore(everything):
    server = container_of(everything, "server")
    probes = {name: server[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}

    assert all(probe["grpc"] == {"port": 50052} for probe in probes.values())
    assert probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"] >= 300
    assert probes["liveness"]["periodSeconds"] * probes["liveness"]["failureThreshold"] >= 60


def test_who_is_stopped_has_time_to_leave(everything):
    seconds = {part: spec["terminationGracePeriodSeconds"] for part, _, spec in pods(everything)}

    assert seconds["server"] > 60
    assert all(each >= 20 for each in seconds.values())


@pytest.mark.parametrize("overlay", TASKS)
def test_the_config_says_all_that_its_task_would(overlay, config):
    """Only the sharder adds a task's own settings; servers and workers take the file as it is."""
    path = K8S / "overlays" / overlay / "run.yaml"

    assert load(path, task=load_task(*task_of(path)).settings) == config


def test_the_config_that_pods_read_is_the_overlays_file(overlay, plain):
    config = next(each for each in of_kind(plain, "ConfigMap") if "paceline-config" in each["metadata"]["name"])

    assert re.fullmatch(rf"{run_of(plain)['run']}-paceline-config-[a-z0-9]{{10}}", config["metadata"]["name"])
    assert config["data"] == {"run.yaml": (K8S / "overlays" / overlay / "run.yaml").read_text()}


@cache
def planned(overlay):
    """`paceline plan` of an overlay: its servers."""
    pytest.importorskip("torch")
    config = load(K8S / "overlays" / overlay / "run.yaml")
    return plan_report(config, task_shapes(config))["servers"]


@pytest.mark.parametrize("overlay", TASKS)
def test_servers_may_use_the_memory_that_the_plan_suggests(overlay, plain):
    suggested = max(server["limit"] for server in planned(overlay))
    found = {key: quantity(each["memory"]) for key, each in container_of(plain, "server")["resources"].items()}

    assert found == {"limits": suggested, "requests": suggested}


@pytest.mark.parametrize("overlay", TASKS)
def test_checkpoints_fit_into_their_claims(overlay, config, plain):
    largest = max(server["memory"]["weights"] + server["memory"]["optimizer"] for server in planned(overlay))
    (claim,) = named(plain, "StatefulSet", "paceline-server")["spec"]["volumeClaimTemplates"]

    assert (config.checkpoint.keep + 1) * largest < quantity(claim["spec"]["resources"]["requests"]["storage"])


def test_threads_follow_the_cpu_limit(everything):
    for part, _, spec in pods(everything):
        container = only_container(spec)
        threads = next(each for each in container["env"] if each["name"] == "OMP_NUM_THREADS")
        assert threads["valueFrom"]["resourceFieldRef"]["resource"] == "limits.cpu"
        told = "--threads=$(OMP_NUM_THREADS)" in container.get(
            "args", []
        ) or '"threads": $(OMP_NUM_THREADS)' in told_in(container)
        assert told is (part in ("worker", "evaluator"))


def told_in(container):
    """What a script gets where it runs; '' in other pods."""
    return next((each["value"] for each in container["env"] if each["name"] == CONNECT), "")


def told_script(container):
    """The same, in a pod of rank 1 with one CPU."""
    return ToldLaunched.model_validate(json.loads(re.sub(r"\$\(\w+\)", "1", told_in(container))))


def command_of(module, args):
    """The typer command that a pod starts, and what is left of its arguments."""
    if module == "paceline.sharder" and args[:1] == ["serve"]:
        from paceline.sharder.serve import main

        args = args[1:]
    elif module == "paceline.sharder":
        from paceline.sharder.sharding import shard as main
    elif module == "paceline.server":
        from paceline.server.__main__ import main
    elif module == "paceline.worker":
        from paceline.worker.__main__ import main
    elif module == "paceline.worker.evaluator":
        from paceline.worker.evaluator import main
    else:
        assert module == "paceline_k8s.controller"
        from paceline_k8s.controller import main
    app = typer.Typer()
    app.command()(main)
    return typer.main.get_command(app), args


def test_processes_understand_their_arguments(everything):
    for part, _, spec in pods(everything):
        container = only_container(spec)
        assert container["command"][:3] == ["python", "-P", "-m"]
        given = {variable["name"] for variable in container["env"]}
        assert set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))) <= given
        if container["command"][3] == "paceline.worker.script":
            assert (told_script(container).config, container["args"]) == (Path("/etc/paceline/run.yaml"), [])
            assert told_script(container).name == {"worker": "worker-1", "evaluator": "evaluator"}[part]
            continue
        command, args = command_of(
            container["command"][3], [re.sub(r"\$\(\w+\)", "1", arg) for arg in container["args"]]
        )
        parsed = command.make_context(part, list(args)).params
        assert parsed["config"] == Path("/etc/paceline/run.yaml")
        assert parsed.get("run", "1") == "1"


def argument(container, name):
    return next(arg.partition("=")[2] for arg in container["args"] if arg.startswith(f"--{name}="))


def test_processes_are_told_the_addresses_that_exist(everything):
    servers, workers = (
        named(everything, *which)["spec"]
        for which in (("StatefulSet", "paceline-server"), ("StatefulSet", "paceline-worker"))
    )
    assert servers["serviceName"] == f"{run_of(everything)['run']}-paceline-server"
    address = "$(RUN)-paceline-server-{}.$(RUN)-paceline-server:50051"

    assert argument(container_of(everything, "server"), "chief") == address.format(0)
    for part in ("worker", "evaluator"):
        container = container_of(everything, part)
        if is_script(everything):
            assert told_script(container).servers == address.replace("$(RUN)", "1")
        else:
            assert argument(container, "servers") == address
    told = {each["name"]: each.get("valueFrom", {}) for each in only_container(workers["template"]["spec"])["env"]}
    assert told["POD_IP"]["fieldRef"]["fieldPath"] == "status.podIP"
    assert told["RUN"]["fieldRef"]["fieldPath"] == f"metadata.labels['{INSTANCE}']"
    streams = any("paceline-shards" in service["metadata"]["name"] for service in of_kind(everything, "Service"))
    for part in ("worker", "evaluator"):
        told = [arg for arg in container_of(everything, part)["args"] if arg.startswith("--shard-server")]
        assert told == (["--shard-server=$(RUN)-paceline-shards:50051"] if streams else [])


def test_all_that_is_mounted_exists_and_nothing_else_is_named(everything):
    claims = {each["metadata"]["name"] for each in of_kind(everything, "PersistentVolumeClaim")}
    configs = {each["metadata"]["name"] for each in of_kind(everything, "ConfigMap")}
    used = set()
    for part, each, spec in pods(everything):
        templates = {claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", [])}
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        mounts = {mount["name"] for each in spec.get("initContainers", []) for mount in each["volumeMounts"]}
        assert {mount["name"] for mount in only_container(spec)["volumeMounts"]} | mounts == set(volumes) | templates
        for volume in volumes.values():
            used |= {volume.get("persistentVolumeClaim", {}).get("claimName")} - {None}
            if "configMap" in volume:
                assert volume["configMap"]["name"] in configs
            if volume["name"] == "object-store":
                assert volume["secret"]["secretName"] == STORE_SECRET, "as the input data it is of no run"
            elif "secret" in volume:
                name = "tls" if volume["name"] == "tls" else "token"
                secret = f"{run_of(everything)['run']}-paceline-{name}"
                assert volume["name"] in ("token", "secret", "tls")
                assert volume["secret"] == {"secretName": secret, "defaultMode": 0o440}
                assert f"create secret generic demo-paceline-{name}" in PAGES
        assert ("token" in volumes) is (part != "sharder" or STREAMS in each["metadata"]["labels"])
    assert used - {DATA} == claims, "the input data is of no run"


@pytest.mark.parametrize("case", EVERYTHING, ids="+".join)
def test_only_servers_get_the_run_s_secret_all_others_a_token_of_their_own(case, folder):
    found = rendered(case, folder)
    roles = {"worker": ["worker", "worker-$(POD_INDEX)"], "evaluator": ["evaluator"]}
    for part, each, spec in pods(found):
        secret = {v["name"] for v in spec["volumes"] if v.get("secret", {}).get("secretName", "").endswith("-token")}
        seen = {mount["name"] for mount in only_container(spec)["volumeMounts"]}
        makers = spec.get("initContainers", [])
        assert bool(secret & seen) is (part == "server"), part
        assert bool(makers) is (part != "server" and (part != "sharder" or STREAMS in each["metadata"]["labels"]))
        for maker in makers:
            options = dict(word.removeprefix("--").split("=", 1) for word in maker["args"][1:])
            made = [options["role"], *([options["name"]] if "name" in options else [])]
            assert made == roles.get(part, ["reader", {"sharder": "shards"}.get(part, part)])
            assert maker["args"][0] == "$(RUN)"
            assert options["out"] == argument_of_token(only_container(spec))
            assert {mount["name"] for mount in maker["volumeMounts"]} == {*secret, "token"}
            assert maker["image"] == only_container(spec)["image"]


def argument_of_token(container):
    """Where the process looks for its token, as an option or as a script's variable."""
    words = [*container.get("args", []), *(each.get("value", "") for each in container["env"])]
    return next(found[1] for word in words if (found := re.search(r'token[-_]file"?[=:] ?"?([^",]+)', word)))


@pytest.mark.parametrize("case", EVERYTHING, ids="+".join)
def test_every_process_that_others_call_or_that_calls_gets_the_keys(case, folder):
    found = rendered(case, folder)
    workers = named(found, "StatefulSet", "paceline-worker")["spec"]
    names = named(found, "Service", "paceline-worker")
    for part, each, spec in pods(found):
        if part == "sharder" and STREAMS not in each["metadata"]["labels"]:
            continue
        variables = {each["name"]: each.get("value") for each in only_container(spec)["env"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in only_container(spec)["volumeMounts"]}
        assert variables[TLS] == mounts["tls"]
        (keys,) = [volume["secret"]["secretName"] for volume in spec["volumes"] if volume["name"] == "tls"]
        assert keys == f"{run_of(found)['run']}-paceline-tls"
    assert workers["serviceName"] == names["metadata"]["name"]
    assert names["spec"]["clusterIP"] == "None"
    if not is_script(found):
        host = "$(POD).$(RUN)-paceline-worker.$(NAMESPACE).svc"
        assert argument(only_container(workers["template"]["spec"]), "peer-host") == host


def test_readers_mount_shards_and_data_read_only(everything):
    alone = any(STREAMS in each["metadata"]["labels"] for _, each, _ in pods(everything))  # one pod has the claim
    nobody = not [each for each in of_kind(everything, "PersistentVolumeClaim") if "shards" in each["metadata"]["name"]]
    for part, _, spec in pods(everything):
        mounts = {mount["mountPath"]: mount for mount in only_container(spec)["volumeMounts"]}
        holder = next((volume for volume in spec["volumes"] if volume["name"] == "shards"), {})
        assert ("persistentVolumeClaim" in holder) is (
            not nobody and (part == "sharder" or (part in ("worker", "evaluator") and not alone))
        )
        if part in ("worker", "evaluator"):
            place = "/script" if is_script(everything) else "/shards"
            copies = alone or (nobody and not is_script(everything))
            assert mounts[place].get("readOnly", False) is not copies
        assert all(
            mounts[path].get("readOnly")
            for path in ("/data", "/etc/paceline", "/script", *(["/run/secrets/paceline"] if part == "server" else []))
            if path in mounts
        )
        assert ("/models" in mounts) is (part == "evaluator")


def test_shards_are_written_beside_their_place_in_the_volume(everything):
    """What is renamed must be inside the volume, and not the volume itself."""
    if is_script(everything):
        assert "sharder" not in {part for part, _, _ in pods(everything)}
        return
    for part, option in (("sharder", "out"), ("worker", "shards"), ("evaluator", "shards")):
        assert argument(container_of(everything, part), option) == "/shards/run"


def test_data_of_ones_own_is_where_the_config_looks_for_it(everything):
    path = run_of(everything).get("data", {}).get("path", "bundled")
    reader = "worker" if is_script(everything) else "sharder"
    mounts = {mount["mountPath"] for mount in container_of(everything, reader)["volumeMounts"]}

    assert path == "bundled" or (Path("/data") in (Path(path), Path(path).parent) and "/data" in mounts)


def test_the_config_says_how_shards_come_to_workers(overlay, config):
    assert (config.data.source == "server") is ("data-server" in listed(overlay))


@pytest.mark.parametrize("case", CASES, ids="+".join)
def test_only_workers_ask_for_gpus_and_only_where_they_are_told_to(case, folder):
    there = (*case, *listed(case[0]))
    wanted = "gpu" in there

    for part, _, spec in pods(rendered(case, folder)):
        gpus = only_container(spec)["resources"]["limits"].get("nvidia.com/gpu")
        assert gpus == ("1" if wanted and part == "worker" else None)
        tolerated = "nvidia.com/gpu" in [each["key"] for each in spec.get("tolerations", [])]
        assert tolerated is (wanted and part == "worker")
        container = only_container(spec)
        device = {each["name"]: each.get("value", "") for each in container.get("env", ())}.get("DEVICE")
        assert device == (("cuda" if wanted else "auto") if part == "worker" else None)
        said = str(container.get("args")) + str(container.get("env"))
        assert ("$(DEVICE)" in said) is (part == "worker")


@pytest.mark.parametrize("case", [case for case in CASES if "spot" in case.values[0]], ids="+".join)
def test_workers_prefer_spot_nodes_and_the_others_avoid_them(case, folder):
    for part, _, spec in pods(rendered(case, folder)):
        affinity = spec.get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
        operators = {expression["operator"] for term in terms for expression in term["preference"]["matchExpressions"]}
        assert operators == {"worker": {"In"}, "controller": set()}.get(part, {"NotIn"})
        tolerated = {each["key"] for each in spec.get("tolerations", [])} - {"nvidia.com/gpu"}
        assert bool(tolerated) is (part == "worker")


def test_nobody_may_do_anything_in_the_cluster_but_the_controller_four_things(everything):
    run = run_of(everything)["run"]
    roles = [role["rules"] for role in of_kind(everything, "Role")]
    accounts = {part: spec.get("serviceAccountName") for part, _, spec in pods(everything)}

    parts = [f"{run}-paceline-{part}" for part in ("server", "worker", "evaluator", "sharder") if part in accounts]
    allowed = [
        {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["list"]},
        {"apiGroups": ["apps"], "resources": ["statefulsets/scale"], "resourceNames": parts, "verbs": ["patch"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [f"{run}-paceline-state"],
            "verbs": ["get", "patch"],
        },
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]
    assert roles == [allowed]
    controller = f"{run}-paceline-controller"
    assert accounts.pop("controller") == controller
    assert not any(accounts.values())
    for binding in of_kind(everything, "RoleBinding"):
        assert binding["roleRef"]["name"] == controller
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": controller}]


def passes(policies, source, target, protocol, port):
    """Whether these NetworkPolicies let `source` reach `target`; both are (namespace, labels), None: outside of the cluster."""
    found = open_ports(policies, source, target)
    return found is None or (protocol, port) in found


def open_ports(policies, source, target):
    """The (protocol, port) that `source` reaches of `target`, None: all."""

    def of(way, key, here, there):
        mine = [
            policy["spec"]
            for policy in policies
            if here is not None
            and here[0] == "run"
            and way in policy["spec"]["policyTypes"]
            and selected(policy["spec"]["podSelector"], here[1])
        ]
        rules = [rule for policy in mine for rule in policy.get(way.lower(), [])]
        allowed = [rule for rule in rules if key not in rule or any(is_peer(peer, there) for peer in rule[key])]
        ports = {(port["protocol"], port["port"]) for rule in allowed for port in rule["ports"] if len(port) == 2}
        return ports if mine else None

    def is_peer(peer, other):
        if other is None or "ipBlock" in peer:
            return False
        namespace, labels = other
        if "namespaceSelector" in peer:
            here = selected(peer["namespaceSelector"], {"kubernetes.io/metadata.name": namespace})
        else:
            here = namespace == "run"
        return here and selected(peer["podSelector"], labels)

    egress, ingress = of("Egress", "to", source, target), of("Ingress", "from", target, source)
    return egress if ingress is None else ingress if egress is None else egress & ingress


@pytest.mark.parametrize("case", CLOSED, ids="+".join)
def test_policies_let_through_what_the_parts_need_and_nothing_else(case, folder):
    found = rendered(case, folder)
    policies = of_kind(found, "NetworkPolicy")
    places = {labels[PART]: ("run", labels) for labels in pod_labels(found)}
    strangers = {
        "prometheus": ("monitoring", {NAME: "prometheus"}),
        "prometheus-here": ("run", {NAME: "prometheus"}),
        "stranger": ("run", {}),
        "stranger-elsewhere": ("other", dict(places["worker"][1])),
        "stranger-monitoring": ("monitoring", {}),
        "dns": ("kube-system", {"k8s-app": "kube-dns"}),
        "outside": None,
    }
    needed = {(source, "server", 50051) for source in ("worker", "evaluator", "server", "controller")}
    parts = parts_of(found)
    needed |= {(source, "sharder", 50051) for source in ("worker", "evaluator") if "sharder" in parts}
    needed |= {("sharder", "server", 50051)} if "sharder" in parts else set()
    needed |= {(source, "server", 50054) for source in ("worker", "evaluator")}
    needed |= {(source, "worker", 50053) for source in ("worker", "evaluator")}
    needed |= {(source, part, 9464) for source, part in product(("prometheus", "prometheus-here"), parts)}
    needed |= {(part, "dns", 53) for part in parts}
    needed |= {("controller", who, port) for who, port in product(strangers, (443, 6443))}
    readers = {"sharder", "worker", "evaluator"} & set(parts) if {"object-store", IN_BUCKET} & set(case) else set()
    readers |= {"server"} if readers and SNAPSHOTS in case else set()
    needed |= {(reader, who, 443) for reader, who in product(readers, strangers)}
    everybody = places | strangers

    looked_at = {("TCP", port) for port in (53, 443, 6443, 9464, 50051, 50052, 50053, 50054)}
    reached = {
        (source, target, port)
        for source, target in product(everybody, everybody)
        if source in places or target in places
        for found in [open_ports(policies, everybody[source], everybody[target])]
        for _, port in (looked_at if found is None else looked_at & found)
    }

    assert set(places) == set(parts)
    assert reached == needed
    assert all(passes(policies, places[part], strangers["dns"], "UDP", 53) for part in parts)


def test_who_comes_from_outside_reaches_servers_and_shards_at_one_port_each(folder):
    found = rendered(("demo", "outside"), folder)
    policies = of_kind(found, "NetworkPolicy")
    open_ports = {
        (labels[PART], port)
        for labels, port in product(pod_labels(found), (9464, 50051, 50052, 50053, 50054))
        if passes(policies, None, ("run", labels), "TCP", port)
    }

    assert open_ports == {("server", 50051), ("sharder", 50051)}


@pytest.mark.parametrize("case", CASES, ids="+".join)
def test_each_server_has_a_port_on_the_nodes_only_where_that_is_asked_for(case, folder):
    found = rendered(case, folder)
    outside = {
        each["metadata"]["name"].partition("-paceline-outside-")[2]: each["spec"]
        for each in of_kind(found, "Service")
        if each["spec"].get("type") == "NodePort"
    }

    there = {"server-0", "server-1"} | (set() if is_script(found) else {"shards"}) if "outside" in case else set()
    assert set(outside) == there
    for name in there - {"shards"}:
        assert outside[name]["selector"][POD_INDEX] == name.removeprefix("server-")


@pytest.mark.parametrize("case", EVERYTHING, ids="+".join)
def test_what_is_private_on_one_machine_is_a_whole_volume_here_which_its_group_shares(case, folder):
    for part, _, spec in pods(rendered(case, folder)):
        container = only_container(spec)
        told = [word for word in container.get("args", []) if word.startswith(("--folder=", "--models="))]
        assert told or part not in ("server", "evaluator") or is_script(rendered(case, folder))
        for place in (word.partition("=")[2] for word in told):
            assert place in [each["mountPath"] for each in container["volumeMounts"]]
            assert spec["securityContext"]["fsGroup"] == 10001


@pytest.mark.parametrize("case", CASES, ids="+".join)
def test_only_who_uses_an_object_store_gets_its_keys(case, folder):
    for part, _, spec in pods(rendered(case, folder)):
        there = part in ("sharder", "worker", "evaluator") and bool({"object-store", IN_BUCKET} & set(case))
        there |= part == "server" and SNAPSHOTS in case
        container = only_container(spec)
        secret = {"secretRef": {"name": STORE_SECRET, "optional": True}}
        assert container.get("envFrom", []) == ([secret] if there else [])
        files = {volume["name"]: volume.get("secret") for volume in spec["volumes"]}.get("object-store")
        assert (files is not None and files["optional"]) is there
        assert ("/run/secrets/object-store" in [each["mountPath"] for each in container["volumeMounts"]]) is there


def demo_folder(folder, components):
    """A copy of the overlay demo with these components alone."""
    place = folder / "k8s/overlays/demo"
    shutil.copytree(K8S, folder / "k8s")
    kustomization = yaml.safe_load((place / "kustomization.yaml").read_text()) | {"components": components}
    (place / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return place


def with_patches_of_the_page(folder, *words, more=()):
    """demo with object-store, `more` components, and those blocks of its page that have one of these words."""
    names = ("network-policy", "object-store", *more)
    place = demo_folder(folder, [f"../../components/{name}" for name in names])
    kustomization = yaml.safe_load((place / "kustomization.yaml").read_text())
    blocks = re.findall(r"```yaml\n(- target.*?)```", STORES.read_text(), re.DOTALL)
    kustomization["patches"] = [
        patch for block in blocks if any(word in block for word in words) for patch in yaml.safe_load(block)
    ]
    assert kustomization["patches"]
    (place / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return objects(render(place))


def test_a_store_in_the_cluster_is_reached_as_its_page_says_and_nothing_else_is(tmp_path):
    found = with_patches_of_the_page(tmp_path, "minio")
    policies = of_kind(found, "NetworkPolicy")
    sharder = next(("run", labels) for labels in pod_labels(found) if labels[PART] == "sharder")
    store = ("minio", {"app": "minio"})

    assert passes(policies, sharder, store, "TCP", 9000)
    assert passes(policies, sharder, ("kube-system", {"k8s-app": "kube-dns"}), "UDP", 53)
    assert not passes(policies, sharder, store, "TCP", 443)
    assert not passes(policies, sharder, ("minio", {}), "TCP", 9000)
    assert not passes(policies, sharder, None, "TCP", 443)


def test_servers_may_keep_their_folder_in_the_pod_as_the_page_says(tmp_path):
    found = with_patches_of_the_page(tmp_path, "volumeClaimTemplates", more=[SNAPSHOTS])

    server = next(each for each in of_kind(found, "StatefulSet") if each["metadata"]["labels"][PART] == "server")
    assert not server["spec"].get("volumeClaimTemplates")
    spec = server["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["checkpoints"]["emptyDir"] == {"sizeLimit": "10Gi"}
    folders = [quantity(each["emptyDir"]["sizeLimit"]) for each in volumes.values() if "emptyDir" in each]
    assert quantity(only_container(spec)["resources"]["limits"]["ephemeral-storage"]) >= sum(folders)
    policies = of_kind(found, "NetworkPolicy")
    pod = next(("run", labels) for labels in pod_labels(found) if labels[PART] == "server")
    assert passes(policies, pod, None, "TCP", 443)
    assert not [wrong for each in found if (wrong := complaint(json.dumps(each, sort_keys=True), NEWEST))]


def test_who_reads_a_store_still_reaches_the_run_where_no_other_policy_says_so(tmp_path):
    found = objects(render(demo_folder(tmp_path, ["../../components/object-store"])))
    policies = of_kind(found, "NetworkPolicy")
    of_part = {labels[PART]: ("run", labels) for labels in pod_labels(found)}

    assert [each["metadata"]["name"] for each in policies] == ["demo-paceline-object-store"]
    for target, port in (("server", 50051), ("server", 50054), ("sharder", 50051), ("worker", 50053)):
        assert passes(policies, of_part["worker"], of_part[target], "TCP", port)


def test_a_service_account_is_the_sharders_alone_as_the_page_says(tmp_path):
    found = with_patches_of_the_page(tmp_path, "serviceAccountName", "169.254.169.254")

    accounts = {part: spec.get("serviceAccountName") for part, _, spec in pods(found)}
    assert accounts == {
        "server": None,
        "worker": None,
        "evaluator": None,
        "sharder": "data-reader",
        "controller": "demo-paceline-controller",
    }
    labels = next(labels for labels in pod_labels(found) if labels[PART] == "sharder")
    assert labels["azure.workload.identity/use"] == "true"
    policy = named(found, "NetworkPolicy", "paceline-object-store")
    assert policy["spec"]["egress"][-1]["to"][0] == {"ipBlock": {"cidr": "169.254.169.254/32"}}
    assert not [wrong for each in found if (wrong := complaint(json.dumps(each, sort_keys=True), NEWEST))]


@pytest.mark.parametrize("case", EVERYTHING, ids="+".join)
def test_every_policy_selects_somebody(case, folder):
    found = rendered(case, folder)

    for policy in of_kind(found, "NetworkPolicy"):
        assert any(selected(policy["spec"]["podSelector"], labels) for labels in pod_labels(found))


PATCH = """patches:
- patch: |-
    apiVersion: apps/v1
    kind: StatefulSet
    metadata: {name: paceline-evaluator}
    spec: {template: {spec: {containers: [{name: evaluator, resources: {limits: {memory: 3Gi}}}]}}}
"""


@cache
def templates_of(place=K8S / "overlays/demo"):
    """The templates of an overlay's pods, by what they are."""
    return {
        part: json.dumps(each["spec"]["template"], sort_keys=True) for part, each, _ in pods(objects(render(place)))
    }


ALL = ["controller", "evaluator", "server", "sharder", "worker"]


@pytest.mark.parametrize(
    ("file", "old", "new", "others"),
    [
        ("run.yaml", "epochs: 20", "epochs: 30", ALL),
        ("kustomization.yaml", 'newTag: "0.1.0"', 'newTag: "0.2.0"', ALL),
        ("kustomization.yaml", "patches:\n", PATCH, ["evaluator"]),
        ("kustomization.yaml", "files: [run.yaml]", "files: [run.yaml, mine.py]", ALL),
    ],
    ids=["settings", "image", "limit", "own policy"],
)
def test_an_edit_changes_the_templates_that_it_means_and_no_names(tmp_path, file, old, new, others):
    shutil.copytree(K8S, tmp_path / "k8s")
    place = tmp_path / "k8s/overlays/demo"
    (place / "mine.py").write_text("# a policy\n")

    before = templates_of()
    (place / file).write_text((place / file).read_text().replace(old, new))
    after = templates_of(place)

    assert sorted(part for part in before if before[part] != after[part]) == others
    assert before.keys() == after.keys()


def test_no_manifest_says_how_many_there_are_so_no_apply_changes_that(everything):
    assert not [each["metadata"]["name"] for _, each, _ in pods(everything) if "replicas" in each["spec"]]


def test_what_the_controller_notes_is_not_in_the_manifests_so_no_apply_changes_it(everything):
    assert "data" not in named(everything, "ConfigMap", "paceline-state")


def test_no_two_processes_of_a_part_are_ever_made_for_one_rank(everything):
    for part, each, _ in pods(everything):
        if part == "controller":
            assert each["spec"]["strategy"] == {"type": "Recreate"}
        else:
            assert (each["kind"], each["spec"]["podManagementPolicy"]) == ("StatefulSet", "Parallel")


def test_an_edited_script_starts_workers_and_evaluator_again():
    parts = of_kind(objects(render(K8S / "overlays/script")), "StatefulSet")

    names = [name for part in parts if (name := script_of(part))]
    assert len(names) == 2
    assert all(re.fullmatch("script-paceline-script-[a-z0-9]{10}", name) for name in names)


@pytest.fixture(scope="module")
def monitoring():
    return objects(render(K8S / "overlays" / "monitoring"))


def demo_with(component, folder, more=""):
    """The overlay demo with one more component, as a user would write it."""
    shutil.copytree(K8S, folder / "k8s")
    mine = folder / "k8s" / "overlays" / "mine"
    mine.mkdir()
    text = f"resources: [../demo]\ncomponents: [../../components/{component}]\n{more}"
    (mine / "kustomization.yaml").write_text(text)
    return objects(render(mine))


def templates(found):
    return [each["spec"]["template"] for each in of_kind(found, "Deployment", "StatefulSet")]


def pod_of(found, name):
    return next(pod["spec"] for pod in templates(found) if pod["metadata"]["labels"][NAME] == name)


def test_the_pods_of_the_monitoring_meet_the_restricted_pod_security(monitoring):
    for pod in templates(monitoring):
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
            for amounts in ("limits", "requests"):
                assert container["resources"][amounts].keys() == {"cpu", "memory", "ephemeral-storage"}
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
            assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", container["image"]), "a tag that does not move"


def test_the_monitoring_may_only_look_at_parts_of_its_namespace(monitoring):
    assert of_kind(monitoring, "ClusterRole", "ClusterRoleBinding") == []
    rules = {
        (role["metadata"]["name"], resource): set(rule["verbs"])
        for role in of_kind(monitoring, "Role")
        for rule in role["rules"]
        for resource in rule["resources"]
    }
    assert rules == {
        ("paceline-prometheus", "pods"): {"get", "list", "watch"},
        ("paceline-kube-state-metrics", "pods"): {"list", "watch"},
        ("paceline-kube-state-metrics", "statefulsets"): {"list", "watch"},
    }
    assert not pod_of(monitoring, "grafana")["automountServiceAccountToken"]


def test_services_and_policies_of_the_monitoring_select_its_pods(monitoring):
    labels = [pod["metadata"]["labels"] for pod in templates(monitoring)]
    for service in of_kind(monitoring, "Service"):
        assert sum(service["spec"]["selector"].items() <= each.items() for each in labels) == 1
    policies = of_kind(monitoring, "NetworkPolicy")
    assert [sum(selected(policy["spec"]["podSelector"], each) for policy in policies) for each in labels] == [1, 1, 1]


def test_prometheus_of_the_monitoring_asks_a_kube_state_metrics_that_knows_what_the_alerts_need(monitoring):
    (config,) = [
        each["data"]["prometheus.yml"] for each in of_kind(monitoring, "ConfigMap") if "prometheus.yml" in each["data"]
    ]
    (scrape,) = [each for each in yaml.safe_load(config)["scrape_configs"] if "static_configs" in each]
    host, port = scrape["static_configs"][0]["targets"][0].split(":")
    (service,) = [each for each in of_kind(monitoring, "Service") if each["metadata"]["name"] == host]
    assert service["spec"]["ports"][0]["port"] == int(port)
    assert scrape["honor_labels"]
    (container,) = pod_of(monitoring, "kube-state-metrics")["containers"]
    told = dict(argument.removeprefix("--").split("=", 1) for argument in container["args"])
    alerts = ALERTS.read_text()
    assert {f"{name}s" for name in re.findall(r"\bkube_([a-z]+)_", alerts)} == set(told["resources"].split(","))
    label = told["metric-labels-allowlist"].removeprefix("pods=[").removesuffix("]")
    assert f'label_{re.sub(r"[^a-z0-9]", "_", label)}="true"' in alerts


def test_grafana_of_the_monitoring_finds_its_data_source_and_the_dashboard(monitoring):
    maps = {each["metadata"]["name"].split("-")[1]: each["data"] for each in of_kind(monitoring, "ConfigMap")}
    (source,) = yaml.safe_load(maps["grafana"]["datasources.yaml"])["datasources"]
    services = {each["metadata"]["name"]: each["spec"]["ports"][0]["port"] for each in of_kind(monitoring, "Service")}
    host, port = source["url"].removeprefix("http://").split(":")
    assert services[host] == int(port)
    assert source["isDefault"]
    (provider,) = yaml.safe_load(maps["grafana"]["dashboards.yaml"])["providers"]
    grafana = pod_of(monitoring, "grafana")
    mounts = {mount["mountPath"]: mount["name"] for mount in grafana["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume.get("configMap", {}).get("name") for volume in grafana["volumes"]}
    assert volumes[mounts[provider["options"]["path"]]] == "paceline-dashboard"


def test_monitoring_by_monitors_selects_every_part_of_a_run_by_ports_that_there_are(tmp_path):
    more = """patches:
- target: {group: monitoring.coreos.com}
  patch: |-
    - {op: replace, path: /metadata/labels/release, value: mine}
"""
    found = demo_with("monitoring", tmp_path, more)
    (of_servers,), (of_pods,) = of_kind(found, "ServiceMonitor"), of_kind(found, "PodMonitor")
    services, chosen = of_kind(found, "Service"), of_servers["spec"]["selector"]
    (service,) = [each for each in services if selected(chosen, each["metadata"]["labels"])]
    assert of_servers["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    seen = set()
    for pod in templates(found):
        labels, ports = pod["metadata"]["labels"], pod["spec"]["containers"][0].get("ports", [])
        if selected(of_pods["spec"]["selector"], labels):
            seen.add(labels[PART])
            assert of_pods["spec"]["podMetricsEndpoints"][0]["port"] in {port["name"] for port in ports}
    assert seen == {"worker", "evaluator", "sharder"}
    ours = of_kind(found, "ServiceMonitor", "PodMonitor", "PrometheusRule")
    assert [each["metadata"]["labels"]["release"] for each in ours] == ["mine"] * 3
    maps = of_kind(found, "ConfigMap")
    boards = [list(each["data"]) for each in maps if each["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert boards == [["paceline.json"]]


def test_settings_and_scripts_are_changed_by_another_configmap_only_and_all_parts_name_their_release(overlay, folder):
    found = rendered((overlay,), folder)

    files = [each for each in of_kind(found, "ConfigMap") if each.get("data")]
    assert files
    assert all(each["immutable"] for each in files)
    labels = [each["metadata"]["labels"] for each in found]
    assert {each["app.kubernetes.io/version"] for each in labels} == {version("paceline")}
    assert {each["app.kubernetes.io/managed-by"] for each in labels} == {"paceline"}


def test_monitoring_by_annotations_is_on_every_pod_that_has_metrics(tmp_path):
    found = demo_with("prometheus", tmp_path)
    maps = {each["metadata"]["name"]: list(each["data"]) for each in of_kind(found, "ConfigMap") if "data" in each}
    assert maps["paceline-alerts"] == ["alerts.yaml"]
    for pod in (each for each in templates(found) if each["metadata"]["labels"][PART] != "controller"):
        ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0].get("ports", [])}
        told = pod["metadata"].get("annotations", {})
        assert told.get("prometheus.io/port") == str(ports["metrics"])
        assert told["prometheus.io/scrape"] == "true"
