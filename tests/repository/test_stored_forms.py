"""What a release has written is read by all later ones, and what a later one has written is refused in plain words. The files
under tests/stored are of `python -m tests.support.make_stored_forms`; they are kept as they are."""

import base64
import hashlib
import json
import re
import tarfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from paceline.core.errors import ConfigError, DataError, TooNew
from paceline.core.stored_format import check_format
from paceline.data.inputs import FORMAT_KEY, Inputs
from paceline.data.linear_model import read_linear_model
from paceline.data.manifest import read_manifest
from paceline.data.shards import open_shards
from paceline.launch.folder.run_folder import RunFolder, find_run, open_run
from paceline.rpc.wire import parse
from paceline.server.state_folder import StateFolder
from paceline.v1.parameter_service_pb2 import PushHead
from paceline.worker.exchange import residuals
from paceline_studies.search.folder import SearchFolder, opened
from tests.support import make_stored_forms as kept
from tests.support.in_process import Cluster, Pusher
from tests.support.stored_protos import Fields, calls, enums, fields, filled, messages, reserved
from tests.support.tree import ROOT

RELEASES = sorted(path.name for path in kept.STORED.iterdir())
GO_ON = "a newer release wrote it. Use that release, or "


def silent(event: str, **facts: Any) -> None:
    pass


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stored(release: str, tmp_path: Path) -> Path:
    """A copy of what the release has written."""
    with tarfile.open(kept.STORED / release / "forms.tar.xz") as archive:
        archive.extractall(tmp_path)
    (tmp_path / "runs" / "kept" / "token").write_text("token\n")
    return tmp_path


@pytest.fixture
def protos(release: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((kept.STORED / release / "protos.json").read_text())
    return found


def fields_of(stored: dict[str, Any]) -> Fields:
    return {int(number): field for number, field in stored.items() if number != "reserved"}


# messages
def test_no_field_changes_its_number_type_or_name_and_those_that_go_are_reserved(protos: dict[str, Any]) -> None:
    here, wrong = messages(), []
    for name, before in protos["messages"].items():
        if name not in here:
            wrong.append(f"{name} is gone; keep it, empty and with all of its numbers reserved")
            continue
        now, (numbers, names) = fields(here[name]), reserved(here[name])
        for number, field in fields_of(before).items():
            if number not in now and not (number in numbers and field.split()[-1] in names):
                wrong.append(f"{name} has lost '{field} = {number}': reserve both the number and the name")
            if number in now and now[number] != field:
                wrong.append(f"{name} had '{field} = {number}', now '{now[number]}': take a new number, reserve this")
        free = {*numbers, *names}
        wrong += [f"{name} must keep {each} reserved" for each in before["reserved"] if each not in free]
    assert wrong == []


def test_no_value_of_an_enum_changes_its_number(protos: dict[str, Any]) -> None:
    now = enums()
    for name, before in protos["enums"].items():
        assert {int(number): value for number, value in before.items()}.items() <= now[name].items(), name


def test_no_call_changes_what_it_takes_or_gives(protos: dict[str, Any]) -> None:
    now = calls()
    assert {name: tuple(ends) for name, ends in protos["calls"].items() if name in now}.items() <= now.items()


def test_numbers_that_are_free_are_reserved() -> None:
    for name, message in messages().items():
        taken = {*fields(message), *reserved(message)[0]}
        assert taken == set(range(1, len(taken) + 1)), name


def test_every_field_says_what_it_means_and_in_which_unit() -> None:
    silent_fields: list[str] = []
    for path in sorted((ROOT / "protos").rglob("*.proto")):
        lines = path.read_text().splitlines()
        for before, line in pairwise(lines):
            if re.fullmatch(r"  [\w<>., ]+ \w+ = \d+;", line) and not before.lstrip().startswith("//"):
                silent_fields.append(line.split()[-3])
    assert not silent_fields


def test_every_call_has_a_request_and_a_reply_of_its_own() -> None:
    for name, (taken, given) in calls().items():
        method = name.partition(".")[2].replace("ExchangeSparse", "PushPullSparse")  # the same, on a stream
        assert [each.removeprefix("stream ") for each in (taken, given)] == [f"{method}Request", f"{method}Reply"]


def test_what_travels_in_parts_has_the_fields_that_are_framed_by_hand() -> None:
    streams = {name.removeprefix("stream ") for ends in calls().values() for name in ends if "stream" in name}
    parts = streams - {f"{name}Reply" for name in ("Manifest", "Fetch", "Counts")}
    parts = {name for name in parts if not name.startswith("PushPullSparse")} | {"PushReply", "DeliverReply"}
    assert len(parts) == 11
    for name in parts:
        head = "PushHead" if name.endswith("Request") else "PullHead"
        assert fields(messages()[name]) == {1: f"{head} head", 2: "uint64 offset", 15: "bytes data"}, name


def test_stored_messages_are_read_field_by_field(stored: Path, protos: dict[str, Any]) -> None:
    known = {name: fields_of(found) for name, found in protos["messages"].items()}
    for name, text in json.loads((stored / "messages.json").read_text()).items():
        expected = filled(messages()[name], known)
        read = type(expected).FromString(base64.b64decode(text))
        read.DiscardUnknownFields()  # those that are reserved since
        assert read == expected, name


def test_fields_of_a_later_release_are_ignored(stored: Path) -> None:
    later = b"\xc0\x3e\x05" + b"\xca\x3e\x05later"  # fields 1000 and 1001: a number and a text
    for name, text in json.loads((stored / "messages.json").read_text()).items():
        kind = type(filled(messages()[name], {}.fromkeys(messages(), {})))
        read = kind.FromString(base64.b64decode(text) + later)
        plain = kind.FromString(base64.b64decode(text))
        read.DiscardUnknownFields()
        plain.DiscardUnknownFields()  # those that are reserved since
        assert read == plain, name


def test_a_part_with_a_field_of_a_later_release_is_read_by_hand_all_the_same(stored: Path) -> None:
    raw = base64.b64decode(json.loads((stored / "messages.json").read_text())["PushPullRequest"])
    plain, later = parse(raw), parse(raw + b"\xc0\x3e\x05")
    assert (later.offset, bytes(later.data)) == (plain.offset, bytes(plain.data)) == (1002, b"15")
    heads = [PushHead.FromString(part.head) for part in (later, plain)]
    assert heads[0] == heads[1]


# a server's folder
@pytest.fixture
def resumed(stored: Path) -> Any:
    found = Cluster(kept.CONFIG, stored)
    yield found
    found.close()


def test_a_server_goes_on_from_a_stored_folder(resumed: Cluster) -> None:
    server = resumed.servers[0]
    assert server.folder.term == 2
    found = server.folder.newest_snapshot()
    state = found[1]
    clocks = {worker: (entry["incarnation"], entry["clock"]) for worker, entry in state.table["clocks"].items()}
    assert clocks == {"worker-0": (1, 2), "worker-1": (1, 1)}
    assert state.table["version"] == 1
    np.testing.assert_array_equal(state.weights, np.full(40, -0.5 * 1.5, np.float32))  # a step on the mean of 1 and 2
    np.testing.assert_array_equal(state.slots, [np.full(40, 1.5, np.float32)])
    np.testing.assert_array_equal(state.gathered, np.full(40, 3.0, np.float32))
    assert server.chief.run.scoring.scores == [kept.SCORE]
    assert set(server.chief.membership.view.seats) == {"worker-0", "worker-1"}


def test_workers_train_on_from_a_stored_folder(resumed: Cluster) -> None:
    workers = [Pusher(resumed, number).join() for number in (0, 1)]
    for worker in workers:
        worker.sit()
    assert [worker.clock for worker in workers] == [2, 1]
    heads = workers[1].push(1.0)
    assert (heads[0].term, heads[0].version, heads[0].clock) == (2, 2, 2)
    np.testing.assert_array_equal(workers[1].model, np.full(40, -0.75 - 0.5 * (0.5 * 1.5 + 2), np.float32))


def rewritten(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """A JSON file with its checksum as the last line, changed."""
    value = json.loads(path.read_text().rpartition("\n{")[0] or path.read_text().splitlines()[0])
    text = json.dumps(change(value))
    path.write_text(f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}\n")


def later(value: dict[str, Any]) -> dict[str, Any]:
    return value | {"format": 2}


def without_number(value: dict[str, Any]) -> Any:
    del value["format"]
    return value.get("settings", value)


@pytest.mark.parametrize("name", ["term.json", "settings.json", "run.json", "snapshot-000000000002.json"])
def test_a_folder_of_a_later_release_is_refused_and_left_alone(stored: Path, name: str) -> None:
    path = stored / "server-0" / name
    rewritten(path, later)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir() if file.name != "term.json"}
    with pytest.raises(TooNew) as refused:
        Cluster(kept.CONFIG, stored).close()
    assert str(refused.value) == (
        f"{path} has format 2; this release of Paceline reads formats up to 1, so {GO_ON}start over with another folder."
    )
    assert refused.value.exit_code == 65
    for file in path.parent.iterdir():
        assert file.name in ("lock", "term.json") or file.read_bytes() == before[file.name]


def test_a_folder_from_before_formats_had_numbers_is_read(stored: Path) -> None:
    for path in (stored / "server-0").glob("*.json"):
        rewritten(path, without_number)
    test_a_server_goes_on_from_a_stored_folder(cluster := Cluster(kept.CONFIG, stored))
    cluster.close()


def test_a_setting_that_a_later_release_adds_does_not_stop_a_run_where_it_is_as_it_comes(stored: Path) -> None:
    store = StateFolder(stored / "server-0", 3, silent)
    before = json.loads((stored / "server-0" / "settings.json").read_text().splitlines()[0])["settings"]
    store.check_settings([*before, "plan.later=3"], {"plan.later=3"})
    store.check_settings([*before, "plan.later=3"], {"plan.later=3"})
    store.close()
    store = StateFolder(stored / "server-0", 3, silent)
    with pytest.raises(ConfigError, match=r"other settings: plan\.later=3; plan\.later=4"):
        store.check_settings([*before, "plan.later=4"], {"plan.later=3"})
    store.close()


# shards
def test_stored_shards_are_read(stored: Path) -> None:
    shards = open_shards(stored / "shards")
    for number in range(2):
        shards.verify(number)
        rows = slice(2 * number, 2 * number + 2)
        np.testing.assert_array_equal(shards.shard(number).features, kept.FEATURES[rows])
        np.testing.assert_array_equal(shards.shard(number).labels, kept.LABELS[rows])
    shards.verify("test")
    assert shards.manifest.recipe.task == "made"


def test_shards_of_a_later_release_are_refused(stored: Path) -> None:
    path = stored / "shards" / "manifest.json"
    body = json.loads(path.read_text())
    path.write_text(json.dumps(body | {"format": body["format"] + 1, "later": True}))
    with pytest.raises(TooNew) as refused:
        read_manifest(stored / "shards")
    assert str(refused.value) == (
        f"{path} has format 4; this release of Paceline reads formats up to 3, so {GO_ON}make the shards again: "
        "`paceline shard --fresh`."
    )


# models
def test_a_stored_model_is_read(stored: Path) -> None:
    model = read_linear_model(stored / "model.safetensors")
    np.testing.assert_array_equal(model.weights, kept.WEIGHTS)
    assert (model.offset, model.names, model.labels.positive) == (1.0, ("no", "yes"), 1)


def test_a_model_of_a_later_release_is_refused(stored: Path) -> None:
    with safe_open(stored / "model.safetensors", "numpy") as file:
        facts, weights = file.metadata(), file.get_tensor("weights")
    save_file({"weights": weights}, stored / "later.safetensors", facts | {FORMAT_KEY: "2"})
    with pytest.raises(TooNew) as refused:
        read_linear_model(stored / "later.safetensors")
    assert "The model's file has format 2; this release of Paceline reads formats up to 1" in str(refused.value)


def test_what_else_a_later_release_says_of_a_model_is_left_alone() -> None:
    assert Inputs.read({"epoch": "3", "later": "yes"}) is None


# what workers owe
@pytest.mark.parametrize(("number", "is_known"), [(None, True), (2, False)])
def test_stored_residuals_are_taken_up_and_those_of_another_release_are_told(
    stored: Path, monkeypatch: pytest.MonkeyPatch, number: int | None, is_known: bool
) -> None:
    monkeypatch.setattr(residuals, "_boot", lambda: "stored")
    if number is not None:
        monkeypatch.setattr(residuals, "_FORMAT", number)
    owed, why = residuals.open_owed(stored / "residuals", "worker-0-0", kept.BELONGS, len(kept.OWED), 0.0)
    if is_known:
        assert (owed.clock, owed.residual.tolist(), why) == (3, kept.OWED.tolist(), "")
    else:
        assert (owed.clock, owed.residual.tolist()) == (0, [0, 0, 0, 0])
        assert "of another release" in why


# runs and searches
def test_a_stored_runs_folder_is_read(stored: Path) -> None:
    found = find_run("kept", stored / "runs")
    assert (found.settings(), found.final_metrics()) == (kept.CONFIG, kept.SCORE.metrics)
    assert found.facts()["accuracy"] == 0.75
    assert open_run(kept.CONFIG, runs=stored / "runs")[0].name == "kept"


@pytest.mark.parametrize("name", ["kept", None])
def test_a_run_of_a_later_release_is_neither_shown_nor_resumed(stored: Path, name: str | None) -> None:
    RunFolder(stored / "runs" / "kept").write_facts(format=2)
    for attempt in (lambda: find_run(name, stored / "runs"), lambda: open_run(kept.CONFIG, runs=stored / "runs")):
        with pytest.raises(TooNew) as refused:
            attempt()
        assert str(refused.value) == (
            f"{stored / 'runs' / 'kept'} has format 2; this release of Paceline reads formats up to 1, so {GO_ON}begin "
            "another run."
        )


def test_a_search_from_before_optuna_kept_them_is_not_continued_and_left_alone(stored: Path) -> None:
    before = (stored / "search" / "search.json").read_text()
    told, search = r"holds a search of an earlier Paceline .*--out another folder", SearchFolder(stored / "search")
    with pytest.raises(ConfigError, match=told), opened(search, fresh=False):
        pass
    assert (stored / "search" / "search.json").read_text() == before


@pytest.mark.parametrize("found", ["two", None, 1.5, True, [1]])
def test_a_format_that_is_no_number_is_damage_and_no_newer_release(found: object) -> None:
    with pytest.raises(DataError, match=r"^x has format .*, which is not a number, .* Restore it, or y\.$") as raised:
        check_format("x", found, 1, "y")

    assert not isinstance(raised.value, TooNew)
