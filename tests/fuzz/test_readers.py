"""Damaged files are refused by a PacelineError, within a second of CPU time and 64 MiB; a file is read up to its limit."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from paceline.base.bounded import read_bytes, read_most, read_text
from paceline.core.errors import ConfigError, DataError
from paceline.core.settings.config import Config
from paceline.launch.folder import run_folder
from paceline.launch.folder.run_folder import RunFolder
from paceline.results.model import run_model
from paceline.results.model.run_model import Trained
from paceline.rpc.token_file import read_token_file
from paceline.settings.load_settings import write_yaml
from tests.fuzz.cases import Reader, run, scratch
from tests.fuzz.readers import READERS

CASES, DRAWS = 400, 20
"""Of each reader, and how many seeds hypothesis draws for them, the same in each run: `make chaos` draws new ones. Its own
mutations would take ten times as long."""


@pytest.fixture(scope="module")
def readers_folder() -> Iterator[Path]:
    with scratch() as made:
        yield made


@pytest.fixture(scope="module", params=READERS)
def reader(request: pytest.FixtureRequest, readers_folder: Path) -> Reader:
    place = readers_folder / str(list(READERS).index(request.param))
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


def test_a_file_is_read_up_to_its_limit_and_not_beyond(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345\r\n")
    assert read_bytes(tmp_path / "a", 7) == b"12345\r\n"
    assert read_text(tmp_path / "a", 7) == "12345\n"
    with pytest.raises(OSError, match="it has more than 6 bytes, the most that is read"):
        read_bytes(tmp_path / "a", 6)


def test_a_pipe_without_end_is_read_up_to_the_limit() -> None:
    reading, writing = os.pipe()
    os.write(writing, bytes(100))
    with open(reading, "rb", buffering=0) as stream:
        assert len(read_most(stream, 100)) == 100
    os.close(writing)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setattr(run_folder, "MOST_FACTS", 100)
    write_yaml(Config(), tmp_path / "config.yaml")
    return RunFolder(tmp_path)


def test_facts_that_are_too_large_are_none(folder: RunFolder) -> None:
    folder.write_facts(a=1)
    assert folder.facts()["a"] == 1
    (folder.path / "run.json").write_text(json.dumps({"a": "x" * 100}))
    assert folder.facts() == {}


def test_of_metrics_without_end_the_last_line_is_read(folder: RunFolder) -> None:
    lines = [json.dumps({"step": step}) + "\n" for step in range(1000)]
    folder.metrics.write_text("".join(lines) + '{"step": 10')
    assert folder.last_status() == {"step": 999}
    folder.metrics.write_text(json.dumps({"step": "x" * 200}) + "\n")
    assert folder.last_status() == {}


def test_a_model_that_is_larger_than_any_is_not_read(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_model, "MOST_MODEL", 10)
    folder.models.mkdir()
    (folder.models / "last.safetensors").write_bytes(bytes(11))
    with pytest.raises(DataError, match=r"last.safetensors has 11 bytes; no model is above 10"):
        Trained(folder).inputs()


def test_a_token_file_is_a_short_text(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(bytes(2 << 20))
    with pytest.raises(ConfigError, match=r"token: it has more than 1,048,576 bytes, .*. Give a file"):
        read_token_file(tmp_path / "token")
    with pytest.raises(ConfigError, match=r"token.: it has more than 1,048,576 bytes, the most that is read. Did this"):
        RunFolder(tmp_path).read_secret()
    (tmp_path / "token").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"token.: it is no text in UTF-8. Did this"):
        RunFolder(tmp_path).read_secret()
