"""The models of a run in an object store: whole runs on a real S3 server, and what happens while the store is away."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

pytest.importorskip("moto", reason="moto is not installed: make setup")

from paceline.core.errors import DiskError
from paceline.core.settings.config import Config
from paceline.data.stored_folder import StoredFolder
from paceline.worker.scoring.sent_models import SentModels
from paceline.worker.surroundings import Surroundings
from tests.sharder.test_serve_processes import libsvm
from tests.support.commands import paceline
from tests.support.object_store import ObjectStore, object_store


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as found:
        found.put("mine", {})
        yield found


@pytest.fixture(autouse=True)
def variables(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that is started."""
    store.set_variables(monkeypatch)


def run(folder: Path, models_at: str) -> list[str]:
    """The words that train a small linear model."""
    (folder / "made.svm").write_text(libsvm(400, 30))
    settings = {"task": "svm", "run": "mine", "workers": 2, "servers": 1, "epochs": 3, "models_at": models_at}
    (folder / "run.yaml").write_text(yaml.safe_dump(settings | {"data": {"path": str(folder / "made.svm")}}))
    return ["run", "run.yaml"]


def test_the_last_and_the_best_model_of_a_run_lie_in_the_bucket_too(store: ObjectStore, tmp_path: Path) -> None:
    done = paceline(*run(tmp_path, "s3://mine/a/models"), cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    models = tmp_path / "runs/mine/models"
    sent = [name for name in store.names("mine") if name.startswith("a/models/")]
    assert sent == [f"a/models/mine/{file.name}" for file in sorted(models.iterdir())]
    assert {"a/models/mine/best.safetensors", "a/models/mine/last.safetensors"} <= set(sent)
    assert store.content("mine", "a/models/mine/last.safetensors") == (models / "last.safetensors").read_bytes()


def test_a_bucket_that_does_not_exist_ends_the_run_with_its_name(tmp_path: Path) -> None:
    done = paceline(*run(tmp_path, "s3://nobodys/models"), cwd=tmp_path)

    assert done.returncode == 65
    assert "There is no bucket 'nobodys'" in done.stderr


def test_a_best_model_that_could_not_be_sent_goes_with_the_next_one_and_the_last_must_go(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("best.safetensors", "last.safetensors"):
        (tmp_path / name).write_bytes(name.encode())
    lines: list[str] = []
    around = Surroundings(
        config=Config(run="r"),
        name="evaluator",
        addresses=[],
        say=lambda event, **facts: lines.append(event),
    )
    sent = SentModels("s3://mine/b", tmp_path, around)
    put = StoredFolder.put

    def refuse(self: StoredFolder, folder: Path, name: str) -> None:
        raise DiskError("full")

    monkeypatch.setattr(StoredFolder, "put", refuse)
    sent.send("best", is_last=False)
    assert lines == ["can't send the best model so far; scoring goes on"]
    with pytest.raises(DiskError, match="full"):
        sent.send("last", is_last=True)
    monkeypatch.setattr(StoredFolder, "put", put)
    SentModels("s3://mine/b", tmp_path, around).send("last", is_last=True)  # as it is started again

    assert [name for name in store.names("mine") if name.startswith("b/")] == [
        "b/r/best.safetensors",
        "b/r/last.safetensors",
    ]


@pytest.mark.parametrize("url", ["models", "/mnt/models", "s3:/mine"])
def test_a_folder_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match="expected a URL like s3://bucket/folder"):
        Config(models_at=url)
