"""Versions of a run's model as files for plain torch, while it trains and afterwards; and what is said where there is none."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from typer.testing import CliRunner

from paceline.cli.__main__ import app
from paceline.core.errors import ConfigError, DataError, NotYet, PacelineError, ServersGone, UsageError
from paceline.results.model.pull import Pulled, WantedVersion, pull
from paceline.results.model.run_weights import Source
from paceline.rpc.auth import Credentials
from tests.support.live_run import LiveRun
from tests.support.trained_run import trained_run

torch = pytest.importorskip("torch")
TASK = """
import numpy as np

from paceline.extend import Dataset, Labelled


def data(path):
    features = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    return Dataset(Labelled(features, (features[:, 0] > 0).astype(np.int64)), classes=("no", "yes"))


def model():
    import torch

    return torch.nn.Sequential(torch.nn.Linear(4, 3), LAYER, torch.nn.Linear(3, 2))
"""
PLAIN, NORM = "torch.nn.ReLU()", "torch.nn.BatchNorm1d(3)"


def task(folder: Path, layer: str = PLAIN) -> Path:
    file = folder / "own.py"
    file.write_text(TASK.replace("LAYER", layer))
    return file


def started(tmp_path: Path, layer: str = PLAIN, **settings: Any) -> LiveRun:
    return LiveRun(tmp_path / "runs", task(tmp_path, layer), **settings).begin()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveRun]:
    run = started(tmp_path, policy="bsp")
    yield run
    run.end()


def pulled(run: LiveRun, out: Path, **asked: Any) -> Pulled:
    return pull(Source.of_folder(run.folder), out, WantedVersion(**asked))


def facts(path: Path) -> dict[str, str]:
    with safe_open(path, "np") as file:
        return dict(file.metadata())


def test_the_file_of_a_live_run_loads_in_plain_torch_with_three_lines(live: LiveRun, tmp_path: Path) -> None:
    live.push(-0.5)
    pulled(live, tmp_path / "deep" / "model.safetensors")

    from safetensors.torch import load_file

    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    model.load_state_dict(load_file(tmp_path / "deep" / "model.safetensors"))

    assert all(bool((value == 0.5).all()) for value in model.parameters())


def test_each_pull_of_a_live_run_has_the_newest_version(live: LiveRun, tmp_path: Path) -> None:
    for version in (1, 2):
        live.push(1.0)
        found = pulled(live, tmp_path / "m.safetensors")

        assert found.versions.of_slices == (version, version)
        with safe_open(found.path, "np") as file:
            assert (file.get_tensor("0.weight") == -version).all()


def test_in_lock_step_all_slices_have_one_version_and_otherwise_it_is_said(tmp_path: Path) -> None:
    told = {}
    for policy in ("bsp", "asp"):
        (tmp_path / policy).mkdir()
        run = started(tmp_path / policy, policy=policy)
        run.push(1.0)
        found = pulled(run, tmp_path / "m.safetensors")
        told[policy] = found.summary()[0].partition("servers, ")[2], json.loads(facts(found.path)["one_moment"])
        run.end()

    assert told["bsp"] == ("version 1, the same on all 2 slices", True)
    assert "read one by one (asp lets slices run apart): no single moment's model" in told["asp"][0]
    assert told["asp"][1] is False


def test_the_metadata_say_task_settings_version_and_inputs(live: LiveRun, tmp_path: Path) -> None:
    live.push(1.0)

    found = facts(pulled(live, tmp_path / "m.safetensors").path)

    assert (found["task"], found["run"], found["origin"], found["version"]) == ("own.py", "one", "servers", "1")
    assert len(found["config_sha256"]) == 64
    assert json.loads(found["inputs"])["classes"] == ["no", "yes"]


def test_a_snapshot_is_pulled_by_its_version_and_others_are_listed(live: LiveRun, tmp_path: Path) -> None:
    live.push(1.0)
    live.push(1.0)
    live.end()
    out = tmp_path / "m.safetensors"

    found = pulled(live, out, version=2)
    with pytest.raises(UsageError, match=r"There is no snapshot of version 7. Versions that are kept: 0, 2\."):
        pulled(live, out, version=7)

    assert found.summary()[0].endswith("from its servers' snapshots, version 2, the same on all 2 slices")
    with safe_open(out, "np") as file:
        assert (file.get_tensor("2.bias") == -2).all()


def test_a_damaged_snapshot_is_no_version_that_there_is(live: LiveRun, tmp_path: Path) -> None:
    live.push(1.0)
    live.end()
    newest = max(live.folder.server(1).glob("snapshot-*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-1])

    with pytest.raises(UsageError, match=r"version 1. Versions that are kept: 0\."):
        pulled(live, tmp_path / "m.safetensors", version=1)


def test_of_an_ended_run_it_is_the_final_model_and_with_best_the_best(tmp_path: Path) -> None:
    folder = trained_run(tmp_path / "runs", task(tmp_path))
    out = tmp_path / "m.safetensors"

    origins = [pull(Source.of_folder(folder), out, WantedVersion(best=best)).origin for best in (False, True)]

    assert origins == ["last", "best"]
    assert facts(out)["origin"] == "best"
    assert out.stat().st_size > (folder.models / "best.safetensors").stat().st_size


def test_of_a_run_that_ended_early_it_is_the_newest_snapshot_and_one_that_has_not_ended_is_gone(
    live: LiveRun, tmp_path: Path
) -> None:
    live.push(1.0)
    live.end(exit_code=None)
    with pytest.raises(ServersGone, match="has not ended, but its chief"):
        pulled(live, tmp_path / "m.safetensors")
    live.folder.write_facts(exit_code=70)

    found = pulled(live, tmp_path / "m.safetensors")

    assert (found.origin, str(found.versions)) == ("snapshot", "version 1, the same on all 2 slices")


def test_batchnorm_gets_statistics_that_fit_the_version(tmp_path: Path) -> None:
    run = started(tmp_path, NORM)
    run.push(-1.0)
    out = pulled(run, tmp_path / "m.safetensors").path
    elsewhere = _elsewhere(run, tmp_path / "none")
    with pytest.raises(DataError, match=r"BatchNorm.*no shards in .*none. Give their folder with --shards"):
        pull(elsewhere, out)
    run.end()

    with safe_open(out, "np") as file:
        found = file.get_tensor("1.running_mean")
    rows = np.concatenate([np.load(path) for path in sorted(run.folder.shards.glob("shard-*/features.npy"))])
    assert np.allclose(found, (rows.sum(1) + 1).mean(), atol=1e-4)


def _elsewhere(run: LiveRun, shards: Path | None) -> Source:
    addresses = ",".join(run.cluster.addresses)
    return Source.elsewhere(run.folder.config, addresses, Credentials(run.folder.read_secret()), shards)


def test_a_run_of_other_machines_is_pulled_by_its_servers_and_settings(live: LiveRun, tmp_path: Path) -> None:
    live.push(1.0)
    out = tmp_path / "m.safetensors"

    words = ["pull", "--servers", ",".join(live.cluster.addresses), "--config", str(live.folder.config)]
    done = CliRunner().invoke(app, [*words, "--token-file", str(live.folder.token), "-o", str(out), "--json"])

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["versions"] == [1, 1]
    assert "inputs" not in facts(out)
    with pytest.raises(UsageError, match="--best is for a run whose folder is on this machine"):
        pull(_elsewhere(live, None), out, WantedVersion(best=True))
    with pytest.raises(ConfigError, match="keeps its snapshots where its servers are"):
        pull(_elsewhere(live, None), out, WantedVersion(version=0))


def test_a_run_that_has_not_begun_to_train_says_what_it_waits_for(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "runs", task(tmp_path))

    with pytest.raises(NotYet, match=r"Run 'one' has not begun to train, and waits for .*worker"):
        pulled(run, tmp_path / "m.safetensors")
    run.end()


def test_a_run_without_servers_has_no_model_while_it_trains(tmp_path: Path) -> None:
    folder = trained_run(tmp_path / "runs", task(tmp_path), servers=0, policy="allreduce")
    run = LiveRun(tmp_path / "others", task(tmp_path)).begin()
    folder.write_facts(**{key: run.folder.facts()[key] for key in ("chief", "servers")}, exit_code=None)
    folder.token.write_text(run.folder.read_secret())

    with pytest.raises(ConfigError, match=r"has no servers: each worker has its own model.*--best"):
        pull(Source.of_folder(folder), tmp_path / "m.safetensors")
    run.end()


@pytest.mark.parametrize(
    ("asked", "name", "told"),
    [
        (WantedVersion(), "m.pt", "the file's ending must be .safetensors"),
        (WantedVersion(1, best=True), "m.safetensors", "--best and --version: give only one"),
    ],
)
def test_what_can_not_be_asked_is_refused(asked: WantedVersion, name: str, told: str, tmp_path: Path) -> None:
    folder = trained_run(tmp_path / "runs", task(tmp_path))
    with pytest.raises(PacelineError, match=told):
        pull(Source.of_folder(folder), tmp_path / name, asked)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Whose model?"),
        (["one", "--servers", "a:1"], "Whose model?"),
        (["--servers", "a:1"], "--servers needs --config"),
        (["one", "--shards", "x"], "belong to --servers"),
    ],
)
def test_the_command_names_a_run_in_one_of_two_ways(words: list[str], told: str) -> None:
    done = CliRunner().invoke(app, ["pull", *words])

    assert done.exit_code == UsageError.exit_code
    assert told in done.output
