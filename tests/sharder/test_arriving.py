"""Examples that arrive after the shards were made are dealt by the neighbourhoods that were found then."""

import json
from pathlib import Path

import numpy as np
import pytest

from paceline.core.errors import ConfigError, DataError, DiskError
from paceline.core.settings.config import Config, Options
from paceline.sharder.arriving import EVERY, Arriving, assign
from paceline.sharder.sharding import make_shards

pytest.importorskip("sklearn", reason="scikit-learn is not installed here")
TASK = "\n".join(
    (
        "import numpy as np",
        "import paceline.data.dataset as made",
        "def data(path):",
        "    rng = np.random.default_rng(0)",
        "    kinds = np.repeat(np.arange(4), [60, 60, 60, 2])",
        "    features = 20 * np.eye(4, 6)[kinds] + rng.normal(size=(182, 6))",
        "    return made.Dataset(made.Labelled(features.astype(np.float32), kinds.astype(np.int64)))",
        "def model(): ...",
        "def loss(model, inputs, labels): ...",
    )
)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Four neighbourhoods of 60, 60, 60 and 2 examples in 3 shards."""
    return dealt(tmp_path, "distribution_aware", clusters=4, components=4)


def dealt(tmp_path: Path, name: str, weights: tuple[float, ...] = (), workers: int = 3, **options: object) -> Path:
    (tmp_path / "task.py").write_text(TASK)
    data = {"strategy": Options(name=name, **options), "validation": 0, "test": 0, "weights": weights}
    config = Config(task=str(tmp_path / "task.py"), workers=workers, seed=1)
    make_shards(config.model_copy(update={"data": config.data.model_copy(update=data)}), tmp_path / "shards")
    return tmp_path / "shards"


def stream(examples: int, seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Examples of the first three kinds, unevenly many of each, and their kinds."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(3, examples, p=[0.7, 0.2, 0.1])
    return (20 * np.eye(4, 6)[kinds] + rng.normal(size=(examples, 6))).astype(np.float32), kinds


def test_a_long_stream_stays_even_in_each_neighbourhood(shards: Path) -> None:
    arriving = Arriving(shards)

    for seed in range(20):
        features, kinds = stream(5000, seed)
        found, clusters = arriving.deal(features)
        assert len(set(zip(kinds.tolist(), clusters.tolist(), strict=True))) == 3
        assert EVERY not in found

    assert arriving.counts.sum() == 180 + 3 * 2 + 100_000
    assert (arriving.counts.max(axis=1) - arriving.counts.min(axis=1)).max() <= 1


def test_a_sparse_neighbourhood_goes_to_every_shard_until_it_has_enough_to_be_dealt(shards: Path) -> None:
    rare = np.float32(20 * np.eye(4, 6)[[3, 3, 3, 3]])

    found, _ = Arriving(shards).deal(rare)

    assert found.tolist() == [EVERY, 0, 1, 2]


def test_a_neighbourhood_that_was_dealt_goes_on_so_with_fewer_examples_in_a_shard_than_shards(tmp_path: Path) -> None:
    arriving = Arriving(dealt(tmp_path, "distribution_aware", workers=12, clusters=4, components=4))
    assert sorted(arriving.counts.max(axis=1).tolist()) == [2, 5, 5, 5]

    found, _ = arriving.deal(stream(600)[0])

    assert EVERY not in found
    assert np.ptp(np.bincount(found, minlength=12)) <= 3  # one of each neighbourhood


def test_a_file_that_can_not_be_written_is_told_and_nothing_is_dealt(shards: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "new.npy", stream(100)[0])

    with pytest.raises(DiskError, match=r"Can't write the shards of the examples to .*/nowhere/out\.npy"):
        assign(shards, tmp_path / "new.npy", tmp_path / "nowhere" / "out.npy")

    assert not (shards / "arrived.json").exists()


def test_the_examples_of_the_shards_are_found_in_their_own_neighbourhoods(shards: Path) -> None:
    arriving, before = Arriving(shards), Arriving(shards).counts
    own = [np.load(shards / f"shard-{number}" / "features.npy") for number in range(3)]

    found = [np.bincount(arriving.deal(each)[1], minlength=4).tolist() for each in own]

    assert np.array(found).T.tolist() == before.tolist()


def test_the_next_process_goes_on_where_the_last_one_was(shards: Path, tmp_path: Path) -> None:
    features, _ = stream(100)
    np.save(tmp_path / "new.npy", features)

    first = assign(shards, tmp_path / "new.npy", tmp_path / "out.npy")
    assign(shards, tmp_path / "new.npy", tmp_path / "out.npy")

    counts = np.array(json.loads((shards / "arrived.json").read_text()))
    assert counts.sum() == 186 + 200
    assert (counts.max(axis=1) - counts.min(axis=1)).max() <= 1
    assert sum(first.values()) == len(np.load(tmp_path / "out.npy")) == 100


def test_shards_without_neighbourhoods_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no neighbourhoods\.npz: their strategy is random"):
        Arriving(dealt(tmp_path, "random"))


def test_shards_of_different_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"have the weights \[1\.0, 1\.0, 2\.0\]"):
        Arriving(dealt(tmp_path, "distribution_aware", weights=(1, 1, 2), clusters=4, components=4))


def test_examples_of_another_shape_are_refused(shards: Path) -> None:
    with pytest.raises(DataError, match="have 5 features, and the shards were made of examples with 6"):
        Arriving(shards).deal(np.zeros((3, 5), np.float32))


def test_shards_with_neighbourhoods_can_be_made_again(shards: Path, tmp_path: Path) -> None:
    Arriving(shards).save()

    assert dealt(tmp_path, "distribution_aware", clusters=4, components=4) == shards
