"""A run whose checkpoints are in an object store, before it is begun: resumed, started over, or refused."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

pytest.importorskip("moto", reason="moto is not installed: make setup")

from paceline.core.errors import ConfigError, DataError
from paceline.core.settings.config import Config
from paceline.core.slice.plan import make_plan
from paceline.core.slice.state import SliceState
from paceline.launch.folder import run_folder
from paceline.launch.folder.run_folder import open_run
from paceline.launch.folder.stored_checkpoints import has_checkpoints
from paceline.rpc.agreed_settings import agreed_settings
from paceline.server.fetched_snapshots import FetchedSnapshots
from paceline.server.json_files import Owner
from paceline.server.sent_snapshots import SentSnapshots
from paceline.server.state_folder import StateFolder
from tests.support.in_process import Said
from tests.support.object_store import ObjectStore, object_store


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as found:
        found.put("mine", {})
        yield found


@pytest.fixture(autouse=True)
def variables(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.set_variables(monkeypatch)


def config_of(tmp_path: Path, **more: Any) -> Config:
    return Config(**{"run": "one", "checkpoint": {"at": f"s3://mine/{tmp_path.name}"}, "servers": 1} | more)


def sent(config: Config, folder: Path) -> Config:
    """What a server of that run has sent, before its machine was lost."""
    assert config.run is not None
    assert config.checkpoint.at is not None
    owner, plan = Owner(config.run, 0, 1), make_plan((("a", (9,)),), 1, config.plan)
    fetched = FetchedSnapshots(config.checkpoint.at, owner, Said(), Event())
    state = StateFolder(folder / "lost", 3, Said(), owner, fill=fetched.fill)
    state.check_settings(agreed_settings(config))
    state.save_snapshot(plan, SliceState(np.zeros(9, np.float32), [], {"version": 1, "pushes": 1, "clocks": {}}))
    SentSnapshots(config.checkpoint.at, owner, state).send(state.current)
    state.close()
    return config


def test_a_run_of_the_same_name_and_settings_goes_on_from_the_store(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    assert not has_checkpoints(config)
    sent(config, tmp_path)

    folder, opened = open_run(config, runs=tmp_path / "runs")

    assert has_checkpoints(opened)
    assert not folder.has_trained


def test_other_settings_are_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    sent(config_of(tmp_path), tmp_path)

    with pytest.raises(ConfigError, match=r"s3://mine/.* holds a run with other settings: servers=1; servers=2"):
        open_run(config_of(tmp_path, servers=2), runs=tmp_path / "runs")
    assert not (tmp_path / "runs/one").exists(), "or the right settings would be refused next"


def test_fresh_removes_the_checkpoints_of_this_run_alone(tmp_path: Path, store: ObjectStore) -> None:
    sent(config_of(tmp_path), tmp_path)
    other = sent(config_of(tmp_path, run="other"), tmp_path / "other")
    url = str(config_of(tmp_path).checkpoint.at).removeprefix("s3://mine/")
    theirs = [f"{url}/one/last.safetensors", f"{url}/one/inner/server-0/x"]
    for name in theirs:
        store.replace("mine", name, b"theirs")

    open_run(config_of(tmp_path), fresh=True, runs=tmp_path / "runs")

    assert not has_checkpoints(config_of(tmp_path))
    assert has_checkpoints(other)
    assert set(theirs) <= set(store.names("mine")), "models of the run, and what is not ours"


def test_a_run_without_a_name_never_goes_on_from_another_ones_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent(config_of(tmp_path), tmp_path)
    monkeypatch.setattr(run_folder, "new_name", lambda config, runs: "one")

    with pytest.raises(ConfigError, match="has checkpoints of a run one already"):
        open_run(config_of(tmp_path, run=None), runs=tmp_path / "runs")


def test_a_bucket_that_does_not_exist_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no bucket 'nobodys'"):
        open_run(config_of(tmp_path, checkpoint={"at": "s3://nobodys/a"}), runs=tmp_path / "runs")
    assert not (tmp_path / "runs/one").exists()
