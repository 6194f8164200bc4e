"""The list of mutants stays true; `make mutants` plants them, which takes minutes."""

import shutil
from pathlib import Path

import pytest

from tests.mutants.planting import ROOT, Mutant, is_a_test, mutants


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_each_mutant_can_be_planted_and_names_the_tests_that_catch_it(mutant: Mutant, tmp_path: Path) -> None:
    copy = tmp_path / mutant.file
    copy.parent.mkdir(parents=True)
    shutil.copy(ROOT / mutant.file, copy)

    mutant.plant(tmp_path)

    compile(copy.read_text(), mutant.file, "exec")
    assert mutant.caught_by
    assert [test for test in mutant.caught_by if not is_a_test(test)] == []


def test_a_mutant_whose_text_has_gone_is_told(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("there = 1\n")
    gone = Mutant("gone", "nothing", "code.py", "away", "", ())

    with pytest.raises(ValueError, match=r"gone: .away. is 0 times in code\.py"):
        gone.plant(tmp_path)
