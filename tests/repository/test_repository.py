"""What a stranger finds in the repository: licence, project metadata, CI, hooks. Nothing is installed or built."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
JOBS: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
MAKEFILE = (ROOT / "Makefile").read_text()
STANDARD_TEXT = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""sha256 of https://www.apache.org/licenses/LICENSE-2.0.txt."""


def runs(job: str) -> list[str]:
    """The command lines of a job of the workflow."""
    return [line for step in JOBS[job]["steps"] for line in step.get("run", "").splitlines()]


def programs(folder: Path, **scripts: str) -> dict[str, str]:
    """An environment whose PATH begins with these programs, each written down in `folder`/calls when it is called."""
    folder.mkdir(exist_ok=True)
    for name, script in scripts.items():
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{folder}/calls\n{script}\n')
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}


def called(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []


def run(*command: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=30, check=False)


def test_the_licence_is_apaches_text_and_the_metadata_says_so() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == STANDARD_TEXT
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["license-files"] == ["LICENSE"]


def test_files_that_the_metadata_names_go_into_the_image_build() -> None:
    copied = re.findall(r"^COPY (.*) \./$", (ROOT / "docker/Dockerfile").read_text(), re.MULTILINE)

    assert {PROJECT["readme"], *PROJECT["license-files"]} < {name for line in copied for name in line.split()}


def test_the_changelog_knows_the_version() -> None:
    assert re.search(rf"^## \[{re.escape(PROJECT['version'])}\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    "folder",
    ["benchmarks", "k8s/paceline_k8s", "paceline", "papers/paceline_papers", "studies/paceline_studies", "tools"],
)
def test_a_function_or_class_is_not_named_by_what_was_done_to_it(folder: str) -> None:
    named = re.compile(
        r"^ *(?:async )?(?:def|class) _*(?:told|found|said|asked|kept|given|place)\b", re.MULTILINE | re.IGNORECASE
    )

    # through its links: the programs of servers, workers and sharder are in the package
    files = [Path(top, name) for top, _, names in os.walk(ROOT / folder, followlinks=True) for name in names]
    code = [file for file in files if file.suffix == ".py"]

    assert code
    assert {f"{file}: {match[0].strip()}" for file in code for match in named.finditer(file.read_text())} == set()


def test_what_contributing_sends_people_to_is_there() -> None:
    named = re.findall(r"`([\w./*<> -]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    paths = {word for text in named for word in text.split() if "/" in word and not re.search(r"[*<>]", word)}
    made = (".venv/", "build/")

    assert len(paths) > 40
    assert sorted(path for path in paths if not (ROOT / path).exists() and not path.startswith(made)) == []


@pytest.mark.parametrize("line", sorted({line for job in JOBS for line in runs(job)}))
def test_a_line_of_the_workflow_is_a_make_target_or_a_script_that_there_is(line: str) -> None:
    program, *arguments = shlex.split(line)

    if program == "make":
        targets = [word for word in arguments if "=" not in word]
        assert targets
        assert [word for word in targets if not re.search(rf"^{re.escape(word)}:", MAKEFILE, re.MULTILINE)] == []
    else:
        assert os.access(ROOT / program, os.X_OK)


def test_the_workflow_runs_the_commands_that_the_readme_begins_with() -> None:
    first = re.search(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert first

    promised = [line.partition("#")[0].strip() for line in first[1].splitlines()]
    assert promised == ["make demo", "make test"]
    assert {*promised, "make check"} <= set(runs("test"))


def test_every_job_of_the_workflow_ends_by_itself_and_its_cluster_is_in_the_repository() -> None:
    assert all(job["timeout-minutes"] for job in JOBS.values())
    assert (ROOT / JOBS["cluster"]["env"]["CLUSTER"] / "up").exists()


def test_hooks_take_the_programs_of_the_environment_that_the_lock_file_makes() -> None:
    (local,) = HOOKS
    entries = {hook["id"]: hook["entry"].split() for hook in local["hooks"]}

    assert local["repo"] == "local"
    assert {entry[0] for entry in entries.values()} == {".venv/bin/ruff", "make"}
    assert entries["make-check"] == ["make", "check"]
    check = re.search(r"^check:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert check
    for name in ("ruff check", "ruff format"):
        assert f"$(BIN)/{name}" in check[1]


def test_packages_for_tests_that_lack_are_installed_by_apt(tmp_path: Path) -> None:
    path = tmp_path / "bin"
    env = programs(path, id="echo 1000", sudo='exec "$@"', **{"apt-get": ""})
    for name in ("bash", "env", "sh"):
        (path / name).symlink_to(str(shutil.which(name)))
    env["PATH"] = str(path)

    listed = run(".ci/packages", "--list", env=env)
    assert listed.returncode == 0
    assert called(path) == []
    for name in ("promtool", "java", "g++", "kubectl", "helm"):
        assert f"{name} is not there" in listed.stderr

    assert run(".ci/packages", env=env).returncode == 0
    asked = [call for call in called(path) if call.startswith("apt-get")]
    packages = "prometheus default-jre-headless g++"
    assert asked == ["apt-get update -qq", f"apt-get install -y -qq --no-install-recommends {packages}"]


def test_packages_that_are_there_are_left_alone(tmp_path: Path) -> None:
    env = programs(tmp_path, **dict.fromkeys(("apt-get", "g++", "helm", "java", "kubectl", "promtool"), ""))

    done = run(".ci/packages", env=env)

    assert (done.returncode, done.stderr, called(tmp_path)) == (0, "", [])


def test_ci_prints_each_step_with_its_seconds_and_ends_with_the_first_one_that_fails(tmp_path: Path) -> None:
    env = programs(tmp_path, make='[ "$1" != check ] || exit 3') | {"CLUSTER": str(tmp_path / "none")}

    done = run(".ci/run", env=env)

    assert done.returncode == 3
    assert called(tmp_path) == ["make setup", "make test SECOND_CHANCE=yes", "make kube-score", "make check"]
    _, steps = done.stdout.split("== all steps:\n")
    assert [re.sub(r"\d+ s", "0 s", line) for line in steps.splitlines()] == [
        "0 s, exit 0: make setup",
        "0 s, exit 0: make test SECOND_CHANCE=yes",
        "0 s, exit 3: make check",
    ]


def test_without_a_cluster_the_end_to_end_test_is_left_out_with_a_message(tmp_path: Path) -> None:
    done = run(".ci/e2e", env={**os.environ, "CLUSTER": str(tmp_path / "none")})

    assert done.returncode == 0
    assert "none/up is not there): the end-to-end test is left out" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "images", "tests"),
    [
        ((), "server worker-slim sharder", "e2e/test_short.py"),
        (("all",), f"server worker-slim sharder worker-slim:{PROJECT['version']}-again", "e2e"),
    ],
)
def test_the_end_to_end_test_gets_a_cluster_with_the_images_and_takes_it_down(
    tmp_path: Path, arguments: tuple[str, ...], images: str, tests: str
) -> None:
    cluster, path = tmp_path / "cluster", tmp_path / "bin"
    programs(cluster, up='echo started; echo "/somewhere"', image="", down="")
    env = programs(path, make='echo "$KUBECONFIG"; [ "$1" != e2e ] || exit 3')
    env |= {"CLUSTER": str(cluster), "BASE_IMAGE": "python:3"}

    done = run(".ci/e2e", *arguments, env=env)

    assert done.returncode == 3
    assert called(path) == [
        f"make e2e-images CLUSTER={cluster} BASE_IMAGE=python:3 IMAGES={images}",
        f"make e2e TESTS={tests}",
    ]
    assert called(cluster) == ["up ", "image base python:3", "down "]
    steps = [re.sub(r"\d+ s", "0 s", line) for line in done.stdout.splitlines()]
    assert steps == [
        "== cluster up: 0 s",
        "== base image python:3: 0 s",
        "/somewhere",
        "/somewhere",
        f"== test {tests}: 0 s, exit code 3",
        "== cluster down: 0 s",
    ]


def test_the_end_to_end_test_says_which_tests_there_are(tmp_path: Path) -> None:
    done = run(".ci/e2e", "long", env={**os.environ, "CLUSTER": str(tmp_path / "none")})

    assert done.returncode == 64
    assert "got: long" in done.stderr


def test_kind_gives_a_cluster_takes_its_images_and_ends_it(tmp_path: Path) -> None:
    config = f"{tmp_path}/.kube/kind-paceline"
    env = programs(tmp_path, kind="", docker="")

    assert run(".ci/kind/up", env=env).stdout == f"{config}\n"
    assert run(".ci/kind/image", "base", "python:3", env=env).returncode == 0
    assert run(".ci/kind/image", "build", "localhost/a:1", ".", "--target", "a", env=env).returncode == 0
    assert run(".ci/kind/down", env=env).returncode == 0

    assert called(tmp_path) == [
        "kind get clusters",
        f"kind create cluster --name paceline --kubeconfig {config} --wait 180s",
        "docker image inspect python:3",
        "docker build --quiet --tag localhost/a:1 --target a .",
        "kind load docker-image localhost/a:1 --name paceline",
        f"kind delete cluster --name paceline --kubeconfig {config}",
    ]


def test_a_cluster_of_kind_that_is_there_is_taken_again(tmp_path: Path) -> None:
    env = programs(tmp_path, kind='[ "$1" != get ] || echo paceline')

    assert run(".ci/kind/up", env=env).returncode == 0
    config = f"{tmp_path}/.kube/kind-paceline"
    assert called(tmp_path)[1:] == [f"kind export kubeconfig --name paceline --kubeconfig {config}"]


def test_a_base_image_that_lacks_is_pulled(tmp_path: Path) -> None:
    env = programs(tmp_path, docker='[ "$1" = pull ]')

    assert run(".ci/kind/image", "base", "python:3", env=env).returncode == 0
    assert called(tmp_path) == ["docker image inspect python:3", "docker pull --quiet python:3"]


def test_an_image_of_kind_is_asked_for_by_name_and_folder(tmp_path: Path) -> None:
    done = run(".ci/kind/image", "build", "localhost/a:1", env=programs(tmp_path, docker="", kind=""))

    assert (done.returncode, called(tmp_path)) == (2, [])
    assert "image build NAME CONTEXT" in done.stderr
