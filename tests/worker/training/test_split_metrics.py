"""Metrics of a task: of all outputs of a split together, and accuracy only where labels are classes."""

from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors import safe_open  # noqa: E402
from sklearn.metrics import f1_score, r2_score, roc_auc_score  # noqa: E402

from paceline.core.errors import ConfigError  # noqa: E402
from paceline.core.slice.plan import make_plan  # noqa: E402
from paceline.data.dataset import Labelled, Selection  # noqa: E402
from paceline.data.manifest import Recipe  # noqa: E402
from paceline.data.shard_writer import Dealt, write_shards  # noqa: E402
from paceline.data.shards import open_shards  # noqa: E402
from paceline.tasks import defaults  # noqa: E402
from paceline.tasks.task import Task, load_task  # noqa: E402
from paceline.v1 import run_service_pb2 as pb  # noqa: E402
from paceline.worker.exchange.parameter_client import ParameterClient  # noqa: E402
from paceline.worker.membership.calls_to_chief import ChiefClient  # noqa: E402
from paceline.worker.scoring import module_scorer  # noqa: E402
from paceline.worker.surroundings import Surroundings  # noqa: E402
from paceline.worker.training import split_metrics  # noqa: E402
from paceline.worker.training.model_and_gradient import Replica  # noqa: E402
from paceline.worker.training.split_metrics import Measuring  # noqa: E402
from tests.support.in_process import Cluster, Context, config_of  # noqa: E402

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(1100, 4)).astype(np.float32)
"""More than two mini-batches of scoring."""
RARE = np.sort(FEATURES[:, 0] + RNG.normal(size=1100) > 1.9).astype(np.int64)
"""Classes in the order of a file: the rare one comes last."""
HEAD = "def data(path): ...\ndef model():\n  from torch import nn\n  return nn.Linear(4, {})\n"
SQUARED = (
    "def loss(model, inputs, labels):\n  from torch.nn import functional\n"
    "  return functional.mse_loss(model(inputs)[:, 0], labels.float())\n"
)


def task_of(folder: Path, text: str, outputs: int = 2) -> Task:
    path = folder / "mine.py"
    path.write_text(HEAD.format(outputs) + text)
    return load_task(str(path))


# all outputs at once
def test_f1_and_auc_of_a_split_are_those_of_scikit_learn_on_all_of_its_examples(tmp_path: Path) -> None:
    text = (
        "def metrics(outputs, labels):\n  from sklearn.metrics import f1_score, roc_auc_score\n"
        "  scores = outputs[:, 1] - outputs[:, 0]\n"
        "  return {'f1': f1_score(labels, outputs.argmax(1)), 'auc': roc_auc_score(labels.numpy(), scores.numpy())}\n"
    )
    replica = Replica(task_of(tmp_path, text))
    with torch.no_grad():
        outputs = replica.model(torch.from_numpy(FEATURES))

    found = replica.score(FEATURES, RARE)

    assert found["f1"] == f1_score(RARE, outputs.argmax(1))
    assert found["auc"] == roc_auc_score(RARE, outputs[:, 1] - outputs[:, 0])
    halves = [f1_score(RARE[rows], outputs.argmax(1)[rows]) for rows in (slice(550), slice(550, None))]
    assert found["f1"] != pytest.approx(np.mean(halves), rel=0.1)


def test_r2_of_a_regression_is_that_of_scikit_learn_and_there_is_no_accuracy(tmp_path: Path) -> None:
    text = SQUARED + (
        "def metrics(outputs, labels):\n  from sklearn.metrics import r2_score\n"
        "  return {'r2': r2_score(labels, outputs[:, 0])}\n"
    )
    replica, labels = Replica(task_of(tmp_path, text, 1)), FEATURES[:, 1] * 3
    with torch.no_grad():
        outputs = replica.model(torch.from_numpy(FEATURES))[:, 0]

    found = replica.score(FEATURES, labels)

    assert list(found) == ["loss", "r2"]
    assert found["r2"] == pytest.approx(r2_score(labels, outputs))
    assert found["loss"] == pytest.approx(float((outputs - torch.from_numpy(labels)).square().mean()))


def test_metrics_that_are_means_come_mini_batch_by_mini_batch_and_give_the_same(tmp_path: Path) -> None:
    text = (
        "def metrics(outputs, labels):\n"
        "  return {'right': (outputs.argmax(1) == labels).double().mean(), 'count': len(labels)}\n"
    )
    at_once = Replica(task_of(tmp_path, text)).score(FEATURES, RARE)
    in_parts = Replica(task_of(tmp_path, text + "METRICS_ARE_MEANS = True\n")).score(FEATURES, RARE)

    assert at_once["right"] == pytest.approx(in_parts["right"])
    assert at_once["count"] == 1100
    assert in_parts["count"] < 500


def test_labels_that_are_left_out_weigh_nothing_in_default_loss_and_accuracy(tmp_path: Path) -> None:
    replica = Replica(task_of(tmp_path, ""))
    with torch.no_grad():
        outputs = replica.model(torch.from_numpy(FEATURES))
    labels = np.where(np.arange(1100) < 512, -100, 1 - outputs.argmax(1).numpy())
    labels[7] = int(outputs[7].argmax())
    labels[1024:] = -100  # the last mini-batch has none that counts

    found = replica.score(FEATURES, labels)

    known = labels != -100
    assert found["accuracy"] == pytest.approx(1 / 513)
    expected = torch.nn.functional.cross_entropy(outputs[known], torch.from_numpy(labels[known]))
    assert found["loss"] == pytest.approx(float(expected), rel=1e-5)


Pair = namedtuple("Pair", "first second")


def made(task: Callable[[Any, Any], dict[str, Any]], name: str = "t") -> Measuring:
    return Measuring(Task(name, None, None, defaults.prepare, defaults.loss, task, {}))  # type: ignore[arg-type]


def test_outputs_of_any_form_are_put_together_on_the_cpu() -> None:
    seen: list[Any] = []
    found = made(lambda outputs, labels: seen.append((outputs, labels)) or {"a": np.float64(0.5), "b": np.float32(1)})
    for size in (3, 2):
        flat = torch.arange(float(2 * size))
        found.add({"pair": Pair(torch.ones(size, 2), [flat]), "none": None, "name": "x"}, torch.arange(size))

    assert found.metrics() == {"a": 0.5, "b": 1.0}
    ((outputs, labels),) = seen
    assert isinstance(outputs["pair"], Pair)
    assert outputs["pair"].first.shape == (5, 2)
    assert outputs["pair"].second[0].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert (outputs["none"], outputs["name"], labels.tolist()) == (None, "x", [0, 1, 2, 0, 1])


@pytest.mark.parametrize(
    "output",
    [
        lambda size: torch.ones(size, size),
        lambda size: torch.tensor(0.5),
        lambda size: (torch.ones(size), torch.ones(2, size)),
        lambda size: size * 0.5,
        lambda size: [torch.ones(size)] * size,
    ],
    ids=["padded", "scalar", "layers first", "number", "lists"],
)
def test_outputs_that_do_not_fit_together_are_refused_with_what_to_do(output: Callable[[int], Any]) -> None:
    found = made(lambda outputs, labels: {})
    for size in (3, 2):
        found.add(output(size), torch.arange(size))

    with pytest.raises(ConfigError, match=r"of 3 and 2 examples have .*METRICS_ARE_MEANS = True"):
        found.metrics()


def test_a_single_mini_batch_is_handed_over_as_it_is() -> None:
    found = made(lambda outputs, labels: {"a": float(outputs)})
    found.add(torch.tensor(0.5), torch.arange(3))

    assert found.metrics() == {"a": 0.5}


def test_outputs_that_are_too_many_to_keep_are_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_metrics, "MOST", 100)
    found = made(lambda outputs, labels: {}, "big")
    found.add(torch.ones(5, 5), torch.arange(5))

    with pytest.raises(ConfigError, match=r"'big' for 10 examples take .*METRICS_ARE_MEANS = True"):
        found.add(torch.ones(5, 5), torch.arange(5))


# accuracy by default
@pytest.mark.parametrize(
    ("outputs", "labels", "accuracy"),
    [
        ([[0.0, 1.0], [1.0, 0.0]], [1, 1], 0.5),
        ([[[0.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]], [[1, 0], [0, 0]], 0.75),  # (examples, classes, places)
        ([[0.0, 1.0], [1.0, 0.0]], [1, -100], 1.0),  # not counted by the cross entropy either
        ([[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0], None),
        ([[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]], None),
        ([[0.0], [1.0]], [0, 0], None),
        ([0.0, 1.0], [0, 1], None),
        ([[0.0, 1.0], [1.0, 0.0]], [1, 2], None),
        ([[0.0, 1.0], [1.0, 0.0]], [1, -1], None),
        ([[0.0, 1.0], [1.0, 0.0]], [[1], [0]], None),
    ],
)
def test_accuracy_is_measured_where_labels_are_classes_with_an_output_each(
    outputs: Any, labels: Any, accuracy: float | None
) -> None:
    expected = {} if accuracy is None else {"accuracy": accuracy}
    assert defaults.metrics(torch.tensor(outputs), torch.tensor(labels)) == expected


def test_outputs_of_a_form_of_their_own_have_no_accuracy() -> None:
    assert defaults.metrics((torch.ones(2, 2), None), torch.tensor([0, 1])) == {}


def test_a_split_of_which_some_labels_are_no_classes_has_no_accuracy(tmp_path: Path) -> None:
    labels = np.r_[np.zeros(600, np.int64), np.full(500, 7)]

    assert list(Replica(task_of(tmp_path, SQUARED)).score(FEATURES, labels)) == ["loss"]


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_the_default_loss_of_numbers_is_the_mean_squared_error(tmp_path: Path, shape: tuple[int, ...]) -> None:
    outputs, labels = torch.ones(4, 1), torch.rand(shape)

    assert task_of(tmp_path, "").loss(lambda inputs: outputs, torch.ones(4, 4), labels) == (1 - labels).square().mean()
    assert task_of(tmp_path, "").loss(lambda inputs: torch.zeros(4, 2), torch.ones(4, 4), torch.full((4, 2), 0.5)) > 0.6


# BEST
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("BEST = 'f1'", r"BEST in .*mine\.py is 'f1'; expected min or max and the name of a metric"),
        ("BEST = {'max': 'f1'}", "expected min or max and the name of a metric"),
        ("BEST = 'max loss'", "write 'min loss'"),
        ("BEST = 'max f1'", r"BEST in .*mine\.py is 'max f1', but what is measured is: accuracy, loss"),
        ("SETTINGS = {'updates': 'sparse'}\nBEST = 'max rekall'", "rekall.* measured is: accuracy, f1, loss, m"),
        ("METRICS_ARE_MEANS = 'yes'", "METRICS_ARE_MEANS in .* is 'yes'; expected True or False"),
    ],
)
def test_a_file_that_says_its_measure_wrongly_is_refused_on_loading(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task_of(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "BEST = 'max f1'\ndef metrics(outputs, labels): return {'auc': 0.5}\n" + SQUARED,
            "max f1.* measured is: auc, loss",
        ),
        ("BEST = 'max accuracy'\n" + SQUARED, "only where labels are classes"),
    ],
)
def test_metrics_without_what_best_names_are_refused_when_they_are_first_called(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Replica(task_of(tmp_path, text)).score(FEATURES, FEATURES[:, 0])


def test_best_is_the_tasks(tmp_path: Path) -> None:
    assert str(task_of(tmp_path, "BEST = 'min loss'").best) == "min loss"
    assert task_of(tmp_path, "").best is None
    assert str(task_of(tmp_path, "SETTINGS = {'updates': 'sparse'}\nBEST = 'max f1'").best) == "max f1"


# a run
@pytest.mark.parametrize(
    ("best", "measure", "last"),
    [("", "min loss", "test loss 1.0000, error 1.0000"), ("BEST = 'min error'", "min error", "test error 1.0000")],
)
def test_a_regression_is_scored_kept_and_told_by_what_it_goes_by(
    tmp_path: Path, best: str, measure: str, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    monkeypatch.setattr(module_scorer, "use_threads", threads.append)
    text = "def metrics(outputs, labels): return {'error': (outputs[:, 0] - labels).abs().mean()}\n"
    task_of(tmp_path, f"{SQUARED}{text}{best}\n", 1)
    source = Labelled(FEATURES[:10], np.ones(10, np.float32))

    def rows(*which: int) -> Selection:
        return Selection(source, np.array(which))

    recipe = Recipe(task="mine", strategy="random", shards=1, validation=0.2, test=0.4, seed=0, examples="a" * 64)
    parts = {"validation": rows(4, 5), "test": rows(6, 7, 8, 9)}
    write_shards(tmp_path / "shards", "mine", recipe, Dealt([rows(0, 1, 2, 3)]), parts)
    cluster, shards = Cluster(config_of(task=str(tmp_path / "mine.py")), tmp_path), open_shards(tmp_path / "shards")
    try:
        stopped_with_zeros(cluster, shards.manifest)
        around = Surroundings(config=cluster.config, name="evaluator", addresses=cluster.addresses)
        scorer = module_scorer.ModuleScorer(around, shards, tmp_path / "models", "cpu", final_threads=3)
        scorer.run()

        (score,) = cluster.run.Status(pb.StatusRequest(), Context()).scores
        chief = cluster.servers[0].chief
        assert chief.run.scoring.result == last
    finally:
        cluster.close()
    assert threads == [3], "no worker trains while the final score is made"
    assert score.measure == measure
    assert dict(score.examples) == {"train": 4, "validation": 2, "test": 4}
    assert {"test_loss", "test_error"} <= set(score.metrics)
    assert "test_accuracy" not in score.metrics
    with safe_open(tmp_path / "models" / "best.safetensors", "numpy") as file:
        facts = file.metadata()
    assert (facts["measure"], facts["train_examples"], facts["validation_error"]) == (measure, "4", "1")


def stopped_with_zeros(cluster: Cluster, manifest: Any) -> None:
    """A run that is over but for its score: a worker has given weights of zero."""
    cluster.evaluator_ready()
    around = Surroundings(config=cluster.config, name="worker-0", addresses=cluster.addresses, patience=60)
    chief = ChiefClient(around)
    plan = make_plan((("weight", (1, 4)), ("bias", (1,))), 1, cluster.config.plan)
    client = ParameterClient(around, plan)
    joined = chief.join(False, manifest.train_examples, 2, manifest.fingerprint, 1)
    client.attach(joined.incarnation)
    client.initialise(np.zeros(5, np.float32))
    assert chief.seat(joined.incarnation, 0) is not None
    cluster.run.Stop(pb.StopRequest(reason="enough"), Context())
    chief.leave(joined.incarnation, True)
