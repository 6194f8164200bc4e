"""Modules of the core under the names that they had in 0.1."""

import importlib
import subprocess
import sys

import pytest

from paceline.core.earlier_names import EARLIER


@pytest.mark.parametrize(
    ("earlier", "name"),
    [
        ("paceline.core.sync.policy", "paceline.core.policies.policy"),
        ("paceline.core.sync.policies.ssp", "paceline.core.policies.builtin.ssp"),
        ("paceline.core.coding.codecs.topk", "paceline.core.codecs.builtin.topk"),
        ("paceline.core.steps.optimizers.sgd", "paceline.core.optimizers.builtin.sgd"),
        ("paceline.core.run.advice", "paceline.core.chief.advice"),
    ],
)
def test_an_earlier_name_is_the_same_module_and_says_the_new_one(earlier: str, name: str) -> None:
    sys.modules.pop(earlier, None)
    with pytest.warns(DeprecationWarning, match=f"{earlier} is {name} now"):
        found = importlib.import_module(earlier)

    assert found is importlib.import_module(name)
    assert found.__name__ == name
    assert found.__spec__.name == name


@pytest.mark.parametrize(
    "program",
    [
        "from paceline.core.sync.policies.ssp import Ssp as before\nfrom paceline.core.policies.builtin.ssp import Ssp as now",
        "from paceline.core.sync import policies as before\nimport paceline.core.policies.builtin as now",
        "from paceline.core.coding import codecs as before\nimport paceline.core.codecs.builtin as now",
        "from paceline.core.steps import optimizers as before\nimport paceline.core.optimizers.builtin as now",
    ],
)
def test_what_a_users_file_imports_from_an_earlier_name_is_what_runs_use(program: str) -> None:
    command = [sys.executable, "-W", "always", "-c", f"{program}\nassert before is now"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "DeprecationWarning" in done.stderr


def test_a_module_that_never_was_is_not_found_under_its_earlier_folder() -> None:
    for folder in EARLIER:
        with pytest.raises(ModuleNotFoundError, match=f"No module named '{folder}.nothing'"):
            importlib.import_module(f"{folder}.nothing")
