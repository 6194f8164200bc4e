"""A training script of the user's in an overlay: its ConfigMap, the settings that name it, and what is refused."""

import copy
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline_k8s import deploy as deploying
from paceline_k8s.kubectl import Kubectl
from paceline_k8s.overlay import Changes, Overlay, read_overlay
from paceline_k8s.script import MOST, is_script, put_script, script_of
from paceline_k8s.wanted import Memory, Result
from tests.support.kubectl import Cluster, settings_map, state_map, statefulset
from tests.support.tree import ROOT

RUN = {"run": "script", "task": "/script/train.py", "data": {"source": "script"}, "arguments": []}
HERE = Path("k8s/overlays/script")
LABELS = {"app.kubernetes.io/component": "worker"}


def documents(run: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """A worker's StatefulSet with the ConfigMaps of its settings and its script."""
    volumes = [
        {"name": "script", "configMap": {"name": "script-paceline-script-a", "optional": True}},
        {"name": "config", "configMap": {"name": "script-paceline-config-b"}},
    ]
    settings = yaml.safe_dump(RUN if run is None else run)
    return [
        {"kind": "ConfigMap", "metadata": {"name": "script-paceline-script-a"}, "data": {"train.py": "pass\n"}},
        {
            "kind": "ConfigMap",
            "metadata": {"name": "script-paceline-config-b"},
            "data": {"run.yaml": settings, "mine.py": ""},
        },
        {
            "kind": "StatefulSet",
            "metadata": {"name": "script-paceline-worker", "labels": LABELS},
            "spec": {"template": {"spec": {"volumes": volumes}}},
        },
    ]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """It imports a file next to it, which imports another one; the fourth is nobody's."""
    (tmp_path / "mine.py").write_text("import json\nimport model\nfrom torch import nn\n")
    (tmp_path / "model.py").write_text("from layers import layer\nimport mine\n")
    for name in ("layers", "other"):
        (tmp_path / f"{name}.py").write_text("layer = 1\n")
    return tmp_path / "mine.py"


def test_a_script_goes_with_the_files_beside_it_that_it_imports(script: Path):
    found = documents()

    put_script(found, HERE, script, ["--lr", "0.1"])

    own, config, part = found
    assert set(own["data"]) == {"mine.py", "model.py", "layers.py"}
    assert own["data"]["mine.py"] == script.read_text()
    run = yaml.safe_load(config["data"]["run.yaml"])
    assert (run["task"], run["arguments"], run["run"]) == ("/script/mine.py", ["--lr", "0.1"], "script")
    assert "mine.py" in config["data"]
    mounted = [volume["configMap"]["name"] for volume in part["spec"]["template"]["spec"]["volumes"]]
    assert mounted == [own["metadata"]["name"], config["metadata"]["name"]]
    assert script_of(part) == own["metadata"]["name"] != "script-paceline-script-a"
    assert [is_script(each) for each in found] == [True, False, False]


def test_a_changed_script_has_another_name_and_the_same_one_has_not(script: Path):
    def name() -> str:
        found = documents()
        put_script(found, HERE, script, [])
        return script_of(found[-1])

    first = name()
    assert name() == first
    script.write_text("print()\n")
    assert name() != first


def test_a_script_without_arguments_gets_those_of_run_yaml(script: Path):
    found = documents()
    found[1]["data"]["run.yaml"] = yaml.safe_dump(RUN | {"arguments": ["--lr", "0.1"]})

    put_script(found, HERE, script, ())

    assert yaml.safe_load(found[1]["data"]["run.yaml"])["arguments"] == ["--lr", "0.1"]


def test_arguments_alone_leave_the_overlays_own_script():
    found = documents()

    put_script(found, HERE, None, ["--lr", "0.1"])

    assert script_of(found[-1]) == "script-paceline-script-a"
    run = yaml.safe_load(found[1]["data"]["run.yaml"])
    assert (run["task"], run["arguments"]) == ("/script/train.py", ["--lr", "0.1"])


@pytest.mark.parametrize(
    ("name", "content", "told_of"),
    [
        ("train.txt", "", "There is no Python file"),
        ("train.py", None, "There is no Python file"),
        ("train.py", "def (", "is not Python"),
        ("train.py", "import library\n", "imports the folder library.* Make an image"),
        ("train.py", f"text = '{'é' * MOST}'\n", r"2,097,\d+ bytes, .*ConfigMap takes 1,048,576.* Make an image"),
    ],
)
def test_a_file_that_can_not_go_is_refused(tmp_path: Path, name: str, content: str | None, told_of: str):
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "__init__.py").touch()
    if content is not None:
        (tmp_path / name).write_text(content)

    with pytest.raises(ConfigError, match=told_of):
        put_script(documents(), HERE, tmp_path / name, [])


def test_an_overlay_of_a_task_takes_no_script(script: Path):
    with pytest.raises(ConfigError, match=r"runs no script, so it takes neither SCRIPT nor ARGS. Use OVERLAY=script"):
        put_script(documents({"run": "demo", "task": "digits"}), Path("k8s/overlays/demo"), script, [])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here to render with")
def test_the_overlay_takes_a_script_and_fits_it(script: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)

    found = read_overlay(Kubectl("here"), "script", Changes(script, ["--epochs", "3"]))

    assert found.config.is_script
    assert found.config.arguments == ("--epochs", "3")
    for part in ("worker", "evaluator"):
        one = found.find("StatefulSet", part)
        assert one is not None
        assert script_of(one) in [each["metadata"]["name"] for each in found.documents if is_script(each)]


@pytest.mark.parametrize("is_over", [True, False])
def test_a_finished_run_does_not_go_on_with_a_changed_script(script: Path, is_over: bool):
    before, now = documents(), documents()
    put_script(now, HERE, script, [])
    kept = Memory(Result(20, "accuracy .9")) if is_over else None
    cluster = Cluster(statefulset("server", 0), settings_map(), state_map(kept), before[-1])

    deploying._may_wake(cluster, Overlay(copy.deepcopy(before), Config()))
    with (
        pytest.raises(ConfigError, match=r"with another script.*another name \(RUN=.*make teardown purge")
        if is_over
        else nullcontext()
    ):
        deploying._may_wake(cluster, Overlay(now, Config()))


def test_a_script_is_applied_without_the_note_that_takes_a_quarter_of_it():
    cluster = Cluster()

    deploying.apply_all(cluster, documents())

    (by_server, own), (plain, rest) = zip(cluster.calls, cluster.stdin, strict=True)
    assert "--server-side" in by_server
    assert yaml.safe_load(own or "")["metadata"]["name"] == "script-paceline-script-a"
    assert "--server-side" not in plain
    assert [each["kind"] for each in yaml.safe_load_all(rest or "")] == ["ConfigMap", "StatefulSet"]
