"""Several runs in one namespace: how each is found, and how an overlay becomes a run of another name."""

import json
import shutil
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError, UsageError
from paceline_k8s import deploy as deploying
from paceline_k8s.cluster_status import _may_concern
from paceline_k8s.kubectl import Kubectl, containers
from paceline_k8s.overlay import Changes, Overlay, _image, config_of, read_overlay
from paceline_k8s.run_name import LONGEST, check_name, rename, the_run
from paceline_k8s.run_secrets import MADE_HERE
from tests.support.kubectl import Cluster
from tests.support.tree import ROOT

RUN = "app.kubernetes.io/instance"
NEEDS_KUBECTL = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here to render with")


def namespace_of(*runs: str, pods: int = 0, has_certificate: bool = False) -> Cluster:
    """Has parts of these runs."""
    objects = [("PersistentVolumeClaim", "paceline-models", RUN, run) for run in runs]
    objects += [("Pod", f"paceline-{number}", RUN, run) for run in runs for number in range(pods)]
    objects += [("Secret", "paceline-tls", MADE_HERE, run) for run in runs if has_certificate]
    made = [
        {"kind": kind, "metadata": {"name": f"{run}-{name}", "labels": {label: run}}}
        for kind, name, label, run in objects
    ]
    return Cluster(*made, namespace="team-a", run_name="")


def test_the_only_run_of_a_namespace_needs_no_name():
    assert the_run(namespace_of("a")).run_name == "a"
    assert the_run(namespace_of()).run_name == ""
    with pytest.raises(UsageError, match=r"There is no run in namespace team-a\. To start one: make deploy"):
        the_run(namespace_of(), is_needed=True)


def test_where_there_is_no_run_nothing_is_deleted():
    namespace, said = namespace_of(), list[str]()

    deploying.teardown(namespace, said.append)
    deploying.purge(namespace, said.append)

    assert (namespace.deleted, said) == ([], ["there is no run in namespace team-a"] * 2)


def test_one_of_several_runs_is_named():
    assert the_run(namespace_of("a", "b"), "b").run_name == "b"
    with pytest.raises(UsageError, match=r"Namespace team-a has 2 runs: a, b\. Say which: RUN=NAME"):
        the_run(namespace_of("a", "b"))


@pytest.mark.parametrize(("runs", "told"), [(("a", "b"), "it has a, b"), ((), "it has none")])
def test_a_run_that_is_not_there_is_told_with_those_that_are(runs: tuple[str, ...], told: str):
    with pytest.raises(UsageError, match=rf"There is no run c in namespace team-a; {told}\..*OVERLAY=.* RUN=c"):
        the_run(namespace_of(*runs), "c")


@pytest.mark.parametrize("name", ["", "Big", "1st", "a_b", "-a", "a-", "a.b", "a" * (LONGEST + 1), "a b"])
def test_a_name_that_kubernetes_does_not_take_is_refused(name: str):
    with pytest.raises(ConfigError, match=r"^RUN: got '.*'\. On Kubernetes a run's name has lower-case letters"):
        check_name(name, "RUN")


@pytest.mark.parametrize("name", ["a", "a1", "svm-hogwild-async", "a" * LONGEST])
def test_a_name_that_kubernetes_takes_is_taken(name: str):
    check_name(name, "RUN")


@NEEDS_KUBECTL
@pytest.mark.parametrize("name", ["demo", "script"])
def test_under_another_name_no_object_of_an_overlay_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    own, other = read_overlay(Kubectl("here"), name), read_overlay(Kubectl("here", "mine"), name)

    assert (own.run, other.run) == (name, "mine")
    assert [(one["kind"], one["metadata"]["name"].removeprefix(f"{name}-")) for one in own.documents] == [
        (one["kind"], one["metadata"]["name"].removeprefix("mine-")) for one in other.documents
    ]
    rest = [one if one["kind"] != "ConfigMap" else {**one, "data": {}} for one in other.documents]
    assert f'"{name}-paceline' not in json.dumps(rest)
    assert f'"{RUN}": "{name}"' not in json.dumps(rest)
    assert own.config == other.config.model_copy(update={"run": name})


@NEEDS_KUBECTL
@pytest.mark.parametrize(("wanted", "name"), [("", "mine"), ("demo", "demo")], ids=["none", "wins over it"])
def test_the_name_in_run_yaml_names_the_parts_where_no_other_is_asked_for(wanted: str, name: str, tmp_path: Path):
    shutil.copytree(ROOT / "k8s", tmp_path / "k8s")
    folder = tmp_path / "k8s/overlays/demo"
    (folder / "run.yaml").write_text((folder / "run.yaml").read_text().replace("run: demo", "run: mine"))

    found = read_overlay(Kubectl("here", wanted), str(folder))

    assert found.run == name
    assert all(one["metadata"]["name"].startswith(f"{name}-paceline-") for one in found.documents)


@NEEDS_KUBECTL
def test_the_images_come_from_the_registry_and_by_the_tag_that_deploy_names(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)

    found = read_overlay(Kubectl("here"), "demo", Changes(registry="r.example:5000/team/", tag="7"))

    images = {each["image"] for one in found.documents for each in containers(one)}
    assert images == {f"r.example:5000/team/paceline-{name}:7" for name in ("server", "worker", "sharder")}


@pytest.mark.parametrize("image", ["r.example/mine:3", "localhost/paceline-server@sha256:" + "0" * 64])
def test_an_image_of_others_and_one_by_its_digest_stay(image: str):
    assert _image(image, Changes(registry="r.example", tag="7")) == image


def test_what_users_add_to_an_overlay_gets_the_name_too():
    added = {"kind": "Service", "metadata": {"name": "demo-mine"}, "spec": {"told": ["demo-mine", "demo-other"]}}

    (found,) = rename([added], "demo", "b")

    assert found == {"kind": "Service", "metadata": {"name": "b-mine"}, "spec": {"told": ["b-mine", "demo-other"]}}


@pytest.mark.parametrize(
    ("run", "name", "concerns"),
    [
        ("demo", "demo-paceline-worker", True),
        ("demo", "checkpoints-demo-paceline-server-0", True),
        ("demo", "my-demo-paceline-worker", False),
        ("demo", "b-paceline-worker", False),
        ("demo", "paceline-data", True),
        ("", "b-paceline-worker", True),
    ],
)
def test_events_of_another_run_are_not_this_ones(run: str, name: str, concerns: bool):
    namespace = namespace_of()
    namespace.run_name = run

    assert _may_concern(namespace, {"involvedObject": {"name": name}}) is concerns


@NEEDS_KUBECTL
def test_a_wrong_name_is_told_before_the_overlay_is_changed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)

    with pytest.raises(ConfigError, match="RUN: got 'My_Run'"):
        read_overlay(Kubectl("here", "My_Run"), "demo")


def test_purge_deletes_the_runs_own_volumes_and_token_and_no_input_data():
    namespace, said = namespace_of("a", "b"), list[str]()

    deploying.purge(namespace.of_run("a"), said.append)

    assert namespace.deleted == ["secret/a-paceline-token", "persistentvolumeclaim/a-paceline-models"]
    assert said == ["deleted the token of run a", "deleted volume a-paceline-models"]
    namespace = namespace_of("a", has_certificate=True)
    deploying.purge(namespace.of_run("a"), said.append)
    assert namespace.deleted[:2] == ["secret/a-paceline-token", "secret/a-paceline-tls"]


def test_input_data_is_deleted_where_that_is_asked_for_and_no_run_reads_it():
    namespace, said = namespace_of("a"), list[str]()

    deploying.purge_data(namespace, said.append)
    assert namespace.deleted == ["persistentvolumeclaim/paceline-data"]
    with pytest.raises(UsageError, match=r"Runs that may read the input data still exist \(a, b\)"):
        deploying.purge_data(namespace_of("a", "b", pods=2), said.append)


def deployed(settings: str, ready: int = 2, replicas: int = 2) -> Cluster:
    """Has the run demo with these settings and this many servers that have been ready."""
    name = "demo-paceline-config-x"
    spec = {"volumes": [{"name": "config", "configMap": {"name": name}}]}
    servers = {
        "kind": "StatefulSet",
        "metadata": {"name": "demo-paceline-server"},
        "spec": {"replicas": replicas, "template": {"spec": spec}},
        "status": {"readyReplicas": ready},
    }
    config = {"kind": "ConfigMap", "metadata": {"name": name}, "data": {"run.yaml": settings}}
    return Cluster(servers, config, namespace="team-a")


CONFIG = {"kind": "ConfigMap", "data": {"run.yaml": "run: demo\ntask: digits\nepochs: 20\n"}}
NOW = Overlay([], config_of([CONFIG], "here"))


@pytest.mark.parametrize(("ready", "replicas"), [(2, 2), (0, 0)], ids=["trains", "finished"])
def test_an_overlay_of_another_run_with_the_same_name_is_refused_before_anything_is_changed(ready: int, replicas: int):
    there = deployed("run: demo\ntask: cifar10\nepochs: 20\n", ready, replicas)

    with pytest.raises(ConfigError, match=r"other settings: .*task=cifar10; task=digits.* \(before and now\).*RUN="):
        deploying._check_same_settings(there, NOW)


@pytest.mark.parametrize(
    "there",
    [
        deployed("run: demo\ntask: digits\nepochs: 20\nheartbeat: 1.0\n"),
        deployed("run: demo\ntask: digits\nepochs: 10\n", replicas=0),
        deployed("run: demo\ntask: cifar10\n", ready=0),
    ],
    ids=["what may change", "a finished run with fewer epochs", "no server was ever ready"],
)
def test_settings_that_may_change_are_changed(there: Cluster):
    deploying._check_same_settings(there, NOW)
