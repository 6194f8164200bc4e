"""The pages of docs/reference that are made from the code are what the code says today."""

import ast
import re
from pathlib import Path

import pytest

import paceline
from paceline.core.errors import PacelineError, error_classes
from tests.support.tree import ROOT
from tools.reference import code_map, sources
from tools.reference.__main__ import PAGES, written

COMMAND_LINE, ERRORS, METRICS = (f"docs/reference/{name}.md" for name in ("command-line", "errors", "metrics"))


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Every page that is made from the code, made once."""
    return {name: written(name) for name in PAGES}


def classes_of_paceline() -> list[type[PacelineError]]:
    return [kind for kind in error_classes().values() if kind.__module__ == PacelineError.__module__]


@pytest.mark.nightly  # `make check` says the same
@pytest.mark.parametrize("name", PAGES)
def test_a_page_made_from_the_code_is_not_stale(name: str, pages: dict[str, str]):
    assert (ROOT / name).read_text() == pages[name], "run: make pages"


def test_every_command_has_a_section_with_its_options(pages: dict[str, str]):
    page = pages[COMMAND_LINE]

    for command in ("run", "launch", "join", "status", "set", "k8s deploy", "export"):
        assert f"\n## `paceline {command}`\n" in page
    assert "| `-w, --workers" in page


def test_each_exit_code_of_the_tree_is_on_the_page(pages: dict[str, str]):
    page = pages[ERRORS]

    assert len(classes_of_paceline()) > 10
    for kind in classes_of_paceline():
        assert f"| {kind.exit_code} | `{kind.__name__}` |" in page


def test_an_error_of_one_program_that_is_loaded_does_not_change_the_page(pages: dict[str, str]):
    class OfOneProgram(PacelineError):
        """Is loaded here."""

    assert OfOneProgram.__name__ in error_classes()
    assert written(ERRORS) == pages[ERRORS]


def test_the_dashboard_asks_only_for_metrics_of_the_page(pages: dict[str, str]):
    names = set(re.findall(r"`(paceline_\w+)`", pages[METRICS]))
    series = {name.removesuffix("_total") for name in names}

    asked = set(re.findall(r"paceline_[a-z_]+", (ROOT / "tools/panels.py").read_text()))
    parts = re.compile(r"_(total|bucket|sum|count)$")
    assert {name for name in asked if parts.sub("", name) not in series and not name.endswith("_")} == set()


def test_a_folder_is_on_the_map_with_one_sentence_and_its_modules(pages: dict[str, str]):
    assert (
        "\n- **`faults/`** One fault that `--fault` inflicts is one file; its stem is its name. `freeze`,\n  `kill`, `link`.\n"
        in pages["docs/understand/map.md"]
    )


def test_a_folder_that_says_nothing_of_itself_is_refused(tmp_path: Path):
    (tmp_path / "__init__.py").write_text("import os\n")

    with pytest.raises(ValueError, match=r"__init__\.py has no docstring\. Say there in one sentence"):
        code_map.first_sentence(tmp_path / "__init__.py")


def test_a_text_that_is_put_together_has_gaps():
    tree = ast.parse("def f(x):\n    why = 'b'\n    g(f'a {x} c' + why)\n    h()\n")
    ((call, _, names),) = sources.calls(tree, {"g"})

    assert sources.text_of(call.args[0], names) == "a \N{HORIZONTAL ELLIPSIS} cb"


def test_every_public_name_is_on_the_page_of_python():
    page = (ROOT / "docs/reference/python.md").read_text()

    named = set(re.findall(r"^::: paceline\.(?:[\w.]+\.)?(\w+)$", page, re.MULTILINE))
    assert set(paceline.__all__) - named == set()
