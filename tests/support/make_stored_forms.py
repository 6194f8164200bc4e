"""`python -m tests.support.make_stored_forms NAME`: keeps what this release writes, under tests/stored/NAME, so that later
ones are tested to read it (docs/understand/releases.md, "Older and newer peers"). What exists is never made again."""

import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

from paceline.core.chief.scoring import Score
from paceline.core.settings.config import Config, Options
from paceline.data.dataset import Labelled, Selection
from paceline.data.inputs import Inputs
from paceline.data.linear_model import Labels, Parts, save_safetensors
from paceline.data.manifest import Recipe
from paceline.data.shard_writer import Dealt, write_shards
from paceline.launch.folder.run_folder import open_run
from paceline.worker.exchange import residuals
from tests.support.in_process import Cluster, Pusher
from tests.support.stored_protos import stored_bytes, table

STORED = Path(__file__).parent.parent / "stored"
CONFIG = Config(
    run="kept",
    workers=2,
    servers=1,
    policy=Options(name="kbuffered", k=2),
    transport="grpc",
    batch="worker",
    optimizer=Options(name="sgd", lr=0.5, momentum=0.5, weight_decay=0.0),
    schedule={"lr_scale": "none"},
    checkpoint={"every": 5.0},  # was the default; a run's folder has all settings
    score_timeout=300.0,  # so was this
)
"""Of the run that is kept."""
FEATURES = np.arange(12, dtype=np.float32).reshape(6, 2)
LABELS = np.array([0, 1, 0, 1, 0, 1])
WEIGHTS = np.array([0.5, -1.0, 2.0], np.float32)
OWED = np.array([1.0, -2.0, 3.0, -4.0], np.float32)
BELONGS = {"run": "kept", "server": "0"}
SCORE = Score(1, 2.5, [1], {"test_accuracy": 0.75, "test_loss": 0.5}, False, "max accuracy", {"test": 4})


def make(folder: Path) -> None:
    """Writes one of each form."""
    (folder / "messages.json").write_text(stored_bytes())
    _server(folder)
    _shards(folder / "shards")
    inputs = Inputs(shape=(3,), dtype="<f4", sparse=True, label_dtype="<i8", classes=("no", "yes"))
    save_safetensors(folder / "model.safetensors", Parts(WEIGHTS, np.ones(1, np.float32)), Labels(-1, 1), inputs.facts)
    _residuals(folder / "residuals")
    place, _ = open_run(CONFIG, runs=folder / "runs")
    place.write_facts(finished=True, exit_code=0, accuracy=0.75, metrics={"test_accuracy": 0.75})
    place.metrics.write_text(
        json.dumps({"phase": "finished", "scores": [{"final": True, "metrics": SCORE.metrics}]}) + "\n"
    )


def _server(folder: Path) -> None:
    """A run of one server: worker-0 has pushed 1 and 3, worker-1 has pushed 2, and every second push makes a step."""
    cluster = Cluster(CONFIG, folder)
    try:
        cluster.evaluator_ready()
        workers = [Pusher(cluster, number).join() for number in (0, 1)]
        chief = cluster.servers[0].chief
        assert chief is not None
        with chief.changed:
            for worker in workers:
                chief.seat(worker.name, worker.incarnation, 0)
        for worker in workers:
            worker.sit()
        for number, value in ((0, 1.0), (1, 2.0), (0, 3.0)):
            workers[number].push(value)
        with chief.changed:
            chief.score(SCORE)
    finally:
        cluster.close()


def _shards(folder: Path) -> None:
    source = Labelled(FEATURES, LABELS)
    recipe = Recipe(task="made", strategy="random", shards=2, validation=0, test=0, seed=0, examples="a" * 64)
    dealt = Dealt([Selection(source, np.arange(0, 2)), Selection(source, np.arange(2, 4))])
    write_shards(folder, "made", recipe, dealt, {"test": Selection(source, np.arange(4, 6))})


def _residuals(folder: Path) -> None:
    """What worker-0 owes after clock 3, in a machine whose start is called 'stored'."""
    before = residuals._boot
    residuals._boot = lambda: "stored"
    try:
        owed, _ = residuals.open_owed(folder, "worker-0-0", BELONGS, len(OWED), 0.0)
    finally:
        residuals._boot = before
    owed._states[0, 0] = OWED
    owed._stamps[0] = 3, 1


def _packed(folder: Path) -> bytes:
    """The folder as .tar.xz, the same bytes for the same content."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:xz") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name not in ("lock", ".lock", "token"):
                entry = tarfile.TarInfo(str(path.relative_to(folder)))
                entry.size = path.stat().st_size
                archive.addfile(entry, io.BytesIO(path.read_bytes()))
    return found.getvalue()


if __name__ == "__main__":
    target = STORED / sys.argv[1]
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        make(Path(name))
        (target / "forms.tar.xz").write_bytes(_packed(Path(name)))
    (target / "protos.json").write_text(table())
