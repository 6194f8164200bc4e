import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core import registry
from paceline.core.errors import ConfigError, DataError
from paceline.data.dataset import Dataset
from paceline.tasks.builtin import cifar10
from paceline.tasks.models.resnet import CifarResNet
from paceline.tasks.task import BUILTIN, Task, load_task
from worker.replica import Replica

EXAMPLE = Path(__file__).parent.parent / "examples" / "wine.py"
DATA = """
import numpy as np
from paceline.data.dataset import Dataset, Labelled

def data(path):
    return Dataset(train=Labelled(np.ones((4, 2), np.float32), np.array([0, 1, 0, 1])))
"""
MODEL = """
def model():
    from torch import nn
    return nn.Linear(2, 2)
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mine.py"
    path.write_text(text)
    return str(path)


def trained(task: Task, dataset: Dataset, epochs: int, batch: int, lr: float, momentum: float) -> Replica:
    replica = Replica(task, seed=0)
    rng = np.random.default_rng(0)
    velocity = np.zeros_like(replica.local)
    train = dataset.train
    for epoch in range(epochs):
        order = rng.permutation(len(train))
        for start in range(0, len(train), batch):
            rows = order[start : start + batch]
            step = replica.gradient(train.features[rows], train.labels[rows], seed=epoch, rng=rng)
            velocity = momentum * velocity + step.gradient
            replica.load(replica.local - lr * velocity)
    return replica


@pytest.mark.parametrize("name", registry.names(BUILTIN))
def test_every_builtin_task_builds_its_model_and_has_settings(name: str):
    task = load_task(name)

    assert task.name == name
    assert isinstance(task.model(), torch.nn.Module)
    assert {"epochs", "batch_size", "optimizer"} <= set(task.settings)


@pytest.mark.parametrize("name", [*registry.names(BUILTIN), str(EXAMPLE)])
def test_loading_a_task_does_not_import_torch(name: str):
    program = (
        f"import sys; from paceline.tasks.task import load_task; load_task({name!r}); print('torch' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("name", ["digits", str(EXAMPLE)])
def test_reading_the_data_does_not_import_torch(name: str):
    program = (
        "import sys; from paceline.tasks.task import load_task; "
        f"load_task({name!r}).data('bundled'); print('torch' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


def test_an_unknown_task_names_the_nearest_one():
    with pytest.raises(ConfigError, match=r"no task 'digit'. Did you mean 'digits'\? Built in: cifar10, digits"):
        load_task("digit")


def test_a_missing_task_file_is_named():
    with pytest.raises(ConfigError, match=r"nowhere/mine.py does not exist"):
        load_task("nowhere/mine.py")


def test_a_folder_is_not_a_task_file(tmp_path: Path):
    with pytest.raises(ConfigError, match="is not a Python file"):
        load_task(str(tmp_path))


def test_a_task_file_with_a_syntax_error_is_refused_with_its_line(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"mine.py, line 2: SyntaxError"):
        load_task(written(tmp_path, "x = 1\ndef data(:\n"))


def test_a_task_file_that_raises_on_import_is_refused_with_its_line(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"mine.py, line 3: ZeroDivisionError: division by zero"):
        load_task(written(tmp_path, "x = 1\n\nx / 0\n"))


def test_a_task_file_that_exits_on_import_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="line 1: SystemExit: 3"):
        load_task(written(tmp_path, "raise SystemExit(3)"))


def test_a_task_file_that_needs_torch_on_import_is_told_where_to_import_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(ConfigError, match=r"line 1: ModuleNotFoundError.*Import torch inside the functions"):
        load_task(written(tmp_path, "import torch\n"))


@pytest.mark.parametrize(("text", "part"), [(DATA, "model"), (MODEL, "data")])
def test_a_task_file_without_data_or_model_is_refused(tmp_path: Path, text: str, part: str):
    with pytest.raises(ConfigError, match=rf"mine.py lacks {part}\(\)"):
        load_task(written(tmp_path, text))


def test_a_part_that_is_no_function_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="has int as loss"):
        load_task(written(tmp_path, DATA + MODEL + "loss = 3"))


def test_settings_that_are_no_dict_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"SETTINGS in .*mine.py is list"):
        load_task(written(tmp_path, DATA + MODEL + "SETTINGS = ['epochs']"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def data(path): return 3",
            r"data\(\) in .*mine.py returned int; it must return a paceline.data.dataset.Dataset",
        ),
        ("def data(): return 3", r"data\(\) of the task failed, .*mine.py: TypeError"),
        ("def model(): return 'net'", r"model\(\) in .* returned str; it must return a torch.nn.Module"),
        (
            "def prepare(f, l, rng): return f",
            r"prepare\(\) in .* returned ndarray of shape \(4, 2\); it must return two",
        ),
        (
            "def prepare(f, l, rng): return f, l",
            r"prepare\(\) in .* returned tuple of ndarray of shape \(4, 2\), ndarray",
        ),
        (
            "def loss(model, x, y): return model(x)",
            r"loss\(\) in .* returned Tensor of shape \(4, 2\); .* a scalar tensor",
        ),
        ("def loss(model, x, y): return 0.5", r"loss\(\) in .* returned float; it must return a scalar tensor"),
        (
            "def loss(model, x, y):\n  return model(x.T).mean()",
            r"loss\(\) of the task failed, .*line \d+: RuntimeError",
        ),
        ("def metrics(outputs, labels): return 0.5", r"metrics\(\) in .* returned float; .* names and numbers"),
        ("def metrics(outputs, labels): return {'a': 'b'}", r"metrics\(\) in .* returned dict; .* names and numbers"),
        (
            "def metrics(outputs, labels): return {'loss': 1.0}",
            r"metrics\(\) in .* returned dict; .* none called 'loss'",
        ),
    ],
)
def test_a_function_with_a_wrong_result_is_named(tmp_path: Path, text: str, message: str):
    task = load_task(written(tmp_path, DATA + MODEL + text))

    with pytest.raises(ConfigError, match=message):
        use_everything(task)


def use_everything(task: Task) -> None:
    train = task.data("bundled").train
    replica = Replica(task)
    replica.gradient(train.features, train.labels, seed=0, rng=None)
    replica.score(train.features, train.labels)


def test_a_file_that_the_task_can_not_read_is_bad_data(tmp_path: Path):
    task = load_task(written(tmp_path, MODEL + "def data(path):\n  return open(path)"))

    with pytest.raises(DataError, match=r"data\(\) of the task, .*line \d+: FileNotFoundError"):
        task.data("/nowhere/at/all")


def test_an_error_that_the_task_raises_itself_goes_through(tmp_path: Path):
    text = "from paceline.core.errors import DataError\ndef data(path):\n  raise DataError('row 7 is torn')"

    with pytest.raises(DataError, match=r"^row 7 is torn$"):
        load_task(written(tmp_path, MODEL + text)).data("bundled")


def test_a_task_file_may_define_dataclasses(tmp_path: Path):
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n  x: int\n"

    assert load_task(written(tmp_path, text + DATA + MODEL)).name == "mine"


def test_the_defaults_are_float32_cross_entropy_and_accuracy(tmp_path: Path):
    task = load_task(written(tmp_path, DATA + MODEL))
    outputs = torch.tensor([[2.0, 0.0], [2.0, 0.0]])

    inputs, labels = task.prepare(np.array([[1, 2]], np.uint8), np.array([1], np.int32), None)

    assert (inputs.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert task.metrics(outputs, torch.tensor([0, 1])) == {"accuracy": 0.5}
    expected = torch.nn.functional.cross_entropy(outputs, torch.tensor([0, 1]))
    assert task.loss(torch.nn.Identity(), outputs, torch.tensor([0, 1])) == expected


def test_digits_are_small_images_that_prepare_centres():
    task = load_task("digits")

    train = task.data("bundled").train
    inputs, _ = task.prepare(train.features, train.labels, None)

    assert (train.features.shape, train.features.dtype, train.features.max()) == ((1797, 64), np.uint8, 16)
    assert (inputs.min(), inputs.max()) == (-0.625, 1.375)
    assert abs(inputs.mean()) < 0.02


def test_digits_from_elsewhere_are_refused():
    with pytest.raises(ConfigError, match="leave it at 'bundled'"):
        load_task("digits").data("/data/digits")


def test_digits_reach_95_percent_in_ten_epochs():
    task = load_task("digits")
    whole = task.data("bundled").train
    rows = np.random.default_rng(1).permutation(len(whole))
    train = Dataset(train=type(whole)(whole.features[rows[:1400]], whole.labels[rows[:1400]]))

    replica = trained(task, train, epochs=10, batch=16, lr=0.1, momentum=0.9)

    assert replica.score(whole.features[rows[1400:]], whole.labels[rows[1400:]])["accuracy"] > 0.95


def test_cifar10_says_where_to_get_its_files():
    with pytest.raises(ConfigError, match=r"download cifar-10-binary.tar.gz .* set data.path"):
        load_task("cifar10").data("bundled")


def test_cifar10_trains_on_the_official_format(tmp_path: Path):
    records = np.random.default_rng(0).integers(0, 10, (6, 2, 3073)).astype(np.uint8)
    for number, name in enumerate([*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]):
        (tmp_path / name).write_bytes(records[number].tobytes())
    task = load_task("cifar10")
    train = task.data(str(tmp_path)).train
    replica = Replica(task)

    step = replica.gradient(train.features, train.labels, seed=0, rng=np.random.default_rng(0))

    assert step.finite
    assert step.examples == 10


@pytest.mark.parametrize(("depth", "parameters"), [(20, 269_722), (32, 464_154), (110, 1_727_962)])
def test_a_resnet_has_the_parameters_of_the_paper(depth: int, parameters: int):
    model = CifarResNet(depth)

    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("depth", [2, 21, -4])
def test_a_resnet_of_another_depth_is_refused(depth: int):
    with pytest.raises(ConfigError, match=f"can't have depth {depth}"):
        CifarResNet(depth)


def test_evaluation_images_are_normalised_and_not_augmented():
    images = np.full((2, 3, 32, 32), 255, np.uint8)

    inputs, _ = cifar10.prepare(images, np.zeros(2, np.int64), None)

    assert inputs.dtype == torch.float32
    assert inputs[0, :, 0, 0].tolist() == pytest.approx(
        [(1 - 0.4914) / 0.2470, (1 - 0.4822) / 0.2435, (1 - 0.4465) / 0.2616]
    )


@given(seed=st.integers(0, 2**32), count=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_an_augmented_image_is_a_crop_of_the_padded_one_or_its_mirror(seed: int, count: int):
    images = np.random.default_rng(seed).integers(0, 256, (count, 3, 32, 32)).astype(np.uint8)
    padded = np.pad(images, ((0, 0), (0, 0), (4, 4), (4, 4)))

    found = cifar10.augment(images, np.random.default_rng(seed))
    again = cifar10.augment(images, np.random.default_rng(seed))

    assert np.array_equal(found, again)
    for image, source in zip(found, padded, strict=True):
        crops = [source[:, y : y + 32, x : x + 32] for y in range(9) for x in range(9)]
        assert any(np.array_equal(image, crop) or np.array_equal(image, crop[:, :, ::-1]) for crop in crops)


def test_the_example_task_has_at_most_25_lines_beyond_its_model():
    text = EXAMPLE.read_text()
    code = text.split('"""', 2)[2].split("def model")[0]

    lines = [line for line in code.splitlines() if line.strip()]

    assert len(lines) <= 25


def test_the_example_task_trains_above_90_percent():
    task = load_task(str(EXAMPLE))
    dataset = task.data("bundled")

    replica = trained(task, dataset, epochs=30, batch=8, lr=0.05, momentum=0.9)

    assert dataset.test is not None
    assert replica.score(dataset.test.features, dataset.test.labels)["accuracy"] > 0.9
