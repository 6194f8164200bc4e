"""The images' files, without building anything: locks, Dockerfile, what goes into a build, compose.yaml."""

import inspect
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from paceline.rpc.malloc import MALLOC_ENVIRONMENT
from paceline.server.__main__ import main as serve
from paceline.settings.load_settings import load
from paceline.sharder.sharding import shard
from paceline.worker.__main__ import main as work
from paceline.worker.evaluator import main as evaluate
from tests.support.tree import ROOT
from tools.dockerfile import Dockerfile

DOCKER = ROOT / "docker"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {"server": (), "worker-slim": ("sparse", "object-store"), "sharder": ("sharder", "object-store")}
EXTRAS |= {"worker": ("worker", "object-store")}
"""Image -> the extras of pyproject.toml that it is for."""
LOCKS_OF_SERVER = {"docker/build.lock", "docker/server.lock", "docker/object-store.lock"}
ENTRYPOINT = {"server": "server", "worker-slim": "worker", "sharder": "sharder", "worker": "worker"}
PIN = re.compile(r"([a-z0-9._-]+)==([^ ]+)")
FILE = Dockerfile()
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())


def torch_wanted():
    """The requirement of torch in pyproject.toml; tensorboard, also in that extra, is for those who start runs."""
    (torch,) = (text for text in PROJECT["optional-dependencies"]["worker"] if text.startswith("torch"))
    return torch


def wanted(image):
    """Name -> requirement of everything that the image asks for itself."""
    of_extra = {**PROJECT["optional-dependencies"], "worker": [torch_wanted()]}
    more = [each for extra in EXTRAS[image] for each in of_extra[extra]]
    return {canonicalize_name(r.name): r for r in map(Requirement, PROJECT["dependencies"] + more)}


def entries(path):
    """(name, version, hashes, who asks for it) of each entry of a lock file."""
    found = []
    for block in re.split(r"\n(?=[a-z])", path.read_text().strip()):
        pin = PIN.match(block)
        assert pin, f"{path.name} holds something that is not pinned: {block.splitlines()[0]}"
        found.append((pin[1], pin[2], re.findall(r"--hash=sha256:([0-9a-f]{64})", block), re.findall(r"#.*", block)))
    return found


@pytest.mark.parametrize("image", EXTRAS)
def test_a_lock_holds_what_pyproject_asks_for_and_nothing_else_does(image):
    found = entries(DOCKER / f"{image}.lock")

    asked = {canonicalize_name(name) for name, _, _, why in found if "pyproject.toml" in " ".join(why)}
    assert asked | ({"torch"} if image == "worker" else set()) == set(wanted(image)), "run `make lock`"
    for name, requirement in wanted(image).items():
        versions = [version for other, version, _, _ in found if canonicalize_name(other) == name]
        assert versions
        assert all(requirement.specifier.contains(v) for v in versions), f"{name} {versions}: run `make lock`"


@pytest.mark.parametrize("lock", sorted(DOCKER.glob("*.lock")), ids=lambda path: path.name)
def test_every_entry_of_a_lock_has_hashes_and_the_version_that_the_tests_use(lock):
    tested = {(name, version) for name, version, _, _ in entries(ROOT / "requirements.lock")}
    names = {name for name, _ in tested}

    for name, version, hashes, _ in entries(lock):
        assert hashes, name
        assert name not in names or (name, version) in tested, f"{name}=={version}: run `make lock`"


@pytest.mark.parametrize("image", EXTRAS)
def test_torch_is_in_the_worker_image_only(image):
    heavy = [name for name, *_ in entries(DOCKER / f"{image}.lock") if re.match(r"torch|triton|nvidia|cuda", name)]

    assert ("torch" in heavy) if image == "worker" else heavy == []


def test_the_libraries_of_object_stores_are_in_all_images_whatever_torch_is_taken():
    stores = {"s3fs", "gcsfs", "adlfs"}

    having = {image: stores & {name for name, *_ in entries(DOCKER / f"{image}.lock")} for image in EXTRAS}
    copies = ("COPY", "docker/object-store.lock /locks/")
    libraries = {
        image: next(rest for word, rest in FILE.chain(image) if rest.endswith("/opt/venv /opt/venv"))
        for image in EXTRAS
    }
    stages = {image: FILE.chain(rest.split()[0].removeprefix("--from=")) for image, rest in libraries.items()}

    assert having == {"server": set(), "worker-slim": stores, "sharder": stores, "worker": stores}
    assert all(copies in chain for chain in stages.values()), "the server's come from object-store.lock"


def test_makefile_and_dockerfile_take_the_torch_that_pyproject_names():
    (make,) = re.findall(r"^TORCH +\?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    arguments = [rest for word, rest in FILE.chain("worker-libraries") if word == "ARG"]
    (docker,) = (shlex.split(rest)[0] for rest in arguments if "TORCH=" in rest)

    assert (make, docker) == (torch_wanted(), f"TORCH={torch_wanted()}")


def test_every_stage_stands_on_the_base_image_or_on_another_stage():
    assert FILE.before == [("ARG", "BASE_IMAGE=python:3.11-slim-bookworm")]
    for base, _ in FILE.stages.values():
        assert base == "${BASE_IMAGE}" or base in FILE.stages


@pytest.mark.parametrize("image", EXTRAS)
def test_an_image_starts_one_process_in_exec_form_that_is_not_root(image):
    instructions = FILE.chain(image)

    (entrypoint,) = (rest for word, rest in instructions if word == "ENTRYPOINT")
    assert json.loads(entrypoint) == ["python", "-P", "-m", f"paceline.{ENTRYPOINT[image]}"]
    assert (ROOT / ENTRYPOINT[image] / "__main__.py").exists()
    assert [rest for word, rest in instructions if word == "USER"] == ["10001:10001"]
    assert not [word for word, _ in instructions if word == "CMD"]


@pytest.mark.parametrize("image", EXTRAS)
def test_an_image_gets_its_own_libraries_and_says_what_it_is(image):
    own = FILE.stages[image].instructions

    libraries = next(rest for word, rest in own if word == "COPY" and rest.endswith("/opt/venv"))
    below = FILE.chain(libraries.split()[0].removeprefix("--from="))
    locks = [rest.split()[0] for word, rest in below if word == "COPY"]
    assert locks[-1] == f"docker/{'object-store' if image == 'server' else image}.lock"
    told = " ".join(rest for word, rest in own if word == "LABEL")
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]+)"', told))
    assert labels.pop("description")
    assert labels == {"title": f"paceline-{image}", "version": "${VERSION}", "revision": "${REVISION}"}
    assert f"VERSION={PROJECT['version']}" in [rest for word, rest in own if word == "ARG"]


def test_pip_takes_only_wheels_whose_hashes_are_locked_but_for_torch_of_another_index():
    free = []
    for name, (_, instructions) in FILE.stages.items():
        for step in (rest for word, rest in instructions if word == "RUN"):
            for install in re.findall(r"pip --python \S+ install ([^;&]*)", step):
                if "--require-hashes -r" not in install and "--no-deps --no-index" not in install:
                    free.append((name, install.strip()))

    assert free == [("worker-libraries", '${TORCH_INDEX} "${TORCH}"')]
    assert "PIP_ONLY_BINARY=:all:" in dict(FILE.chain("builder"))["ENV"]


def test_an_image_sets_malloc_as_paceline_run_does_and_caches_where_it_may_write():
    items = [item for word, rest in FILE.chain("runtime") if word == "ENV" for item in shlex.split(rest)]
    environment = dict(item.split("=", 1) for item in items)

    assert {name: environment.get(name) for name in MALLOC_ENVIRONMENT} == MALLOC_ENVIRONMENT
    for name in ("HOME", "TMPDIR", "NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "MPLCONFIGDIR"):
        assert Path(environment[name]).is_relative_to("/cache")


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        "runs/digits/config.yaml",
        "searches/x",
        "tests/test_x.py",
        "token",
        ".env",
        "k8s/base/kustomization.yaml",
        "docker/run.yaml",
        "docs/run/images.md",
        "paceline/core/__pycache__/run.cpython-311.pyc",
        "server/__pycache__/app.cpython-311.pyc",
    ],
)
def test_a_build_does_not_see(path):
    assert FILE.ignores(path)


def test_a_build_sees_all_that_it_copies():
    taken = [path for stage in FILE.stages.values() for path in stage.copied]

    assert {"pyproject.toml", "paceline", "server", "sharder", "worker"} < set(taken)
    for path in [*taken, "paceline/core/chief/run.py", "paceline/settings/presets/hogwild.yaml"]:
        assert (ROOT / path).exists()
        assert not FILE.ignores(path)


def test_a_build_of_the_image_with_spark_sees_all_that_it_copies():
    lines = re.findall(r"^COPY (.*) \S+$", (ROOT / "examples/spark/Dockerfile").read_text(), re.MULTILINE)
    taken = [word for line in lines for word in line.split() if not word.startswith("--")]

    assert {"requirements-spark.lock", "README.md", "examples/spark/entrypoint.sh"} < set(taken)
    assert [path for path in taken if FILE.ignores(path)] == []


@pytest.fixture
def small(tmp_path):
    """A build's context: two images with the same code, of which one has libraries, too."""
    for path, text in {
        ".dockerignore": "*\n!docker/*.lock\n!code\n**/__pycache__\n",
        "docker/Dockerfile": "ARG BASE=x\nFROM ${BASE} AS code\nCOPY code code\nFROM ${BASE} AS libraries\n"
        "COPY docker/a.lock /\nFROM ${BASE} AS a\nCOPY --from=libraries / /\nCOPY --from=code / /\n"
        "FROM ${BASE} AS b\n# only code\nCOPY --from=code / /\n",
        "docker/a.lock": "numpy==1",
        "code/one.py": "1",
        "code/deep/two.py": "2",
        "tests/test_one.py": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def checksums(context, more=(), **arguments):
    """Of both images."""
    return [Dockerfile(context).checksum(image, arguments, more) for image in ("a", "b")]


def changes(before, after):
    """The names of the images whose checksum is another one."""
    return "".join(name for name, old, new in zip("ab", before, after, strict=True) if old != new)


@pytest.mark.parametrize(
    ("path", "text", "changed"),
    [
        ("code/deep/two.py", "3", "ab"),
        ("code/three.py", "", "ab"),
        ("docker/a.lock", "numpy==2", "a"),
        ("code/__pycache__/one.pyc", "1", ""),
        ("tests/test_one.py", "1", ""),
    ],
)
def test_a_checksum_is_that_of_the_files_that_an_image_takes(small, path, text, changed):
    before = checksums(small)

    (small / path).parent.mkdir(exist_ok=True)
    (small / path).write_text(text)

    assert changes(before, checksums(small)) == changed


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [("ARG BASE=x", "ARG BASE=y", "ab"), ("AS libraries", "AS libraries\nRUN a", "a"), ("# only code", "# code", "")],
)
def test_a_checksum_is_that_of_the_instructions_that_an_image_takes(small, old, new, changed):
    before, file = checksums(small), small / "docker/Dockerfile"

    file.write_text(file.read_text().replace(old, new))

    assert changes(before, checksums(small)) == changed


def test_a_checksum_is_that_of_a_files_mode_of_arguments_and_of_what_is_not_in_the_tree(small):
    found = [checksums(small), checksums(small, BASE="y"), checksums(small, more=["base image 1"])]
    (small / "code/one.py").chmod(0o755)
    found.append(checksums(small))

    assert len({each for pair in found for each in pair}) == 8


def test_a_line_is_added_at_the_end_of_a_stage(small):
    for image in ("a", "b"):
        (small / "docker/Dockerfile").write_text(Dockerfile(small).extended(image, "ENV OF=" + image))

    found = Dockerfile(small).stages
    last = [found[image].instructions[-1] for image in ("libraries", "a", "b")]
    assert last == [("COPY", "docker/a.lock /"), ("ENV", "OF=a"), ("ENV", "OF=b")]


def test_what_the_server_image_takes_is_all_code_and_its_own_locks():
    found = {str(file.relative_to(ROOT)) for file in FILE.files("server")}

    preset = "paceline/settings/presets/hogwild.yaml"
    assert {"LICENSE", "README.md", "pyproject.toml", preset, "server/__main__.py"} < found
    assert {path for path in found if path.startswith("docker/")} == LOCKS_OF_SERVER
    assert not [path for path in found if "__pycache__" in path]


def test_compose_starts_as_many_servers_and_workers_as_its_config_says():
    config = load(DOCKER / "run.yaml")
    parts = list(COMPOSE["services"])

    assert [part for part in parts if part.startswith("server-")] == [f"server-{n}" for n in range(config.servers)]
    assert [part for part in parts if part.startswith("worker-")] == [f"worker-{n}" for n in range(config.workers)]
    servers = ",".join(f"server-{n}:50051" for n in range(config.servers))
    for part in ("worker-0", "worker-1", "evaluator"):
        assert servers in COMPOSE["services"][part]["command"]


@pytest.mark.parametrize(
    ("part", "main"),
    [
        ("server-0", serve),
        ("server-1", serve),
        ("worker-0", work),
        ("worker-1", work),
        ("evaluator", evaluate),
        ("sharder", shard),
    ],
)
def test_compose_gives_options_that_there_are(part, main):
    known = {f"--{name.replace('_', '-')}" for name in inspect.signature(main).parameters}

    given = {word for word in COMPOSE["services"][part]["command"] if word.startswith("--")}

    assert "--config" in given
    assert given <= known


@pytest.mark.parametrize("part", COMPOSE["services"])
def test_a_part_of_compose_writes_nothing_but_its_volumes_and_cache(part):
    service = COMPOSE["services"][part]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"] == ["/cache:mode=1777"]


def test_nothing_takes_whatever_is_latest():
    files = [DOCKER / "Dockerfile", DOCKER / "compose.yaml", ROOT / "Makefile"]

    assert [path.name for path in files if re.search(r":latest\b", path.read_text())] == []
    for service in COMPOSE["services"].values():
        assert service["image"].endswith(f":${{TAG:-{PROJECT['version']}}}")
