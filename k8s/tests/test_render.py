"""The manifests of a run as its run.yaml and a profile make them: what follows from the settings, what from the platform, and
what is refused. kubectl's own kustomize puts them together."""

import shutil
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from paceline.core.errors import ConfigError, UsageError
from paceline_k8s.commands import app
from paceline_k8s.kubectl import COMPONENT, Kubectl, containers
from paceline_k8s.overlay import Changes, Overlay, read_overlay
from paceline_k8s.profile import PROFILES, read_profile
from paceline_k8s.render import text_of, write
from tests.support.tree import ROOT

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here to render with")

PLATFORM = {
    "images": {
        "server": "registry.example/team/paceline-server:1.2",
        "worker": "registry.example/team/paceline-worker:1.2",
        "sharder": "registry.example/team/paceline-sharder@sha256:" + "0" * 64,
    }
}
RUN = {"run": "mine", "task": "digits", "workers": 3, "servers": 2}


def rendered(folder: Path, run: dict[str, Any] | None = None, platform: dict[str, Any] | None = None) -> Overlay:
    """The objects of RUN and PLATFORM with these settings on top."""
    (folder / "run.yaml").write_text(yaml.safe_dump(RUN | (run or {})))
    (folder / "platform.yaml").write_text(yaml.safe_dump(PLATFORM | (platform or {})))
    changes = Changes(profile=str(folder / "platform.yaml"))
    return read_overlay(Kubectl("here"), str(folder / "run.yaml"), changes)


def parts(overlay: Overlay) -> dict[str, dict[str, Any]]:
    """What makes pods, by component."""
    found = [one for one in overlay.documents if one["kind"] in ("StatefulSet", "Deployment")]
    return {one["metadata"]["labels"][COMPONENT]: one for one in found}


def pods(overlay: Overlay) -> dict[str, dict[str, Any]]:
    return {name: one["spec"]["template"]["spec"] for name, one in parts(overlay).items()}


def volumes(overlay: Overlay, part: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in pods(overlay)[part]["volumes"]}


def settings(overlay: Overlay) -> dict[str, str]:
    """The ConfigMap with run.yaml."""
    return next(one["data"] for one in overlay.documents if "run.yaml" in one.get("data", {}))


def without_checksums(documents: list[dict[str, Any]]) -> str:
    """The objects as text, with one name for each ConfigMap."""
    text = yaml.safe_dump_all(sorted(documents, key=lambda one: (one["kind"], one["metadata"]["name"])))
    for one in documents:
        if one["kind"] == "ConfigMap":
            text = text.replace(one["metadata"]["name"], one["metadata"]["name"].rpartition("-")[0])
    return text.replace("data: {}\n", "")


def test_the_demos_settings_with_the_profile_cpu_are_the_overlay_demo():
    demo = ROOT / "k8s/overlays/demo"

    by_profile = read_overlay(Kubectl("here"), str(demo / "run.yaml"))

    assert without_checksums(by_profile.documents) == without_checksums(
        read_overlay(Kubectl("here"), str(demo)).documents
    )


def test_settings_that_say_a_name_keep_their_comments_and_another_name_is_that_of_all_parts(tmp_path: Path):
    file = tmp_path / "run.yaml"
    file.write_text("# ours\nrun: mine\ntask: digits\n")

    assert settings(read_overlay(Kubectl("here"), str(file)))["run.yaml"] == file.read_text()
    other = read_overlay(Kubectl("here", "other"), str(file))
    assert (other.run, yaml.safe_load(settings(other)["run.yaml"])["run"]) == ("other", "other")
    assert all(one["metadata"]["name"].startswith("other-") for one in other.documents)


def test_a_platform_says_images_accounts_nodes_sizes_and_claims_of_all_parts(tmp_path: Path):
    found = rendered(
        tmp_path,
        platform={
            "pull_secret": "registry",
            "service_account": "trainers",
            "storage_class": "fast",
            "shared_storage": True,
            "storage": {"shards": "10Gi", "checkpoints": "4Gi"},
            "priority_class": "paceline-servers",
            "components": ["gpu"],
            "resources": {"worker": {"limits": {"cpu": 8}}},
            "node_selector": {"nvidia.com/gpu.product": "NVIDIA-L4"},
            "tolerations": [{"key": "team", "operator": "Exists"}],
            "patches": [
                {
                    "target": {"kind": "StatefulSet", "name": "paceline-worker"},
                    "patch": "- {op: add, path: /spec/template/spec/hostname, value: patched}",
                }
            ],
        },
    )

    images = {container["image"] for one in found.documents for container in containers(one)}
    assert images == set(PLATFORM["images"].values())
    assert {name: pod.get("serviceAccountName") for name, pod in pods(found).items()} == {
        **dict.fromkeys(("server", "worker", "evaluator", "sharder"), "trainers"),
        "controller": "mine-paceline-controller",
    }
    for pod in pods(found).values():
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert {"key": "team", "operator": "Exists"} in pod["tolerations"]
    worker = pods(found)["worker"]
    assert {"nvidia.com/gpu", "team"} <= {each["key"] for each in worker["tolerations"]}
    assert worker["nodeSelector"]["nvidia.com/gpu.product"] == "NVIDIA-L4"
    assert worker["hostname"] == "patched"
    limits = worker["containers"][0]["resources"]["limits"]
    assert (limits["cpu"], limits["memory"], limits["nvidia.com/gpu"]) == ("8", "1536Mi", "1")
    claims = [one for one in found.documents if one["kind"] == "PersistentVolumeClaim"]
    claims += parts(found)["server"]["spec"]["volumeClaimTemplates"]
    sizes = {one["metadata"]["name"]: one["spec"]["resources"]["requests"]["storage"] for one in claims}
    assert sizes == {"mine-paceline-shards": "10Gi", "mine-paceline-models": "1Gi", "checkpoints": "4Gi"}
    assert {one["spec"]["storageClassName"] for one in claims} == {"fast"}
    shared = [one["metadata"]["name"] for one in claims if one["spec"]["accessModes"] == ["ReadWriteMany"]]
    assert shared == ["mine-paceline-shards"]
    assert {name: pod.get("priorityClassName") for name, pod in pods(found).items()} == {
        **dict.fromkeys(("server", "evaluator", "sharder"), "paceline-servers"),
        **dict.fromkeys(("worker", "controller")),
    }


def test_the_order_in_which_a_platform_names_its_components_makes_no_difference(tmp_path: Path):
    names = ["tls", "network-policy", "outside", "gpu"]

    texts = {
        without_checksums(rendered(tmp_path, {"data": {"source": "server"}}, {"components": list(order)}).documents)
        for order in list(permutations(names))[::5]
    }

    assert len(texts) == 1


@pytest.mark.parametrize(
    ("data", "part", "volume"),
    [
        ({"source": "server"}, "worker", {"emptyDir": {"sizeLimit": "20Gi"}}),
        ({"shards_at": "s3://mine/shards"}, "worker", {"emptyDir": {"sizeLimit": "20Gi"}}),
        ({}, "worker", {"persistentVolumeClaim": {"claimName": "mine-paceline-shards"}}),
    ],
)
def test_where_shards_lie_follows_from_the_settings(
    data: dict[str, Any], part: str, volume: dict[str, Any], tmp_path: Path
):
    found = rendered(tmp_path, {"data": data})

    assert volumes(found, part)["shards"] == {"name": "shards", **volume}


def test_data_of_the_claim_or_of_an_object_store_reach_the_sharder(tmp_path: Path):
    table = {"task": "rcv1", "updates": "sparse", "data": {"path": "/data/rcv1"}}

    assert (
        volumes(rendered(tmp_path, table), "sharder")["data"]["persistentVolumeClaim"]["claimName"] == "paceline-data"
    )
    table["data"]["path"] = "s3://ours/rcv1"
    assert "object-store" in volumes(rendered(tmp_path, table), "sharder")
    assert "data" not in volumes(rendered(tmp_path, table), "sharder")


@pytest.mark.parametrize(
    "data", [{}, {"path": "s3://ours/rcv1"}, {"path": "s3://ours/rcv1", "shards_at": "s3://ours/shards"}]
)
def test_the_evaluator_gets_the_keys_of_the_store_that_models_are_sent_to(data: dict[str, Any], tmp_path: Path):
    rcv1 = {"task": "rcv1", "updates": "sparse", "data": {"path": "/data/rcv1"} | data}
    assert ("object-store" in volumes(rendered(tmp_path, rcv1), "evaluator")) is bool(data)

    assert "object-store" in volumes(rendered(tmp_path, rcv1 | {"models_at": "s3://ours/models"}), "evaluator")


@pytest.mark.parametrize("data", [{}, {"shards_at": "s3://ours/shards"}])
def test_servers_get_the_keys_of_the_store_that_snapshots_are_sent_to(data: dict[str, Any], tmp_path: Path):
    rcv1 = {"task": "rcv1", "updates": "sparse", "data": {"path": "/data/rcv1"} | data}
    assert "object-store" not in volumes(rendered(tmp_path, rcv1), "server")

    found = rendered(tmp_path, rcv1 | {"checkpoint": {"at": "s3://ours/checkpoints"}})
    assert {"object-store", "checkpoints"} & set(volumes(found, "server")) == {"object-store"}
    assert "object-store" in volumes(found, "worker")


def test_a_platform_may_give_all_runs_the_claim_of_the_data_and_the_keys_of_a_store(tmp_path: Path):
    found = rendered(tmp_path, platform={"components": ["data", "object-store"]})

    assert {"data", "object-store"} <= set(volumes(found, "sharder"))
    assert {"data", "object-store"} & set(volumes(found, "worker")) == {"object-store"}


def test_a_run_waits_in_the_platforms_queue_with_all_its_pods(tmp_path: Path):
    found = rendered(tmp_path, platform={"queue": "team-a"})

    template = parts(found)["worker"]["spec"]["template"]["metadata"]
    assert template["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert template["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == str(found.pods) == "7"


def test_a_queue_counts_the_workers_that_a_patch_leaves_in_the_cluster(tmp_path: Path):
    target = {"kind": "StatefulSet", "name": "paceline-worker"}
    fewer = "- {op: add, path: /metadata/annotations, value: {paceline.dev/workers: '1'}}"

    found = rendered(tmp_path, platform={"queue": "team-a", "patches": [{"target": target, "patch": fewer}]})

    template = parts(found)["worker"]["spec"]["template"]["metadata"]
    assert template["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == str(found.pods) == "5"


def test_a_script_goes_with_what_it_imports_and_gets_the_claim_that_its_arguments_name(tmp_path: Path):
    (tmp_path / "train.py").write_text("import layers\n")
    (tmp_path / "layers.py").write_text("")
    script = {"task": "train.py", "data": {"source": "script"}, "arguments": ["--data=/data/a"]}

    found = rendered(tmp_path, script)

    config = yaml.safe_load(settings(found)["run.yaml"])
    assert config["task"] == "/script/train.py"
    files = next(one["data"] for one in found.documents if "-paceline-script-" in one["metadata"]["name"])
    assert set(files) == {"train.py", "layers.py"}
    assert "sharder" not in parts(found)
    assert {"script", "data"} <= set(volumes(found, "worker"))
    stored = rendered(tmp_path, script | {"arguments": ["--data", "s3://ours/a"]})
    assert "data" not in volumes(stored, "worker")
    assert "object-store" in volumes(stored, "worker")


def test_a_script_and_arguments_of_the_command_take_the_place_of_those_in_the_settings(tmp_path: Path):
    for name in ("train.py", "other.py"):
        (tmp_path / name).write_text("")
    rendered(tmp_path, {"task": "train.py", "data": {"source": "script"}})
    changes = Changes(tmp_path / "other.py", ["--data", "/data/a"], profile=str(tmp_path / "platform.yaml"))

    found = read_overlay(Kubectl("here"), str(tmp_path / "run.yaml"), changes)

    config = yaml.safe_load(settings(found)["run.yaml"])
    assert (config["task"], config["arguments"]) == ("/script/other.py", ["--data", "/data/a"])
    assert "data" in volumes(found, "worker")
    rendered(tmp_path)
    with pytest.raises(ConfigError, match="runs no script, so it takes neither SCRIPT nor ARGS"):
        read_overlay(Kubectl("here"), str(tmp_path / "run.yaml"), changes)


def test_a_task_and_a_policy_in_files_go_next_to_the_settings(tmp_path: Path):
    (tmp_path / "mine.py").write_text("import layers\nSETTINGS = {'epochs': 3}\n")
    (tmp_path / "layers.py").write_text("")
    (tmp_path / "rule.py").write_text((ROOT / "paceline/core/policies/builtin/bsp.py").read_text())

    found = rendered(tmp_path, {"task": "mine.py", "policy": "rule.py"})

    assert set(settings(found)) == {"run.yaml", "mine.py", "layers.py", "rule.py"}
    assert yaml.safe_load(settings(found)["run.yaml"])["task"] == "/etc/paceline/mine.py"
    assert found.config.epochs == 3


@pytest.mark.parametrize(
    ("platform", "key_fact"),
    [
        ({"imges": {}}, "imges: there is no such setting. Did you mean 'images'?"),
        ({"images": {"server": "a:1"}}, "images.worker"),
        ({"images": {**PLATFORM["images"], "server": "x/y:latest"}}, "x/y:latest has no fixed tag"),
        ({"components": ["data-server"]}, "data-server follows from run.yaml"),
        ({"components": ["kueue"]}, "kueue follows from queue of the profile"),
        (
            {"components": ["gpus"]},
            "there is no component 'gpus'; expected some of checkpoints-in-bucket, dashboard, data,",
        ),
        ({"resources": {"worker": {"limits": {"cpu": "four"}}}}, "resources.worker.limits.cpu: got 'four'"),
        ({"resources": {"workers": {}}}, "resources.workers"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused(platform: dict[str, Any], key_fact: str, tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        rendered(tmp_path, platform=platform)

    assert key_fact in str(caught.value)


@pytest.mark.parametrize(
    ("run", "key_fact"),
    [
        ({"run": None}, "has no 'run: NAME'"),
        ({"run": "Mine"}, "got 'Mine'"),
        ({"task": "absent.py"}, "there is no such file, neither next to it nor here"),
        ({"task": "rcv1", "updates": "sparse", "data": {"path": "./a.csv"}}, "make put-data DATA=./a.csv"),
        ({"task": "svm", "updates": "sparse", "data": {"path": "wine.csv"}}, "set the path to /data/wine.csv"),
    ],
)
def test_settings_that_make_no_run_on_a_cluster_are_refused(run: dict[str, Any], key_fact: str, tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        rendered(tmp_path, run)

    assert key_fact in str(caught.value)


def test_an_unknown_profile_is_named_with_those_that_there_are_and_an_overlay_takes_none(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"no profile 'gpuu'.*cpu, gpu, sparse"):
        read_profile("gpuu")
    with pytest.raises(UsageError, match="takes no profile"):
        read_overlay(Kubectl("here"), str(ROOT / "k8s/overlays/demo"), Changes(profile="cpu"))


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.yaml")))
def test_every_profile_that_comes_with_paceline_makes_a_run(name: str, tmp_path: Path):
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(RUN))

    found = read_overlay(Kubectl("here"), str(tmp_path / "run.yaml"), Changes(profile=name))

    worker = pods(found)["worker"]["containers"][0]
    assert worker["image"].startswith(
        "localhost/paceline-worker-slim:" if name == "sparse" else "localhost/paceline-worker:"
    )
    assert ("nvidia.com/gpu" in worker["resources"]["limits"]) is (name == "gpu")


def test_the_file_has_texts_as_they_are_and_says_which_secrets_it_needs(tmp_path: Path):
    env = {"name": "wandb", "secret": {"secretName": "wandb-key"}}
    added = {
        "target": {"kind": "StatefulSet", "name": "paceline-worker"},
        "patch": yaml.safe_dump([{"op": "add", "path": "/spec/template/spec/volumes/-", "value": env}]),
    }
    run = {"models_at": "s3://ours/models"}
    found = rendered(tmp_path, run, {"components": ["tls"], "pull_secret": "registry", "patches": [added]})

    text = text_of(found.documents, "paceline k8s render run.yaml")

    assert list(yaml.safe_load_all(text)) == found.documents
    assert "\n    run: mine\n" in text
    head = text.partition("apiVersion")[0]
    assert "Made by `paceline k8s render run.yaml`" in head
    assert "kubectl create secret generic mine-paceline-token --from-literal=token=" in head
    assert all(f"the Secret {name}: " in head for name in ("mine-paceline-tls", "registry", "wandb-key"))
    assert "the Secret paceline-object-store: keys, unless a service account" in head


def test_a_rendered_file_is_written_again_and_another_one_is_not_touched(tmp_path: Path):
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(RUN))
    out, other = tmp_path / "out.yaml", tmp_path / "notes.yaml"
    other.write_text("mine\n")
    for _ in range(2):
        done = CliRunner().invoke(app, ["render", str(tmp_path / "run.yaml"), "--tag", "9.9", "--out", str(out)])
        assert done.exit_code == 0
    assert "localhost/paceline-server:9.9" in out.read_text()

    with pytest.raises(UsageError, match="was not rendered"):
        write("text", other)
    assert other.read_text() == "mine\n"


@pytest.mark.parametrize(
    ("listed", "wrong"),
    [
        (("network-policy", "data", "script"), "data before script"),
        (("tls", "network-policy", "outside"), "tls before network-policy"),
        (("kueue", "gpu", "object-store"), "kueue before object-store"),
        (("spot", "network-policy", "gpu", "script", "object-store", "data"), ""),
    ],
)
def test_components_in_an_order_that_loses_something_are_named(
    tmp_path: Path, listed: tuple[str, ...], wrong: str
) -> None:
    components = "".join(f"- ../../components/{name}\n" for name in listed)
    (tmp_path / "kustomization.yaml").write_text(f"kind: Kustomization\ncomponents:\n{components}")

    with pytest.raises(ConfigError) as error:
        read_overlay(Kubectl("here"), str(tmp_path))

    assert (
        f"lists the component {wrong}" in str(error.value) if wrong else "lists the component" not in str(error.value)
    )
