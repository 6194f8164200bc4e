"""Every built-in task: one contract for all of them, and what each is for, on small data in the real formats."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from paceline.core import registry
from paceline.core.errors import ConfigError
from paceline.data.dataset import Labelled
from paceline.data.splits import split
from paceline.settings.load_settings import load
from paceline.tasks import cifar
from paceline.tasks.builtin import cifar10
from paceline.tasks.task import BUILTIN, load_task
from paceline.worker.training.model_and_gradient import Replica
from tests.support.nights import some
from tests.support.plain_loop import trained

NAMES = [name for name in registry.names(BUILTIN) if name not in ("rcv1", "svm")]
"""Those whose model is one of torch."""
USERS_OWN = ("chars", "cifar10", "cifar100", "cifar100_coarse", "mnist")


def cifar_folder(folder: Path, name: str) -> Path:
    """Random images in the official form, labels counting up: 20 for training, 4 for testing."""
    labels, files = (1, {f"data_batch_{number}.bin": 4 for number in range(1, 6)} | {"test_batch.bin": 4})
    if name != "cifar10":
        labels, files = 2, {"train.bin": 20, "test.bin": 4}
    rng = np.random.default_rng(0)
    for file, count in files.items():
        records = rng.integers(0, 256, (count, labels + 3072)).astype(np.uint8)
        records[:, :labels] = np.arange(count)[:, None] % 10
        (folder / file).write_bytes(records.tobytes())
    return folder


def mnist_folder(folder: Path) -> Path:
    """The digits of scikit-learn as images of 28x28 in gzipped idx files: 1,000 for training, 300 for testing."""
    digits = load_task("digits").data("bundled").train
    images = np.kron(digits.features.reshape(-1, 8, 8), np.ones((3, 3), np.uint8)) * 15
    images = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    for name, rows in (("train", slice(0, 1000)), ("t10k", slice(1000, 1300))):
        for kind, array in (("images", images[rows]), ("labels", digits.labels[rows])):
            head = bytes((0, 0, 8, array.ndim)) + b"".join(size.to_bytes(4, "big") for size in array.shape)
            content = gzip.compress(head + array.astype(np.uint8).tobytes())
            (folder / f"{name}-{kind}-idx{array.ndim}-ubyte.gz").write_bytes(content)
    return folder


def text_file(folder: Path) -> Path:
    """24 kB of sentences from a few words."""
    words = ["the", "one", "small", "old", "server", "worker", "model", "waits", "pushes", "pulls", "slowly", "again"]
    chosen = np.random.default_rng(0).choice(words, 5000)
    (folder / "notes.txt").write_text(" ".join(chosen)[:24_000])
    return folder / "notes.txt"


def example_path(name: str, folder: Path) -> str:
    """data.path for the task: its own data, or small files in the real format."""
    if name not in USERS_OWN:
        return "bundled"
    if name == "chars":
        return str(text_file(folder))
    return str(mnist_folder(folder) if name == "mnist" else cifar_folder(folder, name))


@pytest.mark.parametrize("name", some(NAMES, [name for name in NAMES if not name.startswith("cifar")]))
def test_every_task_learns_a_mini_batch_by_heart_with_its_own_functions(name: str, tmp_path: Path):
    task = load_task(name)
    dataset = task.data(example_path(name, tmp_path))
    batch = Labelled(dataset.train.features[:16], dataset.train.labels[:16])
    before = Replica(task, seed=0).score(batch.features, batch.labels)

    replica = trained(task, batch, epochs=30, batch_size=16)
    replica.recalibrate(batch.features, batch.labels)
    after = replica.score(batch.features, batch.labels)

    assert after["loss"] < 0.8 * before["loss"]
    if task.best is None and np.issubdtype(batch.labels.dtype, np.integer):
        assert 0 <= before["accuracy"] <= after["accuracy"] <= 1


@pytest.mark.parametrize("name", NAMES)
def test_a_first_gradient_is_finite_and_reaches_every_parameter(name: str, tmp_path: Path):
    task = load_task(name)
    train = task.data(example_path(name, tmp_path)).train
    replica = Replica(task, seed=0)

    step = replica.gradient(train.features[:16], train.labels[:16], seed=0, rng=np.random.default_rng(0))

    assert task.name == name
    assert (step.finite, step.examples) == (True, 16)
    parts = np.split(step.gradient, np.cumsum([int(np.prod(shape)) for _, shape in replica.shapes])[:-1])
    assert all(part.any() for part in parts)


@pytest.mark.parametrize(
    ("name", "model"),
    [(name, None) for name in NAMES] + [("cifar10", model) for model in cifar10.MODELS] + [("synthetic", "wide")],
)
def test_the_settings_of_every_task_and_model_are_settings(name: str, model: str | None):
    task = load_task(name, model)

    config = load(None, {"task": name}, task.settings)

    assert {"epochs", "batch_size", "optimizer"} <= set(task.settings)
    assert config.optimizer.options["lr"] == task.settings["optimizer"]["lr"]


@pytest.mark.parametrize("name", [*USERS_OWN, "svm", "rcv1"])
def test_a_task_without_data_of_its_own_says_where_to_get_it_and_which_flag_takes_it(name: str):
    where = r"https://|Any plain text|LIBSVM text|the page of Lewis et al"
    with pytest.raises(ConfigError, match=f"does not come with Paceline: .*({where}).* with --data PATH"):
        load_task(name).data("bundled")


@pytest.mark.parametrize("name", ["digits", "xor"])
def test_a_path_for_a_task_with_data_of_its_own_is_refused(name: str):
    with pytest.raises(ConfigError, match=r"data.path is '/data/digits', but .*. Leave it at 'bundled'"):
        load_task(name).data("/data/digits")


def test_digits_are_those_of_scikit_learn():
    features, labels = load_digits(return_X_y=True)

    found = load_task("digits").data("bundled").train

    assert (found.features.dtype, found.labels.dtype) == (np.uint8, np.int64)
    assert np.array_equal(found.features, features)
    assert np.array_equal(found.labels, labels)


def test_digits_are_small_images_that_prepare_centres():
    task = load_task("digits")

    train = task.data("bundled").train
    inputs, _ = task.prepare(train.features, train.labels, None)

    assert (train.features.shape, train.features.dtype, train.features.max()) == ((1797, 64), np.uint8, 16)
    assert (inputs.min(), inputs.max()) == (-0.625, 1.375)
    assert abs(inputs.mean()) < 0.02


@pytest.mark.parametrize("name", ["digits", "xor", "synthetic"])
def test_a_task_reaches_95_percent_with_its_own_settings(name: str):
    task = load_task(name)
    parts = split(task.data("bundled"), validation=0.15, test=0.15, seed=0)
    test = parts.kept["test"]

    replica = trained(task, Labelled(parts.train.features, parts.train.labels))

    assert replica.score(test.features, test.labels)["accuracy"] > 0.95


@pytest.mark.nightly  # 6 s; by day the same model learns a mini-batch of the same files by heart
def test_a_cnn_learns_handwritten_digits_from_idx_files(tmp_path: Path):
    task = load_task("mnist")
    dataset = task.data(str(mnist_folder(tmp_path)))

    replica = trained(task, dataset.train, epochs=8)  # there are 60 times fewer than in MNIST

    assert replica.score(dataset.test.features, dataset.test.labels)["accuracy"] > 0.9


@pytest.mark.parametrize("seed", some(range(1, 9), [1, 2]))
def test_xor_never_starts_where_it_can_not_learn(seed: int):
    task = load_task("xor")
    train = task.data("bundled").train

    replica = trained(task, train, epochs=5, seed=seed)

    scores = replica.score(train.features, train.labels)
    assert scores["accuracy"] > 0.95
    assert scores["squared_error"] < 0.05


def test_xor_is_about_half_true_and_its_metrics_are_those_of_probabilities():
    task = load_task("xor")
    train = task.data("bundled").train
    outputs = torch.tensor([[0.0], [100.0], [-100.0], [100.0]])

    scores = task.metrics(outputs, torch.tensor([1.0, 1.0, 0.0, 0.0]))

    assert 0.45 < train.labels.mean() < 0.55
    assert ((train.features.round().sum(1) == 1) == train.labels).mean() > 0.999
    assert scores == {"accuracy": 0.5, "squared_error": (0.25 + 0 + 0 + 1) / 4}


def test_synthetic_examples_are_as_many_as_one_asks_for():
    data = load_task("synthetic").data

    assert len(data("bundled").train) == 10_000
    some = data("examples=250,seed=3").train
    assert np.bincount(some.labels).tolist() == [25] * 10
    assert data("seed=3,examples=250").digest() == data("examples=250,seed=3").digest()
    assert data("examples=250,seed=4").digest() != data("examples=250,seed=3").digest()


def test_synthetic_noise_is_the_deviation_around_the_centres():
    exact, noisy = (load_task("synthetic").data(f"examples=5000,noise={noise}").train for noise in (0, 3))

    assert len(np.unique(exact.features, axis=0)) == 10
    assert (noisy.features - exact.features).std() == pytest.approx(3, rel=0.01)


@pytest.mark.parametrize(
    "path", ["examples", "examples=", "examples=ten", "examples=19", "examples=10000001", "/data/x", "examples=50,,"]
)
def test_a_synthetic_data_path_that_can_not_be_read_is_refused(path: str):
    with pytest.raises(ConfigError, match=r"'bundled', or whole numbers for .*=20\.\.10000000, noise=0\.\.1000"):
        load_task("synthetic").data(path)


def test_characters_are_predicted_at_every_place_of_the_window(tmp_path: Path):
    task = load_task("chars")
    train = task.data(example_path("chars", tmp_path)).train

    inputs, following = task.prepare(train.features[:3], train.labels[:3], None)

    assert inputs.shape == following.shape == (3, 64)
    assert torch.equal(inputs[:, 1:], following[:, :-1])
    assert torch.equal(following[:-1, -1], inputs[1:, 0])


def test_a_text_is_learned_far_better_than_by_guessing(tmp_path: Path):
    task = load_task("chars")
    dataset = task.data(example_path("chars", tmp_path))

    replica = trained(task, dataset.train, epochs=4)

    scores = replica.score(dataset.test.features, dataset.test.labels)
    assert scores["loss"] < 2.0  # guessing: ln 256 = 5.55; letters by their frequency: 2.7
    assert scores["accuracy"] > 0.4


def test_evaluation_images_are_normalised_and_not_augmented():
    images = np.full((2, 3, 32, 32), 255, np.uint8)

    inputs, _ = cifar10.prepare(images, np.zeros(2, np.int64), None)

    assert inputs.dtype == torch.float32
    assert inputs[0, :, 0, 0].tolist() == pytest.approx(
        [(1 - 0.4914) / 0.2470, (1 - 0.4822) / 0.2435, (1 - 0.4465) / 0.2616]
    )


@given(seed=st.integers(0, 2**32), count=st.integers(1, 5))
def test_an_augmented_image_is_a_crop_of_the_padded_one_or_its_mirror(seed: int, count: int):
    images = np.random.default_rng(seed).integers(0, 256, (count, 3, 32, 32)).astype(np.uint8)
    padded = np.pad(images, ((0, 0), (0, 0), (4, 4), (4, 4)))

    found = cifar.augment(images, np.random.default_rng(seed))
    again = cifar.augment(images, np.random.default_rng(seed))

    assert np.array_equal(found, again)
    for image, source in zip(found, padded, strict=True):
        crops = [source[:, y : y + 32, x : x + 32] for y in range(9) for x in range(9)]
        assert any(np.array_equal(image, crop) or np.array_equal(image, crop[:, :, ::-1]) for crop in crops)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "cifar100_coarse"])
def test_training_images_of_every_cifar_task_are_augmented(name: str):
    task = load_task(name)
    images = np.random.default_rng(0).integers(0, 256, (8, 3, 32, 32)).astype(np.uint8)

    plain, _ = task.prepare(images, np.zeros(8, np.int64), None)
    moved, _ = task.prepare(images, np.zeros(8, np.int64), np.random.default_rng(0))

    assert plain.shape == moved.shape
    assert not torch.equal(plain, moved)
