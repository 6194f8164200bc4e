"""What paceline.train(model, train=...) takes, what it says of what it does not take, and what it chooses by itself."""

import functools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import ConfigError
from paceline.core.optimizers.effective import cautioned
from paceline.core.settings.config import Config

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from paceline.api.train_live import packed  # noqa: E402
from paceline.tasks.default_loss import cross_entropy, squared_error  # noqa: E402
from paceline.worker.live_objects.computing import models_own  # noqa: E402
from paceline.worker.live_objects.given import TrainArguments, read  # noqa: E402
from paceline.worker.live_objects.own_faults import as_config_errors as faults  # noqa: E402
from paceline.worker.live_objects.scores import baseline, score  # noqa: E402

ROWS = TensorDataset(torch.randn(96, 4), torch.arange(96) % 3)
CPU = torch.device("cpu")


def net(outputs: int = 3) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, outputs))


def live(model: Any = None, train: Any = ROWS, test: Any = ROWS, **given: Any) -> Any:
    return read(model or net(), TrainArguments(train=train, test=test, **given), Config())[0]


def chosen(**given: Any) -> tuple[Any, list[str]]:
    """The loss that is chosen, and what is said of it."""
    from paceline.worker.live_objects import first_batch

    return first_batch.tried(live(**given))


def refused(match: str, **given: Any) -> None:
    with pytest.raises(ConfigError, match=match), packed(live(**given)):
        pass


class Words:
    """Mini-batches that are dicts."""

    names: Any = None

    def __len__(self) -> int:
        return 96

    def __getitem__(self, row: int) -> dict[str, Any]:
        inputs, label = ROWS[row]
        return {"values": inputs, "labels": label}


class Endless(IterableDataset):
    def __iter__(self) -> Any:
        return iter([ROWS[row] for row in range(96)])


class Stream(Endless):
    def __len__(self) -> int:
        return 96


def test_columns_of_numbers_that_no_model_learns_from_are_named() -> None:
    rows, labels = ROWS.tensors
    times = torch.cat([rows[:, :3], torch.full((96, 1), 1.7e9)], 1)

    (said,) = chosen(train=TensorDataset(times, labels), loss=torch.nn.functional.cross_entropy)[1]

    assert said.startswith(
        "large numbers: inputs[:, 3] (up to 1.7e+09); a network learns from about -1 to 1: scale them"
    )
    assert not chosen(loss=torch.nn.functional.cross_entropy)[1]


# data
@pytest.mark.parametrize(
    ("train", "said"),
    [
        ((row for row in ROWS), "train is a generator, which is used up after one pass"),
        ([], "train has no examples"),
        (torch.zeros(3), "train is a Tensor; expected a torch data set, a DataLoader, or inputs and targets"),
        ("digits", "train is 'digits'; expected a torch data set"),
        ({"train": ROWS}, r"train is a dict of train\. Give one set: train=data\['train'\]"),
        ((np.zeros(3), np.zeros(4)), "train has columns with 3, 4 rows"),
        (DataLoader(ROWS, sampler=WeightedRandomSampler([1.0] * 96, 96)), r"own sampler \(WeightedRandomS"),
        (None, r"no training data\. Give it: train="),
    ],
)
def test_what_is_no_data_set_is_refused_by_name(train: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        live(train=train)


@pytest.mark.parametrize("name", ["train", "test", "validation"])
def test_a_loader_of_some_rows_gives_these_alone(name: str) -> None:
    found = live(**{name: DataLoader(ROWS, sampler=SubsetRandomSampler([3, 5, 8]))})

    rows = found.train if name == "train" else found.kept[name].rows
    assert [rows[number][0].tolist() for number in range(len(rows))] == [ROWS[n][0].tolist() for n in (3, 5, 8)]


def test_an_explicit_batch_sampler_has_the_size_of_the_mini_batches() -> None:
    found = live(train=DataLoader(ROWS, batch_sampler=BatchSampler(RandomSampler(ROWS), 8, True)))

    assert (found.train, found.batch_size) == (ROWS, 8)
    assert found.loading["drop_last"]


@pytest.mark.parametrize("name", ["train", "test"])
@pytest.mark.parametrize(
    "sampler",
    [WeightedRandomSampler([1.0] * 96, 96), RandomSampler(ROWS, replacement=True), RandomSampler(ROWS, num_samples=5)],
)
def test_a_loader_that_does_not_draw_each_row_once_is_refused(name: str, sampler: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name}'s DataLoader .* sampler .* {name}=torch.utils.data.Subset"):
        live(**{name: DataLoader(ROWS, sampler=sampler)})


def test_a_loader_brings_its_batch_size_its_collate_function_and_its_processes() -> None:
    def collate(rows: Any) -> Any:
        return torch.utils.data.default_collate(rows)

    found = live(train=DataLoader(ROWS, batch_size=7, shuffle=True, collate_fn=collate, num_workers=2))

    assert found.train is ROWS
    assert found.batch_size == 7
    assert found.loading["collate_fn"] is collate
    assert found.loading["num_workers"] == 2


def test_arrays_become_a_data_set_in_single_precision() -> None:
    found = live(train=(np.zeros((9, 4)), np.zeros(9, int)))

    inputs, target = found.train[0]
    assert (inputs.dtype, target.dtype) == (torch.float32, torch.int64)


def test_without_a_test_set_one_is_cut_off_with_the_classes_shares() -> None:
    found, lines = read(net(), TrainArguments(train=ROWS), Config())

    rows = [set(each.indices) for each in (found.train, *(found.kept[name].rows for name in ("validation", "test")))]
    assert [len(each) for each in rows] == [68, 14, 14]
    assert len(set.union(*rows)) == 96
    assert {int(ROWS[row][1]) for row in rows[2]} == {0, 1, 2}
    assert "of 96 examples 14 for validation and 14 for test: nobody trains on these" in lines[0]


def test_with_a_test_set_all_training_data_is_trained_on() -> None:
    assert live().train is ROWS


def test_an_iterable_set_is_not_cut() -> None:
    found, lines = read(net(), TrainArguments(train=Stream()), Config())

    assert not found.kept
    assert "none can be cut from an iterable set" in lines[0]


def test_a_stream_without_a_length_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"train is a stream without a length.* Give its class a method __len__"):
        read(net(), TrainArguments(train=Endless()), Config())


def test_a_loaders_processes_can_be_turned_off() -> None:
    loader = DataLoader(ROWS, batch_size=8, num_workers=2, persistent_workers=True)

    found = live(train=loader, test=None, validation=loader, num_workers=0)

    for loading in (found.loading, found.kept["validation"].loading):
        assert len(list(DataLoader(ROWS, batch_size=96, **{**loading, "drop_last": False}))) == 1
        assert loading["num_workers"] == 0


# functions and optimizers
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss": "mse"}, "loss is 'mse', which can't be called; expected a function of outputs and targets"),
        ({"loss": torch.nn.CrossEntropyLoss}, r"loss is the class CrossEntropyLoss; give an object of that class"),
        ({"loss": len, "batch_loss": len}, "Got both loss and batch_loss"),
        ({"metrics": [len]}, "metrics is a list; expected functions by name"),
        ({"metrics": {"loss": len}}, "metrics has a 'loss', which is the name of the loss itself"),
        ({"batch_size": 0}, "batch_size is 0; expected a whole number of 1 or more"),
        ({"precision": "bfloat16"}, "precision is 'bfloat16'; expected one of float32, bf16, fp16"),
        ({"epochs": 1.5}, "epochs is 1.5; expected a whole number"),
        ({"optimizer": "adamv"}, "There is no optimizer 'adamv' in torch.optim. Did you mean 'Adam"),
        ({"optimizer": {"name": "sgd", "rate": 1}}, "optimizer: .*unexpected keyword argument 'rate'"),
        ({"optimizer": 0.1}, "optimizer is a float; expected an optimizer over the model's parameters"),
        ({"optimizer": lambda parameters: None}, r"optimizer\(parameters\) is a NoneType"),
        ({"optimizer": torch.optim.SGD(net().parameters())}, "2 of the 2 parameters of the optimizer do not belong"),
        ({"batch_size": 30, "accumulate": 4}, "mini-batch of 30 can't be cut into 4 equal parts.* divides: 32"),
        ({"scheduler": lambda optimizer: None, "scheduler_interval": "batch"}, "expected 'epoch' or 'step'"),
        ({"scheduler_interval": "step"}, "scheduler_interval is 'step', but there is no scheduler"),
        ({"scheduler": "cosine"}, "scheduler is 'cosine'; expected a scheduler of torch.optim.lr_scheduler"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        live(**given)


def test_a_scheduler_must_be_of_the_optimizer_and_go_by_epochs() -> None:
    model = net()
    first, second = (torch.optim.SGD(model.parameters(), lr=1) for _ in range(2))
    with pytest.raises(ConfigError, match="The scheduler belongs to another optimizer"):
        live(model, optimizer=first, scheduler=torch.optim.lr_scheduler.StepLR(second, 1))
    with pytest.raises(ConfigError, match="ReduceLROnPlateau, which needs a score"):
        live(model, optimizer=first, scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau(first))


@pytest.mark.parametrize(
    "optimizer",
    ["adam", {"name": "AdamW", "lr": 0.1}, torch.optim.Adagrad, functools.partial(torch.optim.SGD, lr=0.1), None],
)
def test_optimizers_are_taken_in_many_forms(optimizer: Any) -> None:
    found = live(optimizer=optimizer)
    assert {*found.optimizer.param_groups[0]["params"]} == {*found.model.parameters()}


def test_a_model_without_parameters_or_shapes_is_refused() -> None:
    with pytest.raises(ConfigError, match="no parameters to train"):
        live(torch.nn.Sequential(torch.nn.ReLU()))
    with pytest.raises(ConfigError, match=r"0\.weight has no shape yet"):
        live(torch.nn.Sequential(torch.nn.LazyLinear(3)))


# what can't be sent
def test_what_can_not_be_sent_is_named_with_its_place_and_what_to_do() -> None:
    model = net()
    model[0].lock = threading.Lock()
    refused(
        r"model can't be sent to the run's processes: its 0\.lock is a lock .*leave it out in __getstate__", model=model
    )

    lock = threading.Lock()
    refused(
        "loss can't be sent to the run's processes: its lock is a lock",
        loss=lambda outputs, targets: (lock, functional.cross_entropy(outputs, targets))[1],
    )
    rows = Words()
    rows.names = (name for name in "abc")
    refused(
        r"train can't be sent to the run's processes: its names is a generator .*make a list of it",
        train=rows,
        test=Words(),
        batch_loss=lambda model, batch: model(batch["values"]).mean(),
    )


# the first examples
def test_cross_entropy_is_chosen_for_whole_numbers_and_said() -> None:
    assert chosen() == (
        {"loss": cross_entropy},
        ["loss: cross entropy, because the targets are whole numbers and the model has 3 outputs for each"],
    )


def test_squared_error_is_chosen_for_numbers() -> None:
    rows = TensorDataset(torch.randn(96, 4), torch.randn(96))
    assert chosen(model=net(1), train=rows, test=rows) == (
        {"loss": squared_error},
        ["loss: mean squared error, because the targets are numbers"],
    )


def test_a_models_own_loss_is_taken_for_dicts() -> None:
    class Hugging(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, values: Any, labels: Any) -> Any:
            class Found:
                loss = functional.cross_entropy(self.inner(values), labels)

            return Found()

    assert chosen(model=Hugging(), train=Words(), test=Words()) == (
        {"batch_loss": models_own},
        ["loss: the model's own, model(**batch).loss"],
    )


def test_where_no_loss_fits_one_is_asked_for() -> None:
    refused("A mini-batch is a dict of values, labels, .* Give batch_loss=", train=Words(), test=Words())
    rows = TensorDataset(torch.randn(96, 4), torch.randn(96, 7))
    refused(r"No loss is known for outputs that are Tensor of shape \(8, 3\)", train=rows, test=rows)


@pytest.mark.parametrize(
    ("targets", "told"),
    [
        (
            torch.arange(96) % 2,
            "whole numbers and the model has one output for each.* mean squared error.* binary cross",
        ),
        ((torch.arange(96) % 2).float(), "are 0 and 1 as torch.float32.* binary cross entropy.* mean squared error"),
        (torch.randint(2, (96, 3)).float(), "several numbers.* mean squared error.* binary cross entropy"),
    ],
)
def test_targets_that_fit_two_losses_are_refused_with_both(targets: Any, told: str) -> None:
    rows = TensorDataset(torch.randn(96, 4), targets)
    refused(told, model=net(3 if targets.ndim == 2 else 1), train=rows, test=rows)


def test_labels_beyond_the_outputs_are_told_with_both() -> None:
    refused("The labels go from 0 to 2, but the model has 2 outputs", model=net(2))


def test_a_mistake_in_a_users_function_is_raised_as_it_is_with_a_note() -> None:
    def wrong(outputs: Any, targets: Any) -> Any:
        return outputs.nothing

    with pytest.raises(AttributeError, match="nothing") as caught, packed(live(loss=wrong)):
        pass
    assert caught.traceback[-2].name == "wrong" or any(entry.name == "wrong" for entry in caught.traceback)
    assert any("before it starts any process" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss": lambda outputs, targets: outputs}, r"loss\(.*\) gave Tensor of shape \(8, 3\); expected"),
        ({"loss": lambda outputs, targets: outputs.detach().mean()}, "The loss has no gradient"),
        ({"metrics": {"f1": lambda outputs, targets: outputs}}, r"metrics\['f1'\] gave Tensor; expected"),
    ],
)
def test_what_a_function_gives_is_checked(given: dict[str, Any], said: str) -> None:
    refused(said, **given)


def test_the_trial_leaves_the_model_the_optimizer_and_the_random_numbers_as_they_were() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout())
    before = {key: value.clone() for key, value in model.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    found = live(model)
    with packed(found):
        assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not found.optimizer.state


# scores
def test_scores_are_of_the_whole_sets_whatever_the_size_of_the_last_mini_batch() -> None:
    found = live(loss=functional.cross_entropy, batch_size=7, metrics={"mean": lambda outputs, targets: targets.sum()})
    with torch.no_grad():
        outputs = found.model(ROWS.tensors[0])
    got = score(found, CPU, 0)
    assert got["test_loss"] == pytest.approx(float(functional.cross_entropy(outputs, ROWS.tensors[1])), rel=1e-5)
    assert got["test_accuracy"] == pytest.approx(float((outputs.argmax(1) == ROWS.tensors[1]).float().mean()))
    assert got["test_mean"] == float(ROWS.tensors[1].sum())
    assert {name.partition("_")[0] for name in got} == {"train", "test"}


def test_the_first_weights_loss_and_the_largest_classes_are_what_scores_are_compared_with() -> None:
    rows = TensorDataset(torch.randn(80, 4), (torch.arange(80) % 4 == 0).long())
    found = live(test=rows, loss=functional.cross_entropy)

    compared = baseline(found, CPU, 0)

    assert compared["train_loss"] == score(found, CPU, 0)["train_loss"]
    assert (compared["test_majority"], compared["test_examples"]) == (0.75, 80)
    assert compared["train_majority"] == pytest.approx(1 / 3)
    numbers = live(net(1), train=(ROWS.tensors[0], torch.randn(96)), test=None, loss=squared_error)
    assert baseline(numbers, CPU, 0).keys() == {"train_loss"}


def doubled(rows: Any) -> Any:
    inputs, targets = torch.utils.data.default_collate(rows)
    return 2 * inputs, targets


@pytest.mark.parametrize(
    "given",
    [{"train": DataLoader(ROWS, batch_size=96, collate_fn=doubled)}, {"collate_fn": doubled}],
    ids=["its own loader", "a function for training"],
)
def test_a_set_is_scored_as_its_loader_makes_mini_batches_and_a_test_loader_keeps_its_own(given: Any) -> None:
    found = live(test=DataLoader(ROWS), validation=ROWS, loss=functional.cross_entropy, **given)
    with torch.no_grad():
        once, twice = (
            float(functional.cross_entropy(found.model(k * ROWS.tensors[0]), ROWS.tensors[1])) for k in (1, 2)
        )
    got = score(found, CPU, 0)

    assert [got[f"{name}_loss"] for name in ("train", "validation", "test")] == pytest.approx([twice, twice, once])
    assert once != pytest.approx(twice)


def test_metrics_get_all_outputs_of_a_set_in_the_form_that_the_model_gives() -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, inputs: Any) -> Any:
            return self.inner(inputs), {"seen": inputs}

    found = live(
        Two(),
        loss=lambda outputs, targets: functional.cross_entropy(outputs[0], targets),
        metrics={"rows": lambda outputs, targets: len(outputs[1]["seen"]) + len(targets)},
        batch_size=7,
    )

    assert score(found, CPU, 0)["test_rows"] == 192


def test_outputs_that_do_not_fit_together_are_refused_with_what_takes_them_one_by_one() -> None:
    def padded(rows: Any) -> Any:
        inputs, targets = torch.utils.data.default_collate(rows)
        return inputs, targets[:, None].repeat(1, len(rows))

    found = live(
        collate_fn=padded,
        loss=lambda outputs, targets: functional.cross_entropy(outputs, targets[:, 0]),
        metrics={"f1": lambda outputs, targets: 0.0},
        batch_size=7,
    )

    with pytest.raises(ConfigError, match=r"outputs or labels of your model can't be put together.* Give batch_loss="):
        score(found, CPU, 0)


def test_dicts_are_scored_by_their_loss_and_the_users_metrics() -> None:
    def batch_loss(model: Any, batch: Any) -> Any:
        return functional.cross_entropy(model(batch["values"]), batch["labels"])

    found = live(
        train=Words(), test=Words(), batch_loss=batch_loss, metrics={"size": lambda model, batch: len(batch["labels"])}
    )
    got = score(found, CPU, 0)
    assert got.keys() == {"train_loss", "train_size", "test_loss", "test_size"}
    assert got["test_size"] == 32


class Spoilt(Words):
    """The rows of ROWS, and one that is another thing."""

    def __init__(self, row: Any) -> None:
        self.row = row

    def __getitem__(self, row: int) -> Any:
        return self.row if row == 70 else ROWS[row]


@pytest.mark.parametrize("row", [None, (torch.zeros(3), torch.tensor(0)), ("eight", torch.tensor(0)), ROWS[0][:1]])
def test_an_example_that_torch_can_not_put_beside_others_is_named_and_no_bug(row: Any) -> None:
    found = live(train=ROWS, test=Spoilt(row), loss=cross_entropy)

    with (
        pytest.raises(ConfigError, match=r"Error: .*\nExample 70 of test is .*, and others are tuple of"),
        faults(found),
    ):
        score(found, CPU, 0)


def test_a_layer_that_torch_refuses_is_named_and_no_bug() -> None:
    found = live(net(), loss=cross_entropy)
    found.model.append(torch.nn.Linear(5, 2))

    with (
        pytest.raises(ConfigError, match=r"(?s)shapes cannot be multiplied.*The layer '\d' of your model.*Linear"),
        faults(found),
    ):
        score(found, CPU, 0)


def test_what_fails_in_our_own_code_stays_a_bug() -> None:
    with pytest.raises(AttributeError, match="NoneType"), faults(live()):
        cautioned(None, None)  # type: ignore[arg-type]


def test_a_cell_has_its_lines_in_other_processes(tmp_path: Path) -> None:
    import linecache

    from paceline.processes.packing import pack, unpack
    from paceline.worker.live_objects.own_faults import own_lines

    linecache.cache["<cell 1>"] = (1, None, ["def fails(row):\n", "    return row.nothing\n"], "<cell 1>")
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def fails(row):\n    return row.nothing\n", "<cell 1>", "exec"), space)
    memory = pack(space["fails"])
    linecache.cache.clear()
    with pytest.raises(AttributeError) as caught:
        unpack(memory)(1)
    assert "return row.nothing" in own_lines(caught.value)
