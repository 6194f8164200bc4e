"""Damaged files are refused by a PacelineError, within a second of CPU time and 64 MiB."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.cases import Reader, run, scratch
from tests.fuzz.readers import READERS

CASES, DRAWS = 400, 20
"""Of each reader, and how many seeds hypothesis draws for them, the same in each run: `make chaos` draws new ones. Its own
mutations would take ten times as long."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with scratch() as made:
        yield made


@pytest.fixture(scope="module", params=READERS)
def reader(request: pytest.FixtureRequest, folder: Path) -> Reader:
    place = folder / str(list(READERS).index(request.param))
    place.mkdir()
    return READERS[request.param](place)


def test_what_is_not_damaged_is_read(reader: Reader) -> None:
    for form in reader:
        form.read(form.whole)


@pytest.mark.timeout(600)
@settings(max_examples=DRAWS, phases=[Phase.explicit, Phase.generate], derandomize=True, database=None)
@given(seed=st.integers(0, 2**64 - 1))
def test_what_is_damaged_is_refused_by_an_error_of_ours(reader: Reader, seed: int) -> None:
    run(reader, CASES // DRAWS, random.Random(seed))
