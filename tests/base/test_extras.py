"""What only an extra brings: every import of it is known, and where it is missing, an error says what to install."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from paceline.api.train import brief
from paceline.base.extras import EXTRAS, lacking, lacks, needing
from paceline.core.errors import ConfigError
from paceline.processes.exits import exits
from tests.support.tree import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORTED_AS = {
    "grpcio": "grpc",
    "grpcio-health-checking": "grpc_health",
    "grpcio-reflection": "grpc_reflection",
    "prometheus-client": "prometheus_client",
    "protobuf": "google",
    "pydantic-settings": "pydantic_settings",
    "pyjwt": "jwt",
    "pyyaml": "yaml",
    "pillow": "PIL",
    "scikit-learn": "sklearn",
    "universal-pathlib": "upath",
}
BROUGHT = {"llvmlite": "numba", "annotated_types": "pydantic", "cryptography": "jwt"}
"""What comes with what every installation has."""
CATCHERS = {
    "paceline/base/extras.py",
    "paceline/data/files.py",
    "paceline/settings/own_extensions.py",
    "paceline/launch/supervise/run_history.py",
}
"""The files that may look at an import that failed: the one rule, readers of URLs (any package of fsspec's), files of users,
and curves that nobody asked for."""
ALL_HIDDEN = f"""
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {set(EXTRAS)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""
EACH_COMMAND = """
import shlex, sys
from paceline.cli.__main__ import app

for line in sys.stdin.read().splitlines():
    try:
        app(shlex.split(line), prog_name="paceline")
    except SystemExit as end:
        print("exit", end.code, "of", line, file=sys.stderr, flush=True)
"""


COMMANDS = {
    "launch -w 1 -s 1 train.py": "worker",
    "run svm --data rows.svm -w 1 -s 1": "sparse",
    "run table.py --data rows.csv -w 1 -s 1": "sharder",
}
MORE_COMMANDS = {
    "run digits -w 1 -s 1": "sharder",
    "run svm --data memory://rows.svm -w 1 -s 1": "sharder",
    "shard digits --out shards": "sharder",
    "local svm --data rows.svm": "sparse",
    "plan digits": "worker",
}
"""At night, for each starts processes."""


@cache
def sources() -> list[tuple[str, ast.Module]]:
    """All modules of the library, by their place in the repository."""
    files = [file for folder in ("paceline", "server", "worker", "sharder") for file in (ROOT / folder).rglob("*.py")]
    return [
        (str(file.relative_to(ROOT)), ast.parse(file.read_text()))
        for file in sorted(files)
        if "v1" not in file.parts and not any(part.is_symlink() for part in file.parents)
    ]


def imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The name and line of every import of another distribution, at any depth."""
    for node in ast.walk(tree):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        for name in names:
            if (top := name.partition(".")[0]) not in sys.stdlib_module_names and top != "paceline":
                yield top, node.lineno


def distributions(requirements: list[str]) -> set[str]:
    """By the names that they are imported by."""
    names = [re.split(r"[\[<>=~! ]", each)[0] for each in requirements]
    return {IMPORTED_AS.get(name, name) for name in names}


def test_every_import_is_of_what_is_always_there_or_of_a_known_extra():
    always = distributions(PROJECT["dependencies"]) | set(BROUGHT)
    unknown = [
        f"{file}:{line} {name}"
        for file, tree in sources()
        for name, line in imported(tree)
        if name not in always | set(EXTRAS)
    ]
    assert not unknown, "put what an extra brings into EXTRAS of paceline/base/extras.py"
    assert not always & set(EXTRAS)


def test_the_extra_that_is_named_brings_the_library():
    brought = {"threadpoolctl": "sklearn", "joblib": "sklearn", "py4j": "pyspark"}
    for library, extra in EXTRAS.items():
        assert brought.get(library, library) in distributions(PROJECT["optional-dependencies"][extra]), library


def test_the_extra_all_brings_all_but_spark_lightning_and_loggers():
    (whole,) = PROJECT["optional-dependencies"]["all"]
    extras = set(re.fullmatch(r"paceline\[(.*)\]", whole)[1].split(","))
    brought = distributions([each for extra in extras for each in PROJECT["optional-dependencies"][extra]])
    assert set(EXTRAS) - brought == {
        "pyspark",
        "py4j",
        "lightning",
        "transformers",
        "accelerate",
        "mlflow",
        "wandb",
        "threadpoolctl",
        "joblib",
    }  # the last two come with scikit-learn


def test_nobody_else_swallows_an_import_that_fails():
    for file, tree in sources():
        caught = [
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.ExceptHandler)
            and node.type is not None
            and {"ImportError", "ModuleNotFoundError"}
            & {each.id for each in ast.walk(node.type) if isinstance(each, ast.Name)}
        ]
        is_edge = "lacking(" in (ROOT / file).read_text()
        assert not caught or is_edge or file in CATCHERS, f"{file}:{caught}: use `needing` of paceline.base.extras"


@pytest.mark.parametrize("library", EXTRAS)
def test_each_library_that_lacks_is_a_sentence_where_processes_and_calls_end(
    library: str, capsys: pytest.CaptureFixture[str]
):
    def use() -> None:
        raise ModuleNotFoundError(f"No module named '{library}.inner'", name=f"{library}.inner")

    sentence = lacks(library)
    assert f"which is not installed here: pip install 'paceline[{EXTRAS[library]}]'." in sentence
    with pytest.raises(SystemExit) as ended, exits("someone"):
        use()
    assert ended.value.code == 78
    assert capsys.readouterr().err == f"someone: ConfigError: {sentence}\n"
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        brief(use)()
    with pytest.raises(ConfigError, match=r"^The picture needs "), needing("The picture"):
        use()


def test_what_is_in_no_extra_is_left_as_it_is():
    error = ModuleNotFoundError("No module named 'mine'", name="mine")
    assert lacking(error) is None
    with pytest.raises(ModuleNotFoundError, match="mine"), needing("This"):
        raise error


def bare(folder: Path, program: str, lines: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Runs the program for these lines where no extra is installed."""
    (folder / "sitecustomize.py").write_text(ALL_HIDDEN)
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.mark.parametrize(
    "commands", [COMMANDS, pytest.param(MORE_COMMANDS, marks=pytest.mark.nightly)], ids=["", "more"]
)
def test_a_bare_installation_names_what_each_command_lacks(commands: dict[str, str], tmp_path: Path):
    (tmp_path / "rows.csv").write_text("a,label\n1,x\n2,y\n" * 20)
    (tmp_path / "rows.svm").write_text("+1 1:1 2:3\n-1 1:2 3:1\n" * 20)
    (tmp_path / "table.py").write_text(
        "from paceline.extend import read_table\n"
        "def data(path):\n    return read_table(path, label='label')\n"
        "def model():\n    import torch\n    return torch.nn.Linear(1, 2)\n"
    )
    (tmp_path / "train.py").write_text("import paceline\n")
    done = bare(tmp_path, EACH_COMMAND, commands)
    assert "Traceback" not in done.stderr
    said = re.findall(r"(.*?)exit (\d+) of ([^\n]*)\n", done.stderr, re.DOTALL)
    assert [line for _, _, line in said] == list(commands)
    for text, code, line in said:
        assert f"pip install 'paceline[{commands[line]}]'." in text, line
        assert code == "78", line


CALLS = {
    "paceline.loader([1, 2], batch_size=1)": "paceline.loader needs torch",
    "paceline.sampler([1, 2])": "paceline.sampler needs torch",
    "paceline.split([1, 2])": "paceline.split needs torch",
    "import paceline.lightning": "paceline.lightning needs lightning",
    "import paceline.transformers": "paceline.transformers needs transformers",
    "paceline.train('digits', show=None)": "it needs scikit-learn",
}
EACH_CALL = """
import sys, paceline

for line in sys.stdin.read().splitlines():
    try:
        exec(line)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
"""


def test_a_bare_installation_names_what_each_call_lacks(tmp_path: Path):
    done = bare(tmp_path, EACH_CALL, CALLS)
    said = done.stdout.splitlines()
    assert len(said) == len(CALLS), done.stderr
    for line, words in zip(said, CALLS.values(), strict=True):
        assert line.startswith("ConfigError: ")
        assert words in line
        assert "not installed here: pip install 'paceline[" in line
