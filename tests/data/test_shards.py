"""A folder of shards is whole or refused: what is written is read back, and every damage is found."""

import contextlib
import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from paceline.core.errors import DataError, DiskError
from paceline.data import out_of_core, shard_arrays
from paceline.data.dataset import Labelled, Selection, dense
from paceline.data.manifest import MANIFEST, Manifest, Recipe, read_manifest, render
from paceline.data.shard_writer import Dealt, already_there, write_shards
from paceline.data.shards import is_there, open_shards, take

RECIPE = Recipe(task="digits", strategy="random", shards=2, validation=0.1, test=0.2, seed=0, examples="a" * 64)


def selections():
    source = Labelled(np.arange(30, dtype=np.float32).reshape(10, 3), np.arange(10) % 3)
    shards = [Selection(source, np.array([0, 2, 4])), Selection(source, np.array([1, 3]))]
    return shards, {"validation": Selection(source, np.array([5, 6])), "test": Selection(source, np.array([7, 9]), 100)}


def write(folder, recipe=RECIPE):
    shards, parts = selections()
    return write_shards(folder, "digits.csv", recipe, Dealt(shards), parts)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "shards")
    return tmp_path / "shards"


def test_what_is_written_is_read_back(folder):
    shards = open_shards(folder)

    assert len(shards) == 2
    assert shards.shard(1).features.tolist() == [[3, 4, 5], [9, 10, 11]]
    assert shards.shard(1).features.dtype == np.float32
    assert shards.shard(1).labels.tolist() == [1, 0]
    assert shards.shard(1).ids.tolist() == [1, 3]
    assert len(shards.part("validation")) == 2
    assert shards.part("test").ids.tolist() == [107, 109]
    for which in (0, 1, "validation", "test"):
        shards.verify(which)


def test_an_example_of_several_shards_counts_once_for_its_features_wherever_they_are(tmp_path):
    source = Labelled(csr_array(np.eye(6, dtype=np.float32)), np.arange(6) % 2)
    shards = [Selection(source, np.array(rows)) for rows in ([0, 1], [1, 2, 3], [3, 4, 5], [5, 4])]
    write_shards(tmp_path / "shards", "made", RECIPE.model_copy(update={"shards": 4}), Dealt(shards), {})

    assert open_shards(tmp_path / "shards").feature_counts().tolist() == [1] * 6


def test_shards_are_mapped_and_can_not_be_changed(folder):
    features = open_shards(folder).shard(0).features

    assert isinstance(features, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        features[0] = 1


def test_the_manifest_says_what_is_there(folder):
    manifest = read_manifest(folder)

    assert manifest.sizes == [3, 2]
    assert manifest.train_examples == 5
    assert manifest.source == "digits.csv"
    assert manifest.shards[0].classes == {"0": 1, "1": 1, "2": 1}
    assert manifest.shards[0].files["features"].shape == (3, 3)
    assert manifest.shards[0].files["features"].bytes == (folder / "shard-0/features.npy").stat().st_size


def sparse():
    return Labelled(random_array((10, 7), density=0.3, format="csr", dtype=np.float32, rng=0), np.arange(10) % 2)


def test_sparse_rows_are_written_and_read_back_and_taken(tmp_path):
    source = sparse()
    every = source.features.toarray()
    picked = [Selection(source, np.array([8, 0, 3])), Selection(source, np.array([1, 2]))]

    manifest = write_shards(tmp_path / "shards", "x", RECIPE, Dealt(picked), {"test": Selection(source, np.array([9]))})
    shards = open_shards(tmp_path / "shards")
    both = [shards.shard(0), shards.shard(1)]
    features, labels = take(both, np.array([1, 0, 1, 0]), np.array([0, 2, 1, 0]))

    assert manifest.shards[0].columns == 7
    assert set(manifest.shards[0].files) == {"indptr", "indices", "values", "labels", "ids"}
    assert both[0].ids.tolist() == [0, 3, 8]
    np.testing.assert_array_equal(both[0].features.toarray(), every[[0, 3, 8]])
    np.testing.assert_array_equal(features.toarray(), every[[1, 8, 2, 0]])
    np.testing.assert_array_equal(dense(features), every[[1, 8, 2, 0]])
    assert labels.tolist() == [1, 0, 0, 0]
    assert shards.part("test").features.toarray().tolist() == every[[9]].tolist()
    for which in (0, 1, "test"):
        shards.verify(which)


def test_a_shard_without_any_value_that_is_not_zero_is_written(tmp_path):
    source = Labelled(csr_array((4, 3), dtype=np.float32), np.arange(4) % 2)
    picked = [Selection(source, np.array([0, 1])), Selection(source, np.array([2, 3]))]

    write_shards(tmp_path / "shards", "x", RECIPE, Dealt(picked), {})

    assert open_shards(tmp_path / "shards").shard(1).features.toarray().tolist() == [[0, 0, 0], [0, 0, 0]]


def test_files_of_a_sparse_shard_that_do_not_fit_together_are_refused(tmp_path):
    source = sparse()
    halves = Dealt([Selection(source, np.arange(5)), Selection(source, np.arange(5, 10))])
    manifest = write_shards(tmp_path / "shards", "x", RECIPE, halves, {})
    body = manifest.model_dump(mode="json")
    body["shards"][0]["files"]["indices"]["shape"] = [1]

    with pytest.raises(ValueError, match="features, a label and an id for each"):
        Manifest.model_validate(body)


@pytest.mark.parametrize("piece_bytes", [1, 24, 100, 10**6])
def test_the_size_of_pieces_changes_nothing(tmp_path, monkeypatch, piece_bytes):
    before = write(tmp_path / "whole")

    monkeypatch.setattr(out_of_core, "PIECE_BYTES", piece_bytes)
    after = write(tmp_path / "pieces")

    assert after.fingerprint == before.fingerprint
    both = [np.load(tmp_path / name / "shard-0/features.npy") for name in ("pieces", "whole")]
    np.testing.assert_array_equal(*both)


def test_more_shards_than_files_may_be_open_are_written_in_several_passes(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_arrays, "OPEN", 3)
    source = Labelled(np.arange(20.0)[:, None], np.arange(20) % 2)
    picked = [Selection(source, np.array([row, row + 10])) for row in range(10)]

    write_shards(tmp_path / "shards", "x", RECIPE, Dealt(picked), {})

    shards = open_shards(tmp_path / "shards")
    assert [shards.shard(number).features[:, 0].tolist() for number in range(10)] == [[n, n + 10] for n in range(10)]


def test_labels_that_are_no_classes_have_no_histogram(tmp_path):
    source = Labelled(np.zeros((2, 1)), np.array([0.5, 1.5]))

    manifest = write_shards(tmp_path / "shards", "x", RECIPE, Dealt([Selection(source, np.array([0, 1]))]), {})

    assert manifest.shards[0].classes == {}


def test_examples_are_taken_from_several_shards(folder):
    shards = open_shards(folder)
    both = [shards.shard(0), shards.shard(1)]

    features, labels = take(both, np.array([1, 0, 1]), np.array([0, 2, 1]))
    alone, _ = take(both[:1], np.array([0, 0]), np.array([1, 0]))

    assert features[:, 0].tolist() == [3, 12, 9]
    assert labels.tolist() == [1, 1, 0]
    assert alone[:, 0].tolist() == [6, 0]


def test_a_shard_or_part_that_does_not_exist_is_named(tmp_path):
    shards, _ = selections()
    write_shards(tmp_path / "shards", "x", RECIPE, Dealt(shards), {})

    found = open_shards(tmp_path / "shards")

    with pytest.raises(DataError, match=r"no shard-2 in .*; it holds shard-0 to shard-1"):
        found.shard(2)
    with pytest.raises(DataError, match=r"no test examples\. Set data\.test above 0"):
        found.part("test")


def test_the_same_recipe_is_already_there_and_another_is_refused_with_the_difference(folder):
    assert already_there(folder, RECIPE) == read_manifest(folder)
    with pytest.raises(DataError, match=r"seed was 0 and is now 1; examples was a{12} and is now b{12}\..*--fresh"):
        already_there(folder, RECIPE.model_copy(update={"seed": 1, "examples": "b" * 64}))


def test_nothing_or_an_empty_folder_is_no_set_of_shards(tmp_path):
    assert already_there(tmp_path / "nowhere", RECIPE) is None
    assert already_there(tmp_path, RECIPE) is None
    assert not is_there(tmp_path)


def test_a_half_written_folder_is_not_taken_for_whole(folder):
    (folder / MANIFEST).unlink()

    assert not is_there(folder)
    with pytest.raises(DataError, match="half-written"):
        open_shards(folder)
    with pytest.raises(DataError, match="half-written"):
        already_there(folder, RECIPE)


def test_shards_are_replaced_as_a_whole(folder):
    (folder / "shard-7").mkdir()

    write(folder, RECIPE.model_copy(update={"seed": 5}))

    assert read_manifest(folder).recipe.seed == 5
    assert not (folder / "shard-7").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["shards"]


def test_a_folder_with_other_things_is_never_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")

    for attempt in (lambda: write(tmp_path), lambda: already_there(tmp_path, RECIPE)):
        with pytest.raises(DataError, match=r"holds thesis\.tex, which is not a shard"):
            attempt()
    with pytest.raises(DataError, match="is a file"):
        write(tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_what_a_killed_sharder_left_is_swept_away(tmp_path):
    (tmp_path / ".shards.writing-0123/shard-0").mkdir(parents=True)

    write(tmp_path / "shards")

    assert [path.name for path in tmp_path.iterdir()] == ["shards"]


@pytest.mark.parametrize("calls_before", [0, 3, 11])
def test_a_full_disk_leaves_the_old_shards(folder, monkeypatch, calls_before):
    left = iter(range(calls_before))

    def full(descriptor):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(DiskError, match="No space left on device"):
        write(folder, RECIPE.model_copy(update={"seed": 5}))
    assert read_manifest(folder).recipe.seed == 0
    assert [path.name for path in folder.parent.iterdir()] == ["shards"]


def test_a_swap_that_fails_puts_the_old_shards_back(folder, monkeypatch):
    rename = Path.rename

    def fail_for_the_draft(path, target):
        if ".writing-" in path.name and not path.name.endswith("-old"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_for_the_draft)

    with pytest.raises(DiskError, match="Input/output error"):
        write(folder, RECIPE.model_copy(update={"seed": 5}))
    assert read_manifest(folder).recipe.seed == 0
    assert [path.name for path in folder.parent.iterdir()] == ["shards"]


def test_a_place_that_can_not_be_written_is_a_disk_error(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(DiskError, match="Can't write the shards"):
        write(tmp_path / "file/shards")


def test_a_folder_that_can_not_be_looked_into_is_a_disk_error(folder, monkeypatch):
    def forbidden(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("paceline.data.shard_writer.is_there", forbidden)

    with pytest.raises(DiskError, match="Permission denied"):
        already_there(folder, RECIPE)


def test_no_shards_at_all_says_how_to_make_them(tmp_path):
    with pytest.raises(DataError, match="make them with `paceline shard`"):
        open_shards(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["shard-0/features.npy", "shard-1/labels.npy", "validation/ids.npy", "test/ids.npy"])
def test_a_missing_or_truncated_file_is_found_before_it_is_mapped(folder, name):
    content = (folder / name).read_bytes()

    for damaged in (content[:-1], content + b"x", b""):
        (folder / name).write_bytes(damaged)
        with pytest.raises(DataError, match=f"{name} .* has {len(damaged)} bytes, expected {len(content)}.*--fresh"):
            open_shards(folder)
    (folder / name).unlink()
    with pytest.raises(DataError, match=f"{name} is missing"):
        open_shards(folder)


def flipped(content, place, bit):
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def test_every_flipped_bit_of_a_shard_is_found(folder):
    shards = open_shards(folder)

    for name in ("features", "labels", "ids"):
        path = folder / f"shard-0/{name}.npy"
        content = path.read_bytes()
        for place in range(0, len(content)):
            path.write_bytes(flipped(content, place, place % 8))
            with pytest.raises(DataError, match=f"{name}.npy is damaged: its checksum"):
                shards.verify(0)
        path.write_bytes(content)
    shards.verify(0)


def test_a_damaged_header_never_maps_another_array(folder):
    shards, good = open_shards(folder), open_shards(folder).shard(0).features.tolist()
    path = folder / "shard-0/features.npy"
    content = path.read_bytes()

    for place in range(128):
        for bit in (0, 3, 7):
            path.write_bytes(flipped(content, place, bit))
            with contextlib.suppress(DataError):
                assert shards.shard(0).features.tolist() == good


def test_an_array_of_another_type_or_shape_is_refused(folder):
    path = folder / "shard-0/features.npy"
    np.save(path, np.zeros((3, 3), np.int32))
    with pytest.raises(DataError, match=r"it is not an array of <f4 with shape \(3, 3\)"):
        open_shards(folder).shard(0)


def test_every_flipped_bit_of_the_manifest_is_found(folder):
    content = (folder / MANIFEST).read_bytes()

    for place in range(len(content)):
        (folder / MANIFEST).write_bytes(flipped(content, place, place % 8))
        with pytest.raises(DataError, match="--fresh"):
            read_manifest(folder)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"null", b'{"sha256": 1}', b"[" * 100_000, b'{"sha256": "', b"\xff"]
)
def test_a_manifest_of_nonsense_is_refused(folder, content):
    (folder / MANIFEST).write_bytes(content)

    with pytest.raises(DataError, match="is damaged"):
        open_shards(folder)


def test_a_manifest_of_absurd_size_is_not_read(folder):
    with (folder / MANIFEST).open("wb") as stream:
        stream.truncate(1 << 40)

    with pytest.raises(DataError, match=r"1,099,511,627,776 bytes; no manifest is above"):
        open_shards(folder)


def test_a_newer_format_is_named(folder):
    body = json.loads((folder / MANIFEST).read_bytes())
    (folder / MANIFEST).write_text(json.dumps({**body, "format": 4}))

    with pytest.raises(DataError, match="has format 4; this release of Paceline reads formats up to 3"):
        open_shards(folder)


def test_a_manifest_of_another_folder_is_found(folder, tmp_path):
    source = Labelled(np.zeros((9, 3), np.float32), np.zeros(9, int))
    rows = np.arange(9)
    write_shards(tmp_path / "other", "x", RECIPE, Dealt([Selection(source, rows)] * 2), {})
    shutil.copy(tmp_path / "other" / MANIFEST, folder / MANIFEST)

    with pytest.raises(DataError, match="is damaged"):
        open_shards(folder)


def test_a_manifest_whose_shard_lacks_a_file_is_refused(folder):
    body = json.loads(render(read_manifest(folder)))
    body.pop("sha256")
    body["shards"][0]["files"].pop("ids")

    with pytest.raises(ValueError, match="features, dense or sparse, labels and ids"):
        Manifest.model_validate(body)
