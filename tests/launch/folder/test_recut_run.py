"""A run's folder gets another number of servers, once and whole, also where that was interrupted."""

import shutil
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError, DataError
from paceline.core.settings.config import Config
from paceline.launch.folder.recut_run import Behind, recut_run
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.v1.run_service_pb2 import StatusReply, WorkerStatus
from tests.core.slice.test_recut import MOMENTUM, Model, same
from tests.server.test_recut_folders import PLANS, places, read, written


@pytest.fixture
def model() -> Model:
    found = Model(PLANS[3], "asp", MOMENTUM)
    found.train(1)
    return found


@pytest.fixture
def run(tmp_path: Path, model: Model) -> RunFolder:
    """A run of three servers that was stopped."""
    folder, _ = open_run(Config(run="one", servers=3), runs=tmp_path)
    written(places(folder.path, 3), model)
    return folder


def names(run: RunFolder) -> list[str]:
    return sorted(each.name for each in run.path.glob("*") if each.name.startswith(("server", "recut")))


def cut(model: Model, servers: int) -> Model:
    found = Model(PLANS[servers], "asp", MOMENTUM)
    found.train(1)
    return found


@pytest.mark.parametrize("servers", [1, 2, 7])
def test_a_run_goes_on_with_the_servers_that_its_settings_name(run: RunFolder, model: Model, servers: int) -> None:
    folder, config = open_run(Config(run="one", servers=servers), runs=run.path.parent)
    said: list[str] = []

    assert recut_run(folder, config, said.append) is None

    assert names(run) == [f"server-{index}" for index in range(servers)]
    assert run.settings().servers == servers
    assert same(read(places(run.path, servers)), cut(model, servers).states)
    assert f"for {servers} server" in said[0]
    assert recut_run(folder, config, said.append) is None
    assert len(said) == 1, "once"


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_what_was_interrupted_while_folders_were_replaced_is_finished(run: RunFolder, model: Model, moved: int) -> None:
    folder, config = open_run(Config(run="one", servers=2), runs=run.path.parent)
    kept = run.path.parent / "kept"
    shutil.copytree(run.path, kept)
    recut_run(folder, config, lambda line: None)
    staging = kept / "recut"
    for index in range(2):
        target = kept if index < moved else staging
        shutil.rmtree(target / f"server-{index}", ignore_errors=True)
        shutil.copytree(run.server(index), target / f"server-{index}")
    staging.mkdir(exist_ok=True)
    (staging / "whole").write_text("3 2")

    assert recut_run(RunFolder(kept), config, lambda line: None) is None

    assert names(RunFolder(kept)) == ["server-0", "server-1"]
    assert same(read(places(kept, 2)), cut(model, 2).states)


def test_what_was_interrupted_before_all_was_written_is_begun_anew(run: RunFolder, model: Model) -> None:
    folder, config = open_run(Config(run="one", servers=1), runs=run.path.parent)
    (run.path / "recut" / "server-0").mkdir(parents=True)
    (run.path / "recut" / "server-0" / "snapshot-000000000001.tmp").write_text("half")

    assert recut_run(folder, config, lambda line: None) is None

    assert names(run) == ["server-0"]
    assert same(read(places(run.path, 1)), cut(model, 1).states)


def test_a_run_whose_slice_is_on_another_machine_stays_as_it_is(run: RunFolder) -> None:
    folder, config = open_run(Config(run="one", servers=2), runs=run.path.parent)
    shutil.rmtree(run.server(2))

    with pytest.raises(DataError, match="Server 2 has no snapshot here"):
        recut_run(folder, config, lambda line: None)

    assert {"server-0", "server-1"} <= set(names(run))


def test_after_a_crash_the_workers_are_behind_until_they_have_all_clocks_of_any_server(run: RunFolder) -> None:
    early, late = Model(PLANS[3], "asp", MOMENTUM), Model(PLANS[3], "asp", MOMENTUM)
    early.train(1, 1)
    late.train(1, 2)
    shutil.rmtree(run.path / "server-0")
    written(places(run.path, 3), late, [early.states[0], *late.states[1:]])
    folder, config = open_run(Config(run="one", servers=2), runs=run.path.parent)

    found = recut_run(folder, config, lambda line: None)

    assert found is not None
    assert (found.servers, "pushes of a" in str(found)) == (3, True)
    assert names(run) == ["server-0", "server-1", "server-2"]


def status(a: int, b: int, *, b_is_member: bool = True, seconds: float = 0.0) -> StatusReply:
    workers = [WorkerStatus(worker="a", clock=a, member=True), WorkerStatus(worker="b", clock=b, member=b_is_member)]
    return StatusReply(workers=workers, seconds=seconds)


def test_workers_have_caught_up_once_those_that_train_and_those_that_are_uneven_are_beyond() -> None:
    behind = Behind(2, {"a": 4, "b": 5}, {"a"}, "why")

    assert not behind.is_over(StatusReply())
    assert not behind.is_over(status(5, 5))
    assert behind.is_over(status(5, 6))
    assert behind.is_over(status(5, 0, b_is_member=False))
    assert not Behind(2, {"a": 4, "b": 5}, {"b"}, "why").is_over(status(5, 0, b_is_member=False))
    assert not Behind(2, {"a": 4}, (), "a change of policy has reached only some of them").is_over(StatusReply())


def test_a_worker_that_does_not_come_back_is_waited_for_no_longer_than_a_start_may_take() -> None:
    until = Behind(2, {"a": 4, "b": 5}, {"b"}, "why").until(300.0)

    found = [until(status(9, 0, b_is_member=False, seconds=seconds)) for seconds in (50.0, 350.0, 351.0)]

    assert found == [False, False, True]


def test_servers_that_would_run_elsewhere_are_refused_before_anything_is_cut(run: RunFolder) -> None:
    folder, config = open_run(Config(run="one", servers=4), runs=run.path.parent)

    with pytest.raises(ConfigError, match="only where all of them run on this machine"):
        recut_run(folder, config, lambda line: None, all_here=False)

    assert names(run) == ["server-0", "server-1", "server-2"]


def test_the_first_server_is_missed_too_and_nothing_starts_over(run: RunFolder) -> None:
    folder, config = open_run(Config(run="one", servers=1), runs=run.path.parent)
    for file in run.server(0).glob("snapshot-*"):
        file.unlink()

    with pytest.raises(DataError, match="Server 0 has no snapshot here"):
        recut_run(folder, config, lambda line: None)


def test_a_run_that_names_no_number_of_servers_keeps_its_own(run: RunFolder) -> None:
    found = open_run(Config(run="one"), runs=run.path.parent)[1]

    assert (found.servers, run.settings().servers) == (3, 3)


def test_servers_alone_may_differ_and_a_finished_run_keeps_its_own(run: RunFolder) -> None:
    runs = run.path.parent
    with pytest.raises(ConfigError, match="seed: 0 before, 3 now"):
        open_run(Config(run="one", servers=2, seed=3), runs=runs)
    assert run.settings().servers == 3
    with pytest.raises(ConfigError, match="servers: 3 before, 0 now"):
        open_run(Config(run="one", servers=0), runs=runs)
    run.write_facts(finished=True)

    assert open_run(Config(run="one", servers=2), runs=runs)[1].servers == 3
    assert open_run(Config(run="one", servers=2, epochs=run.settings().epochs + 1), runs=runs)[1].servers == 2
    assert (run.settings().servers, run.facts()["finished"]) == (2, False)
