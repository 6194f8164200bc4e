"""The binary files of CIFAR-10 and CIFAR-100 are read whole or refused with a reason."""

import gzip
import io
import tarfile

import numpy as np
import pytest

from paceline.core.errors import DataError
from paceline.data import archive
from paceline.data.cifar import PIXELS, TEST, TRAIN, read_cifar10, read_cifar100
from tests.support.damage import never_other
from tests.support.tree import SHARED

REAL = SHARED / "data/cifar10-small/cifar-10-small-binary.tar.gz"

RECORD = 1 + PIXELS


def batch(records, seed=0):
    """One file's bytes: labels 0, 1, 2 ... and random pixels."""
    content = np.random.default_rng(seed).integers(0, 256, (records, RECORD), dtype=np.uint8)
    content[:, 0] = np.arange(records) % 10
    return content.tobytes()


def small_files(records=3):
    return {name: batch(records, seed) for seed, name in enumerate((*TRAIN, TEST))}


def write_folder(folder, files):
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def write_archive(path, files, prefix="cifar-10-batches-bin/"):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_a_folder_is_read(tmp_path):
    dataset = read_cifar10(write_folder(tmp_path / "cifar", small_files()))

    assert dataset.train.features.shape == (15, 3, 32, 32)
    assert dataset.train.features.dtype == np.uint8
    assert dataset.train.labels.tolist() == [0, 1, 2] * 5
    assert dataset.train.labels.dtype == np.int64
    assert len(dataset.test) == 3


def test_classes_are_called_as_the_file_beside_the_images_says_or_by_their_known_names(tmp_path):
    names = [f"kind {number}" for number in range(10)]
    meta = {"batches.meta.txt": ("\n".join(names) + "\n\n").encode()}

    assert read_cifar10(write_folder(tmp_path / "a", small_files() | meta)).classes == tuple(names)
    assert read_cifar10(write_archive(tmp_path / "b.tar.gz", small_files() | meta)).classes == tuple(names)
    assert read_cifar10(write_folder(tmp_path / "c", small_files())).classes[3] == "cat"


@pytest.mark.parametrize("names", [b"cat\ndog\n", b"cat\n" * 10, b"\n".join(b"%d" % n for n in range(11))])
def test_a_file_of_other_than_ten_names_is_left_alone_and_told(tmp_path, names):
    found = read_cifar10(write_folder(tmp_path / "cifar", small_files() | {"batches.meta.txt": names}))

    assert found.classes[9] == "truck"
    assert "expected 10 different names of classes, which have their usual names instead" in found.as_read[0]


def test_classes_of_cifar100_have_names_where_the_files_are_there(tmp_path):
    names = {
        "fine_label_names.txt": "\n".join(f"f{n}" for n in range(100)).encode(),
        "coarse_label_names.txt": "\n".join(f"c{n}" for n in range(20)).encode(),
    }
    with_names = write_folder(tmp_path / "named", hundred_files() | names)
    without = write_folder(tmp_path / "plain", hundred_files() | {"fine_label_names.txt": b"apple\n"})

    assert read_cifar100(with_names, "fine").classes[99] == "f99"
    assert read_cifar100(with_names, "coarse").classes[19] == "c19"
    assert read_cifar100(without, "coarse").classes is None
    assert read_cifar100(without, "fine").classes is None
    assert read_cifar100(without, "fine").as_read[0].startswith("fine_label_names.txt holds 1 lines; expected 100")


def test_pixels_are_red_green_and_blue_planes_of_rows(tmp_path):
    files = small_files(1)
    record = np.zeros(RECORD, np.uint8)
    record[[0, 1, 1 + 1024 + 32]] = 7, 11, 13  # label; red, row 0, column 0; green, row 1, column 0
    files[TRAIN[0]] = record.tobytes()

    train = read_cifar10(write_folder(tmp_path / "cifar", files)).train

    assert (train.labels[0], train.features[0, 0, 0, 0], train.features[0, 1, 1, 0]) == (7, 11, 13)
    assert train.features[0].sum() == 24


def test_an_archive_and_what_it_unpacks_to_are_the_same(tmp_path):
    files = small_files()

    packed = read_cifar10(write_archive(tmp_path / "cifar.tar.gz", files))
    write_folder(tmp_path / "unpacked/cifar-10-batches-bin", files)

    assert packed.digest() == read_cifar10(str(tmp_path / "unpacked")).digest()


@pytest.mark.skipif(not REAL.exists(), reason="the small CIFAR-10 is missing")
def test_the_real_images_are_read():
    dataset = read_cifar10(REAL)

    assert dataset.train.features.shape == (10_000, 3, 32, 32)
    assert np.bincount(dataset.train.labels).tolist() == [1000] * 10
    assert np.bincount(dataset.test.labels).tolist() == [200] * 10


def test_no_data_says_where_to_get_it(tmp_path):
    with pytest.raises(DataError, match=r"There is no CIFAR-10 at .*cs\.toronto\.edu"):
        read_cifar10(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("data_batch_4.bin", None, r"lacks data_batch_4\.bin"),
        *(
            ("data_batch_2.bin", content, r"data_batch_2\.bin .* not a whole number of records of 3,073")
            for content in (batch(2)[:-1], b"", b"x")
        ),
        (TEST, batch(3)[:RECORD] + bytes([10]) + batch(3)[RECORD + 1 :], r"Record 1 of .* label 10; expected 0 to 9"),
    ],
    ids=["missing", "cut", "empty", "a byte", "label 10"],
)
def test_a_folder_with_a_wrong_file_is_refused(tmp_path, name, content, told):
    files = {**small_files(), name: content}
    if content is None:
        del files[name]

    with pytest.raises(DataError, match=told):
        read_cifar10(write_folder(tmp_path / "cifar", files))


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"a/data_batch_1.bin": batch(1), "b/data_batch_1.bin": batch(1)}, "twice"),
        ({f"{number}": bytes(90_000) for number in range(3)}, "unpacks to more than 100,000 bytes"),
        ({f"{number}": b"" for number in range(101)}, "more than 100 members"),
    ],
    ids=["a file twice", "too much", "many members"],
)
def test_an_archive_of_other_files_is_refused(tmp_path, monkeypatch, files, told):
    monkeypatch.setattr(archive, "MAX_BYTES", 100_000)

    with pytest.raises(DataError, match=told):
        read_cifar10(write_archive(tmp_path / "cifar.tar.gz", files))


def test_a_member_of_absurd_size_is_refused_before_it_is_read(tmp_path):
    member = tarfile.TarInfo("data_batch_1.bin")
    member.size = 1 << 40
    (tmp_path / "cifar.tar.gz").write_bytes(gzip.compress(member.tobuf()))

    with pytest.raises(DataError, match="claims 1,099,511,627,776 bytes"):
        read_cifar10(tmp_path / "cifar.tar.gz")


def test_a_folder_with_too_much_or_a_file_that_is_no_archive_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_BYTES", 10_000)
    (tmp_path / "cifar.tar.gz").write_text("<html>404</html>")

    with pytest.raises(DataError, match="the limit is 10,000"):
        read_cifar10(write_folder(tmp_path / "cifar", small_files()))
    with pytest.raises(DataError, match="Can't read CIFAR-10"):
        read_cifar10(tmp_path / "cifar.tar.gz")


def test_a_damaged_archive_never_gives_other_images(tmp_path):
    path = write_archive(tmp_path / "cifar.tar.gz", small_files(2))

    # bytes 3 to 9 are gzip's time stamp and the like, and a bit of the stored file name may flip unseen
    assert never_other(path, lambda: read_cifar10(path).digest(), path.read_bytes(), first=10)


def hundred(records, seed=0):
    """One file of CIFAR-100: coarse labels 0, 1, 2 ..., fine ones five times that, and random pixels."""
    content = np.random.default_rng(seed).integers(0, 256, (records, 2 + PIXELS), dtype=np.uint8)
    content[:, 0] = np.arange(records) % 20
    content[:, 1] = content[:, 0] * 5
    return content


def hundred_files():
    return {"train.bin": hundred(25).tobytes(), "test.bin": hundred(4, seed=1).tobytes(), "fine_label_names.txt": b"a"}


@pytest.mark.parametrize(("which", "labels"), [("fine", [0, 5, 10]), ("coarse", [0, 1, 2])])
def test_cifar100_is_read_by_fine_and_by_coarse_labels(tmp_path, which, labels):
    dataset = read_cifar100(write_folder(tmp_path / "cifar", hundred_files()), which)

    assert dataset.train.features.shape == (25, 3, 32, 32)
    assert np.array_equal(dataset.train.features.reshape(25, -1), hundred(25)[:, 2:])
    assert dataset.train.labels[:3].tolist() == labels
    assert len(dataset.test) == 4


def test_fine_and_coarse_labels_are_of_the_same_examples_in_the_same_order(tmp_path):
    folder = write_folder(tmp_path / "cifar", hundred_files())

    fine, coarse = read_cifar100(folder, "fine"), read_cifar100(folder, "coarse")

    assert np.array_equal(fine.train.features, coarse.train.features)
    assert np.array_equal(fine.train.labels // 5, coarse.train.labels)


def test_the_archive_of_cifar100_and_what_it_unpacks_to_are_the_same(tmp_path):
    packed = write_archive(tmp_path / "cifar.tar.gz", hundred_files(), prefix="cifar-100-binary/")
    write_folder(tmp_path / "unpacked/cifar-100-binary", hundred_files())

    assert read_cifar100(packed, "fine").digest() == read_cifar100(tmp_path / "unpacked", "fine").digest()


@pytest.mark.parametrize(("column", "label", "least"), [(0, 20, 19), (1, 100, 99)])
def test_a_label_that_cifar100_does_not_have_is_refused(tmp_path, column, label, least):
    content = hundred(3)
    content[2, column] = label

    with pytest.raises(DataError, match=rf"Record 2 of test\.bin .* label {label}; expected 0 to {least}"):
        read_cifar100(write_folder(tmp_path / "cifar", {**hundred_files(), "test.bin": content.tobytes()}), "fine")


def test_cifar10_is_not_taken_for_cifar100(tmp_path):
    folder = write_folder(tmp_path / "cifar", small_files())

    with pytest.raises(DataError, match=r"lacks train\.bin, test\.bin.*cifar-100-binary\.tar\.gz"):
        read_cifar100(folder, "fine")
    with pytest.raises(DataError, match="records of 3,074 bytes; it is truncated or not CIFAR-100"):
        read_cifar100(write_folder(tmp_path / "renamed", {"train.bin": batch(2), "test.bin": batch(2)}), "coarse")
