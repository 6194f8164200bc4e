"""A folder of images is read whole, with a class for each folder in it, or refused with the file that is wrong."""

import io
import uuid
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paceline.core.errors import DataError
from paceline.data import out_of_core
from paceline.data.files import at
from paceline.data.images import read_images
from paceline.data.out_of_core import is_mapped


def image_bytes(colour: tuple[int, int, int], size: tuple[int, int] = (4, 3), kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size, colour).save(stream, kind)
    return stream.getvalue()


def put(file: Path, content: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def two_classes(folder: Path) -> Path:
    """cats: red 10 and 20; dogs: red 30."""
    put(folder / "dogs" / "a.png", image_bytes((30, 0, 0)))
    put(folder / "cats" / "b.bmp", image_bytes((20, 2, 3), kind="BMP"))
    put(folder / "cats" / "a.png", image_bytes((10, 1, 2)))
    return folder


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path if request.param == "local" else at(f"memory://{uuid.uuid4().hex}")


def test_classes_are_folders_in_order_of_names(folder: Path):
    dataset = read_images(str(two_classes(folder)))

    assert dataset.train.features.shape == (3, 3, 3, 4)
    assert dataset.train.features.dtype == np.uint8
    assert dataset.train.features[:, 0, 0, 0].tolist() == [10, 20, 30]
    assert dataset.train.features[0, :, 2, 3].tolist() == [10, 1, 2]
    assert dataset.train.labels.tolist() == [0, 0, 1]
    assert dataset.classes == ("cats", "dogs")
    assert dataset.test is None


@pytest.mark.parametrize("other", ["dev", "bus"])
def test_a_folder_beside_a_set_is_not_left_out_silently(folder: Path, other: str):
    two_classes(folder / "train")
    put(folder / other / "cats" / "x.png", image_bytes((8, 0, 0)))

    with pytest.raises(DataError, match=f"the set train, and {other}, which would be left out"):
        read_images(str(folder))


@pytest.mark.parametrize(
    ("train", "test", "validation"),
    [("train", "test", "validation"), ("train", "test", "val"), ("Train", "TEST", "Valid")],
)
def test_sets_that_the_folder_brings_are_kept_apart(folder: Path, train: str, test: str, validation: str):
    two_classes(folder / train)
    put(folder / test / "dogs" / "x.png", image_bytes((9, 0, 0)))
    put(folder / validation / "cats" / "x.png", image_bytes((8, 0, 0)))

    dataset = read_images(str(folder))

    assert dataset.train.labels.tolist() == [0, 0, 1]
    assert dataset.test.labels.tolist() == [1]
    assert dataset.validation.labels.tolist() == [0]
    assert dataset.validation.features[:, 0, 0, 0].tolist() == [8]
    assert dataset.classes == ("cats", "dogs")


def test_images_that_outgrow_memory_are_mapped_and_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = read_images(two_classes(tmp_path))
    monkeypatch.setattr(out_of_core, "PIECE_BYTES", 72)  # two images
    monkeypatch.setattr(out_of_core, "IN_MEMORY", 50)

    pieces = read_images(tmp_path)

    assert is_mapped(pieces.train.features)
    assert pieces.digest() == whole.digest()


def test_images_can_be_grey(tmp_path: Path):
    put(tmp_path / "a" / "a.png", image_bytes((50, 50, 50)))

    features = read_images(tmp_path, colours="L").train.features

    assert features.shape == (1, 1, 3, 4)
    assert features[0, 0, 0, 0] == 50


def test_mixed_sizes_are_refused_unless_one_is_given(tmp_path: Path):
    put(two_classes(tmp_path) / "dogs" / "big.png", image_bytes((1, 2, 3), (8, 6)))

    with pytest.raises(DataError, match=r"big\.png is 8x6, but .*a\.png is 4x3; scale all images"):
        read_images(tmp_path)
    assert read_images(tmp_path, size=(5, 2)).train.features.shape == (4, 3, 2, 5)


def test_a_photograph_is_turned_as_its_camera_says(tmp_path: Path):
    stream = io.BytesIO()
    tags = Image.Exif()
    tags[0x0112] = 6  # lying on its side
    Image.new("RGB", (4, 3)).save(stream, "JPEG", exif=tags)
    put(tmp_path / "a" / "a.jpg", stream.getvalue())

    assert read_images(tmp_path).train.features.shape == (1, 3, 4, 3)


def test_what_desktops_leave_in_folders_is_passed_over(tmp_path: Path):
    put(two_classes(tmp_path) / "cats" / ".DS_Store", b"junk")
    put(tmp_path / ".hidden" / "x", b"junk")
    put(tmp_path / "README.txt", b"about cats")
    put(tmp_path / "cats" / "Thumbs.db", b"junk")
    put(tmp_path / "dogs" / "desktop.ini", b"junk")
    put(tmp_path / "__MACOSX" / "cats" / "._a.png", b"junk")

    assert len(read_images(tmp_path).train) == 3


@pytest.mark.parametrize(
    "content", [b"", b"<html>404</html>", image_bytes((1, 2, 3))[:40], image_bytes((1, 2, 3))[:-30]]
)
def test_a_damaged_image_is_named(folder: Path, content: bytes):
    put(two_classes(folder) / "dogs" / "b.png", content)

    with pytest.raises(DataError, match=r"Can't read .*dogs/b\.png: .*damaged or no image"):
        read_images(folder)


def deep_pixels() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((3, 4), 40_000, np.uint16)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("train", "name", "content", "message"),
    [
        (".", "dogs/b.png", deep_pixels(), r"b\.png has more than 8 bits for each pixel"),
        (".", "dogs/notes.docx", b"x", r"notes\.docx does not end like an image \(\.png, "),
        (".", "owls/.hidden", b"x", "owls holds no images"),
        ("train", "test/owls/x.png", image_bytes((1, 1, 1)), "class 'owls' that is not .* cats, dogs"),
        (
            ".",
            "dogs/puppies/x.png",
            image_bytes((1, 1, 1)),
            "puppies is a folder, where images of the class 'dogs' are",
        ),
        (
            "training",
            "validation/cats/x.png",
            image_bytes((1, 1, 1)),
            "train, test and validation.*If 'training' is such a set, give it that name",
        ),
        ("pets", "pets/x.txt", b"", r"holds one folder, 'pets', and no images in it but more folders: give .*/pets\.$"),
        (None, "a.png", image_bytes((1, 1, 1)), "holds no folders; expected one for each class"),
    ],
    ids=[
        "deep pixels",
        "unknown ending",
        "a class without images",
        "a class not trained",
        "too deep",
        "sets of other names",
        "wrapped",
        "no classes",
    ],
)
def test_a_folder_that_is_no_data_set_is_refused(
    tmp_path: Path, train: str | None, name: str, content: bytes, message: str
):
    if train is not None:
        two_classes(tmp_path / train)
    put(tmp_path / name, content)

    with pytest.raises(DataError, match=message):
        read_images(tmp_path)


def test_what_is_no_folder_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match=r"nowhere does not exist\. Expected a folder of images"):
        read_images(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"a\.png is a file, not a folder\. Expected"):
        read_images(put(tmp_path / "a.png", b""))
