"""The folders of a stopped run's servers, made again for another number of servers."""

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.core.chief.run import Run
from paceline.core.errors import ConfigError, DataError
from paceline.core.settings.config import Config
from paceline.core.slice.plan import make_plan
from paceline.core.slice.state import SliceState
from paceline.rpc.agreed_settings import agreed_settings
from paceline.server.json_files import Owner
from paceline.server.recut_folders import Uneven, recut_folders, servers_of
from paceline.server.state_audit import audit_folder, check_chief
from paceline.server.state_folder import StateFolder
from tests.core.slice.test_recut import MOMENTUM, SERVERS, SHAPES, Model, same

PLANS = {servers: make_plan(SHAPES, servers, Config().plan) for servers in SERVERS}


def silent(event: str, **facts: Any) -> None:
    pass


def run_state(model: Model) -> dict[str, Any]:
    """The chief's file of a run whose workers have these incarnations."""
    run = Run(Config(run="one"))
    run.membership.incarnations = dict.fromkeys("abc", 1)
    return run.state()


def written(folders: Sequence[Path], model: Model, *moments: Sequence[SliceState]) -> list[Path]:
    """Folders of a run's servers with snapshots of these moments, or of now."""
    for index, folder in enumerate(folders):
        owner = Owner("one", index, len(folders))
        with closing(StateFolder(folder, 3, silent, owner)) as store:
            if index == 0:
                store.save_run(run_state(model))
            for states in moments or [model.states]:
                store.save_snapshot(model.plan, states[index])
            store.save_strikes({"a": index})
    return list(folders)


def places(folder: Path, count: int) -> list[Path]:
    return [folder / f"server-{index}" for index in range(count)]


def read(folders: Sequence[Path]) -> list[SliceState]:
    """What servers find there that start, each with its own name."""
    found = []
    for index, folder in enumerate(folders):
        with closing(StateFolder(folder, 3, silent, Owner("one", index, len(folders)))) as store:
            newest = store.newest_snapshot()
            assert newest is not None
            found.append(newest[1])
    return found


@pytest.mark.parametrize("policy", ["bsp", "asp"])
@pytest.mark.parametrize("before", SERVERS)
def test_new_servers_find_the_model_that_the_old_ones_kept(policy: str, before: int, tmp_path: Path) -> None:
    old = Model(PLANS[before], policy, MOMENTUM)
    old.train(1)
    kept = written(places(tmp_path / "old", before), old)
    for after in SERVERS:
        new = Model(PLANS[after], policy, MOMENTUM)
        new.train(1)
        made = places(tmp_path / f"new-{after}", after)

        plans = recut_folders(kept, made, Config(run="one", servers=after), silent)

        assert plans == (PLANS[before], PLANS[after])
        assert [servers_of(folder) for folder in made] == [after] * after
        assert {file.name for folder in made for file in folder.glob("snapshot-*.json")} == {
            "snapshot-000000000002.json"
        }
        chief = audit_folder(made[0], Owner("one", 0, after))
        check_chief(chief)
        assert chief.wrong == []
        assert same(read(made), new.states)
    assert same(read(kept), old.states), "the old ones stay"


def test_a_new_server_begins_a_term_above_those_of_all_old_ones(tmp_path: Path) -> None:
    model = Model(PLANS[2], "asp", MOMENTUM)
    model.train(1)
    kept, made = written(places(tmp_path / "old", 2), model), places(tmp_path / "new", 3)
    for _ in range(4):
        StateFolder(kept[1], 3, silent, Owner("one", 1, 2)).close()

    recut_folders(kept, made, Config(run="one", servers=3), silent)

    terms = []
    for index, folder in enumerate(made):
        with closing(StateFolder(folder, 3, silent, Owner("one", index, 3))) as store:
            terms.append(store.term)
            assert store.strikes() == {"a": 1}
    assert terms == [6, 6, 6]


def test_in_lock_step_the_newest_round_counts_that_all_servers_have_intact(tmp_path: Path) -> None:
    model = Model(PLANS[2], "bsp", MOMENTUM)
    moments = []
    for seed in range(4):
        model.train(seed, 1)
        moments.append(model.states)
    ahead = [moments[3][0], moments[2][1]]
    kept = written(places(tmp_path / "old", 2), model, moments[1], moments[2], ahead)
    damaged = sorted(kept[1].glob("snapshot-*.safetensors"))
    for file in damaged[1:]:
        file.write_bytes(file.read_bytes()[:-4] + b"    ")

    recut_folders(kept, places(tmp_path / "new", 1), Config(run="one", servers=1), silent)

    (found,) = read(places(tmp_path / "new", 1))
    assert found.table["version"] == moments[1][0].table["version"] == 2
    assert found.weights.tobytes() == np.concatenate([state.weights for state in moments[1]]).tobytes()


def test_servers_of_several_moments_are_uneven_and_say_what_would_make_them_even(tmp_path: Path) -> None:
    model = Model(PLANS[2], "asp", MOMENTUM)
    model.train(1, 1)
    early = model.states
    model.train(2, 1)
    kept = written(places(tmp_path / "old", 2), model, [early[0], model.states[1]])

    with pytest.raises(Uneven, match="they have 1 and 2 pushes of a") as error:
        recut_folders(kept, places(tmp_path / "new", 3), Config(run="one", servers=3), silent)

    assert (error.value.clocks, error.value.uneven) == ({"a": 2, "b": 2, "c": 2}, {"a", "b", "c"})


def test_a_slice_that_is_elsewhere_is_missed_and_nothing_is_begun_from_scratch(tmp_path: Path) -> None:
    model = Model(PLANS[3], "asp", MOMENTUM)
    model.train(1)
    kept = written(places(tmp_path / "old", 3), model)
    for file in kept[2].glob("snapshot-*"):
        file.unlink()

    with pytest.raises(DataError, match="Server 2 has no snapshot here"):
        recut_folders(kept, places(tmp_path / "new", 2), Config(run="one", servers=2), silent)


def test_settings_that_were_edited_are_refused_and_the_new_servers_keep_theirs(tmp_path: Path) -> None:
    model = Model(PLANS[2], "asp", MOMENTUM)
    model.train(1)
    kept, made = written(places(tmp_path / "old", 2), model), places(tmp_path / "new", 3)
    config = Config(run="one", servers=3)
    with closing(StateFolder(kept[0], 3, silent, Owner("one", 0, 2))) as store:
        store.check_settings(agreed_settings(config.model_copy(update={"servers": 2})))

    with pytest.raises(ConfigError, match="seed=0; seed=7"):
        recut_folders(kept, made, config.model_copy(update={"seed": 7}), silent)
    recut_folders(kept, made, config, silent)

    with (
        closing(StateFolder(made[1], 3, silent, Owner("one", 1, 3))) as store,
        pytest.raises(ConfigError, match="seed=0; seed=7"),
    ):
        store.check_settings(agreed_settings(config.model_copy(update={"seed": 7})))


def test_other_settings_of_the_plan_are_refused(tmp_path: Path) -> None:
    model = Model(PLANS[2], "asp", MOMENTUM)
    model.train(1)
    kept = written(places(tmp_path / "old", 2), model)
    layerwise = Config.model_validate({"run": "one", "servers": 3, "plan": {"slices": "layerwise"}})

    with pytest.raises(ConfigError, match="other settings of `plan`"):
        recut_folders(kept, places(tmp_path / "new", 3), layerwise, silent)


def test_the_chief_has_no_order_of_older_servers_left_to_give(tmp_path: Path) -> None:
    model = Model(PLANS[2], "asp", MOMENTUM)
    model.train(1)
    kept, made = written(places(tmp_path / "old", 2), model), places(tmp_path / "new", 3)
    with closing(StateFolder(kept[0], 3, silent, Owner("one", 0, 2))) as store:
        state = run_state(model)
        store.save_run(state | {"back": [4, 9, [0]], "divergence": state["divergence"] | {"good": [[5, 6], 1.0]}})

    recut_folders(kept, made, Config(run="one", servers=3), silent)

    with closing(StateFolder(made[0], 3, silent, Owner("one", 0, 3))) as store:
        found = store.load_run()
    assert found is not None
    run = Run(Config(run="one", servers=3))
    run.restore(json.loads(json.dumps(found)), 0.0)
    assert not run.common_snapshots.is_going_back
    assert run.divergence.good is None
    assert replace(model.states[0]).table["clocks"].keys() == found["membership"]["incarnations"].keys()
