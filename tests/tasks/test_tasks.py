import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from paceline.core import registry
from paceline.core.errors import ConfigError, DataError, OutOfMemory
from paceline.launch.settings.read_config import read_config
from paceline.settings.flags import Flags
from paceline.sharder.sharding import make_shards
from paceline.tasks import defaults
from paceline.tasks.task import BUILTIN, Task, load_task
from paceline.worker.training.model_and_gradient import Replica
from tests.support.plain_loop import trained
from tests.support.processes import Cluster
from tests.support.tree import ROOT

EXAMPLE = ROOT / "examples" / "wine.py"
DATA = """
import numpy as np
from paceline.extend import Dataset, Labelled

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


WITH_TORCH = """
import sys
from paceline.tasks.task import load_task

for name in {loaded}:
    task = load_task(name)
    if name in {read}:
        task.data("bundled")
    if "torch" in sys.modules:
        print(name)
        break
"""


def test_neither_loading_a_task_nor_reading_its_data_imports_torch():
    program = WITH_TORCH.format(
        loaded=[*registry.names(BUILTIN), str(EXAMPLE)], read=["digits", "xor", "synthetic", str(EXAMPLE)]
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digit", r"no task 'digit'. Did you mean 'digits'\? Built in: .*digits, mnist"),
        ("nowhere/mine.py", r"nowhere/mine.py does not exist"),
        (str(Path(__file__).parent), "is not a Python file"),
    ],
    ids=["unknown", "missing", "folder"],
)
def test_what_is_no_task_is_refused(name: str, message: str):
    with pytest.raises(ConfigError, match=message):
        load_task(name)


def test_memory_that_runs_out_in_a_function_of_the_task_is_called_that(tmp_path: Path):
    task = load_task(written(tmp_path, "def data(path):\n    raise MemoryError('3 TiB')\n" + MODEL))

    with pytest.raises(OutOfMemory, match=r"ran out in data\(\) of the task, .*line 2: MemoryError: 3 TiB. Take fewer"):
        task.data("bundled")


def test_a_task_file_that_needs_torch_is_told_where_to_import_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(ConfigError, match=r"line 1: ModuleNotFoundError.*Import torch inside the functions"):
        load_task(written(tmp_path, "import torch\n"))


MODELS = """
def small():
    from torch import nn
    return nn.Linear(2, 2)

def large():
    from torch import nn
    return nn.Sequential(nn.Linear(2, 7), nn.Linear(7, 2))

MODELS = {"small": small, "large": large}
"""


@pytest.mark.parametrize(
    ("text", "model", "message"),
    [
        ("x = 1\ndef data(:\n", None, "mine.py, line 2: SyntaxError"),
        ("x = 1\n\nx / 0\n", None, "mine.py, line 3: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", None, "line 1: SystemExit: 3"),
        (DATA, None, r"mine.py lacks model\(\)"),
        (MODEL, None, r"mine.py lacks data\(\)"),
        (DATA + MODEL + "loss = 3", None, "has int as loss"),
        (DATA + MODEL + "SETTINGS = ['epochs']", None, r"SETTINGS in .*mine.py is list"),
        (DATA + "MODELS = ['small']", None, "MODELS in .*mine.py is list; expected a dict that maps"),
        (DATA + "MODELS = {'a': 3}", None, "MODELS in .* holds 'a': int; expected a dict"),
        (DATA + "MODELS = {1: dict}", None, "MODELS in .* holds 1: type; expected a dict"),
        (DATA + "MODELS = {}", None, r"mine.py lacks model\(\)"),
        (DATA + MODELS, "smalll", r"no model 'smalll'. Did you mean 'small'\? It has: small, large\."),
        (DATA + MODEL, "cnn", r"model is 'cnn', but the task .*mine.py has only one model; leave"),
    ],
)
def test_a_task_file_that_can_not_be_used_is_refused(tmp_path: Path, text: str, model: str | None, message: str):
    with pytest.raises(ConfigError, match=message):
        load_task(written(tmp_path, text), model)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def data(path): return 3", r"data\(\) in .*mine.py returned int; .* a paceline.data.dataset.Dataset"),
        ("def data(): return 3", r"data\(\) of the task failed, .*mine.py: TypeError"),
        ("def model(): return 'net'", r"model\(\) in .* returned str; it must return a torch.nn.Module"),
        ("def prepare(f, l, rng): return f", r"prepare\(\) .* ndarray of shape \(4, 2\); it must return two"),
        ("def prepare(f, l, rng): return f, l", r"prepare\(\) .* tuple of ndarray of shape \(4, 2\), ndarray"),
        ("def loss(model, x, y): return model(x)", r"loss\(\) .* Tensor of shape \(4, 2\); .* a scalar"),
        ("def loss(model, x, y): return 0.5", r"loss\(\) in .* returned float; it must return a scalar tensor"),
        ("def loss(model, x, y):\n  return model(x.T).mean()", r"loss\(\) .* failed, .*line \d+: RuntimeE"),
        ("def loss(model, x, y):\n  raise SystemExit(0)", r"loss\(\) .* failed, .*line \d+: SystemExit: 0"),
        ("def metrics(outputs, labels): return 0.5", r"metrics\(\) in .* returned float; .* names and numbers"),
        ("def metrics(outputs, labels): return {'a': 'b'}", r"metrics\(\) in .* returned dict; .* names and numbers"),
        ("def metrics(outputs, labels): return {'loss': 1.0}", r"metrics\(\) .* dict; .* none called 'loss'"),
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


def parameters(task: Task) -> int:
    return sum(parameter.numel() for parameter in task.model().parameters())


@pytest.mark.parametrize(("name", "count"), [(None, 6), ("small", 6), ("large", 37)])
def test_a_task_with_several_models_trains_the_named_one_or_the_first(tmp_path: Path, name: str | None, count: int):
    assert parameters(load_task(written(tmp_path, DATA + MODELS), name)) == count


@pytest.mark.parametrize(("name", "count"), [(None, 9), ("small", 6)])
def test_model_beside_models_is_the_default(tmp_path: Path, name: str | None, count: int):
    three = MODEL.replace("nn.Linear(2, 2)", "nn.Linear(2, 3)")

    assert parameters(load_task(written(tmp_path, DATA + three + MODELS), name)) == count


def test_a_named_model_that_fails_is_told_by_its_name(tmp_path: Path):
    task = load_task(written(tmp_path, DATA + "MODELS = {'odd': lambda: 3, 'worse': lambda: 1 / 0}"))

    with pytest.raises(ConfigError, match=r"MODELS\['odd'\]\(\) in .*mine.py returned int; it must return a torch"):
        task.model()
    with pytest.raises(ConfigError, match=r"MODELS\['worse'\]\(\) of the task failed, .*line 7: ZeroDivisionError"):
        load_task(str(tmp_path / "mine.py"), "worse").model()


def test_settings_of_a_model_stand_in_the_place_of_the_tasks(tmp_path: Path):
    text = "SETTINGS = {'epochs': 5, 'workers': 2}\nMODEL_SETTINGS = {'large': {'epochs': 9}}\n"
    file = written(tmp_path, DATA + MODELS + text)

    assert load_task(file).settings == {"epochs": 5, "workers": 2}
    assert load_task(file, "large").settings == {"epochs": 9, "workers": 2}
    assert read_config(file, Flags(sets=["model=large"])).epochs == 9
    assert read_config(file, Flags(sets=["model=large"], epochs=1)).epochs == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'lage': {}}", r"has 'lage', which is not a model\. Did you mean 'large'\?"),
        ("{'large': 3}", "is dict; expected a dict that maps the names of models to their settings"),
        ("[]", "is list; expected a dict"),
    ],
)
def test_settings_of_models_that_can_not_be_meant_are_refused(tmp_path: Path, text: str, message: str):
    with pytest.raises(ConfigError, match=message):
        load_task(written(tmp_path, DATA + MODELS + f"MODEL_SETTINGS = {text}"))


def test_a_mistyped_model_is_refused_before_anything_starts(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"no model 'cn'\. Did you mean 'cnn'"):
        read_config("cifar10", Flags(sets=["model=cn"]))
    named = {"task": written(tmp_path, DATA + MODELS), "model": "lage"}
    with pytest.raises(ConfigError, match="no model 'lage'"):
        make_shards(read_config("synthetic").model_copy(update=named), tmp_path / "shards")


def test_a_run_trains_and_scores_the_model_that_its_config_names(tmp_path: Path):
    examples = DATA.replace("(4, 2)", "(40, 2)").replace("[0, 1, 0, 1]", "[0, 1] * 20")
    file = written(tmp_path, examples + MODELS)
    with Cluster(tmp_path / "run", task=file, model="large", workers=1, servers=1, epochs=2, batch_size=4) as cluster:
        sharder, _ = cluster.sharder(), cluster.servers()
        assert sharder.wait() == 0
        others = [cluster.evaluator(), cluster.worker(0, torch=True)]

        codes = [process.wait() for process in others]
        cluster.end_servers(0)

    assert codes == [0, 0]
    weights = load_file(tmp_path / "run" / "models" / "last.safetensors")
    shapes = {"0.weight": (7, 2), "0.bias": (7,), "1.weight": (2, 7), "1.bias": (2,)}
    assert {name: array.shape for name, array in weights.items()} == shapes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def data(path):\n  return open(path)", r"data\(\) of the task, .*line \d+: FileNotFoundError"),
        (
            "from paceline.extend import DataError\ndef data(path):\n  raise DataError('row 7 is torn')",
            "^row 7 is torn$",
        ),
    ],
    ids=["can't be read", "the task says so itself"],
)
def test_a_file_that_is_bad_data_is_called_that(tmp_path: Path, text: str, told: str):
    with pytest.raises(DataError, match=told):
        load_task(written(tmp_path, MODEL + text)).data("/nowhere/at/all")


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


def test_the_example_task_has_at_most_25_lines_beyond_its_model():
    text = EXAMPLE.read_text()
    code = text.split('"""', 2)[2].split("def model")[0]

    lines = [line for line in code.splitlines() if line.strip()]

    assert len(lines) <= 25


def test_the_example_task_trains_above_90_percent():
    task = load_task(str(EXAMPLE))
    dataset = task.data("bundled")

    replica = trained(task, dataset.train)

    assert replica.score(dataset.test.features, dataset.test.labels)["accuracy"] > 0.9


def test_a_task_file_that_changes_within_a_second_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "mine.py"
    for epochs in (3, 5):
        path.write_text(f"{DATA}{MODEL}\nSETTINGS = {{'epochs': {epochs}}}\n")
        os.utime(path, (1_000_000_000, 1_000_000_000))
        assert load_task(str(path)).settings == {"epochs": epochs}


@pytest.mark.parametrize(
    ("labels", "is_refused"),
    [([[0.25, 0.75], [1.0, 0.0]], False), ([[1.0, 1.0], [0.0, 1.0]], True), ([[-2.0, 3.0], [0.5, 0.5]], True)],
)
def test_the_default_loss_takes_shares_of_classes_and_no_other_numbers(labels: list[list[float]], is_refused: bool):
    model, inputs = torch.nn.Linear(3, 2), torch.ones(2, 3)

    if is_refused:
        with pytest.raises(ConfigError, match=r"several numbers, which are no shares of classes.* Name one"):
            defaults.loss(model, inputs, torch.tensor(labels))
    else:
        assert torch.isfinite(defaults.loss(model, inputs, torch.tensor(labels)))


BODY = "open({there!r}, 'w').close()\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import paceline\nfor epoch in paceline.epochs(3):\n    pass\n", "line 2 calls paceline.epochs"),
        ("import paceline as p\np.wrap(1, 2)\n", "line 2 calls paceline.wrap"),
        ("from paceline import steps as go\ndef main():\n    go(3)\nmain()\n", "line 3 calls paceline.steps"),
    ],
)
def test_a_script_is_refused_before_it_runs_and_told_its_command(tmp_path: Path, text: str, said: str) -> None:
    script, there = tmp_path / "train.py", tmp_path / "ran"
    script.write_text(text + BODY.format(there=str(there)))

    with pytest.raises(ConfigError) as refused:
        load_task(str(script))

    expected = f"{script} is a training script, not a task: {said}. Start it with: paceline launch {script}"
    assert str(refused.value) == expected
    assert not there.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import paceline\npaceline.epochs(3)\ndef data(path):\n    pass\n", "lacks model"),
        ("import nowhere_to_be_found\nnowhere_to_be_found.epochs(3)\n", "No module named 'nowhere_to_be_found'"),
        ("def (:\n", "line 1"),
    ],
)
def test_other_files_are_loaded_and_their_own_mistake_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "task.py").write_text(text)

    with pytest.raises(ConfigError, match=said):
        load_task(str(tmp_path / "task.py"))
