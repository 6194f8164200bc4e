"""Which images the end-to-end tests build, and which they take from the cluster's node; nothing is built."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from e2e import images
from e2e.cluster import full_name
from e2e.images import Builder, Image, bring
from paceline.core.errors import ConfigError


class Node:
    """Has images, each with the checksum of its content."""

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        self.contents: dict[str, str] = {}

    def read(self, names: Sequence[str], _: str) -> Mapping[str, str | None]:
        return {name: self.contents.get(name) for name in names}

    def built(self) -> list[str]:
        """The names of images that were built since the last look; from now on the node has them."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        for line in lines:
            self.contents[line.split()[1]] = line.rpartition("IMAGE_CONTENT=")[2]
        return [line.split()[1].rpartition("/")[2] for line in lines]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def program(folder: Path, more: str = "") -> Path:
    """A cluster whose program `image` writes down what it is called with, and does `more`."""
    (folder / "image").write_text(f'#!/bin/sh\necho "$* $(grep ^ENV.IMAGE_CONTENT= "$5")" >>{folder}/calls\n{more}\n')
    (folder / "image").chmod(0o755)
    return folder


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the base image."""
    found = ["1"]
    monkeypatch.setattr(images, "base_ids", lambda _: found)
    return found


@pytest.mark.nightly  # `.ci/e2e` brings its images by it
def test_an_image_is_built_once_and_again_when_its_base_or_what_builds_it_is_another(
    tmp_path: Path, node: Node, base: list[str]
) -> None:
    wanted = [Image("server"), Image("sharder"), Image("server", "again")]

    bring(Builder(program(tmp_path), "base"), wanted, node.read)
    assert node.built() == ["paceline-server:0.1.0", "paceline-sharder:0.1.0", "paceline-server:again"]
    bring(Builder(program(tmp_path), "base"), wanted, node.read)
    assert node.built() == []
    base[0] = "2"
    bring(Builder(program(tmp_path), "base"), wanted[:1], node.read)
    assert node.built() == ["paceline-server:0.1.0"]
    bring(Builder(program(tmp_path, "# other flags"), "base"), wanted[:1], node.read)
    assert node.built() == ["paceline-server:0.1.0"]


@pytest.mark.nightly  # `.ci/e2e` brings its images by it
def test_an_image_of_the_same_name_that_others_built_is_built_anew(
    tmp_path: Path, node: Node, base: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    bring(Builder(program(tmp_path), base[0]), [Image("server"), Image("sharder")], node.read)
    node.built()
    node.contents[full_name("paceline-server")] = ""

    bring(Builder(program(tmp_path), base[0]), [Image("server"), Image("sharder")], node.read)

    assert node.built() == ["paceline-server:0.1.0"]
    assert "sharder:0.1.0 is on the node: 0 s" in capsys.readouterr().out


@pytest.mark.usefixtures("base")
def test_a_build_that_fails_or_whose_files_are_edited_meanwhile_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="ended with exit code 5"):
        Builder(program(tmp_path, "exit 5"), "base").build(Image("server"))

    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/Dockerfile").write_text("FROM base AS server\nCOPY code /\n")
    (tmp_path / ".dockerignore").write_text("")
    (tmp_path / "code").write_text("1")
    monkeypatch.setattr(images, "REPOSITORY", tmp_path)
    with pytest.raises(ConfigError, match="were edited while it was built"):
        Builder(program(tmp_path, "echo 2 >code"), "base").build(Image("server"))


def test_a_base_image_that_no_engine_has_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigError, match="has the base image python:3"):
        Builder(program(tmp_path), "python:3")
