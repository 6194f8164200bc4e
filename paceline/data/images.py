"""Reads a folder of images with a folder for each class: cats/1.png, dogs/1.png; or such folders in train/ and test/."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from paceline.core.errors import DataError
from paceline.data.dataset import Array, Dataset, Labelled
from paceline.data.files import at, folder_at, reading
from paceline.data.out_of_core import Growing, ranges

FORMATS = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".bmp": "BMP",
    ".webp": "WEBP",
    ".ppm": "PPM",
    ".pgm": "PPM",
    ".tif": "TIFF",
    ".tiff": "TIFF",
}
PARTS = {"train": ("train",), "test": ("test",), "validation": ("validation", "val", "valid")}
"""The sets, and what their folders are called."""
_LEFT_BY_SYSTEMS = ("__MACOSX", "Thumbs.db", "desktop.ini")
"""What archives and desktops leave in folders, besides names that begin with a point."""
EXPECTED = "The file is damaged or no image; replace or remove it."
Colours = Literal["RGB", "L"]


def read_images(folder: str | Path, size: tuple[int, int] | None = None, colours: Colours = "RGB") -> Dataset:
    """uint8 (N, 3, height, width), or (N, 1, height, width) in grey with colours='L'; classes are numbered in order of
    their folders' names. All images must have one size; with `size` (width, height) they are scaled to it. Where the
    folder holds 'train', its 'test' and 'validation' (or 'val') are those sets. DataError: no such folder, a class without
    images or unknown in training, a file that is no image, mixed sizes."""
    folder = folder_at(folder, "Expected a folder of images with a folder for each class.")
    with reading(folder):
        folders = sorted(each.name for each in _visible(folder) if each.is_dir())
        there = {part: own for part, names in PARTS.items() for own in folders if own.lower() in names}
        others = [own for own in folders if own not in there.values()]
    if "train" not in there:
        _check_depth(folder, folders)
        classes = _classes(folder)
        return Dataset(_part(folder, classes, size, colours), classes=tuple(classes))
    if others:
        raise DataError(
            f"{folder} has the set train, and {', '.join(others)}, which would be left out. Sets are called train, test and "
            "validation (or val): rename or remove the others. If train is a class, give its folder another name."
        )
    classes = _classes(folder / there["train"])
    parts = {part: _part(folder / name, classes, size, colours) for part, name in there.items()}
    return Dataset(parts["train"], parts.get("test"), parts.get("validation"), classes=tuple(classes))


def read_some(path: str | Path, shape: tuple[int, ...]) -> tuple[Array, list[str] | None]:
    """The image of a file, or those of a folder in order of names, scaled to the shape (3, height, width), (1, height, width)
    or (height, width) of one example; where a folder has a folder for each class, also the names of these for each image.
    DataError: a file that is no image."""
    place, colours, size = at(path), "RGB" if shape[0] == 3 and len(shape) == 3 else "L", (shape[-1], shape[-2])
    with reading(place):
        inner = [found.name for found in _visible(place) if found.is_dir()] if place.is_dir() else []
    names = sorted(inner)
    parts = [_files(place / name) for name in names] or [_files(place) if place.is_dir() else [place]]
    labels = [name for name, files in zip(names, parts, strict=True) for _ in files] if names else None
    found = [_pixels(file, size, colours).reshape(shape) for files in parts for file in files]  # type: ignore[arg-type]
    return np.stack(found), labels


def _check_depth(folder: Path, names: Sequence[str]) -> None:
    """DataError where the folder has nothing but a folder with folders in it, as an archive often unpacks."""
    inner = folder / names[0] if len(names) == 1 else None
    if inner is not None and any(each.is_dir() for each in _visible(inner)):
        raise DataError(f"{folder} holds one folder, {names[0]!r}, and no images in it but more folders: give {inner}.")


def _classes(folder: Path) -> list[str]:
    """The names of the classes, sorted."""
    with reading(folder):
        names = sorted(found.name for found in _visible(folder) if found.is_dir())
    if not names:
        raise DataError(f"{folder} holds no folders; expected one for each class, with its images in it.")
    return names


def _part(folder: Path, classes: Sequence[str], size: tuple[int, int] | None, colours: Colours) -> Labelled:
    """The images of one set; `classes` are the names that it may have."""
    files: list[Path] = []
    labels: list[int] = []
    for name in _classes(folder):
        if name not in classes:
            raise DataError(
                f"{folder} has a class {name!r} that is not in the training set, which has {', '.join(classes)}."
            )
        found = _files(folder / name)
        files += found
        labels += [classes.index(name)] * len(found)
    first = _pixels(files[0], size, colours)
    images = Growing(np.uint8, first.shape)
    for start, stop in ranges(len(files), first.nbytes):
        block = np.empty((stop - start, *first.shape), np.uint8)
        for row, file in enumerate(files[start:stop]):
            pixels = _pixels(file, size, colours)
            if pixels.shape != first.shape:
                raise DataError(
                    f"{file} is {pixels.shape[2]}x{pixels.shape[1]}, but {files[0]} is "
                    f"{first.shape[2]}x{first.shape[1]}; scale all images to the same size with size=(width, "
                    "height)."
                )
            block[row] = pixels
        images.append(block)
    return Labelled(images.array(), np.array(labels, np.int64))


def _files(folder: Path) -> list[Path]:
    """The images of one class in order of names; DataError where there are none, or where the folder holds other files."""
    with reading(folder):
        files = sorted(_visible(folder), key=lambda file: file.name)
    for file in files:
        if file.is_dir():
            raise DataError(
                f"{file} is a folder, where images of the class {folder.name!r} are expected: classes are the folders in the "
                f"folder that you give, or in its folders train, test and validation (or val). If {folder.name!r} is such a "
                "set, give it that name."
            )
        if file.suffix.lower() not in FORMATS:
            raise DataError(f"{file} does not end like an image ({', '.join(FORMATS)}); remove or rename it.")
    if not files:
        raise DataError(f"{folder} holds no images; add some, or remove the class.")
    return files


def _visible(folder: Path) -> list[Path]:
    """What is in the folder, without what desktops and archives leave there (.DS_Store)."""
    return [found for found in folder.iterdir() if not found.name.startswith((".", *_LEFT_BY_SYSTEMS))]


def _pixels(file: Path, size: tuple[int, int] | None, colours: Colours) -> Array:
    """uint8 (channels, height, width), turned as its camera says."""
    with reading(file, EXPECTED):
        from PIL import Image, ImageOps

        with file.open("rb") as stream, Image.open(stream, formats=sorted(set(FORMATS.values()))) as image:
            if image.mode.startswith(("I", "F")):
                raise DataError(
                    f"{file} has more than 8 bits for each pixel; save it with 8 bits, or read it in your own data()."
                )
            shown: Any = ImageOps.exif_transpose(image).convert(colours)
            if size is not None:
                shown = shown.resize(size, Image.Resampling.BILINEAR)
            pixels: Array = np.atleast_3d(np.asarray(shown, np.uint8)).transpose(2, 0, 1)
    return pixels
