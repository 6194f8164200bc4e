"""A user's data set as shards of row numbers: labels found, strategies kept, processes that differ told apart."""

from typing import Any, ClassVar

import numpy as np
import pytest

from paceline.core.errors import ConfigError, DataError
from paceline.core.settings.config import Config
from tests.support.in_process import Said

torch = pytest.importorskip("torch")
data = torch.utils.data
labels_at_hand = pytest.importorskip("paceline.worker.script.labels").labels_at_hand
training_data = pytest.importorskip("paceline.worker.script.training_data")
rows_of_shards = pytest.importorskip("tests.support.script_run").rows_of_shards
CLASSES = [0, 1, 1, 2, 0, 1]


class Rows(data.Dataset):
    """As torchvision has them, with the attributes that the test gives."""

    def __init__(self, count: int = 6, row: Any = None, **more: Any) -> None:
        self.count = count
        self.row = row
        self.read = 0
        vars(self).update(more)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Any:
        self.read += 1
        return number if self.row is None else self.row(number)


class Columns:
    """As HuggingFace's data sets have them: rows by number, columns by name."""

    def __init__(self, **columns: list[Any]) -> None:
        self._columns = columns
        self.column_names = list(columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, key: Any) -> Any:
        return (
            self._columns[key] if isinstance(key, str) else {name: found[key] for name, found in self._columns.items()}
        )


class Run:
    accumulate = 1

    def __init__(self) -> None:
        self.say = Said()


def brought(dataset: Any, run: Run | None = None, **more: Any) -> Any:
    asked = training_data.Cut(4)
    return training_data.Brought(run or Run(), dataset, rows_of_shards, lambda: asked, **more)


def dealt(dataset: Any, strategy: Any = "stratified", run: Run | None = None, **more: Any) -> Any:
    config = Config(workers=2, batch_size=4, data={"strategy": strategy})
    return brought(dataset, run, **more).dealt(config)


@pytest.mark.parametrize(
    "dataset",
    [
        Rows(targets=CLASSES),
        Rows(targets=torch.tensor(CLASSES)),
        Rows(labels=np.array(CLASSES)),
        Rows(y=["cat", "dog", "dog", "emu", "cat", "dog"]),
        Rows(targets=lambda: None, labels=CLASSES),
        Rows(targets=[1, 2], labels=CLASSES),
        data.TensorDataset(torch.zeros(6, 3), torch.tensor(CLASSES)),
        Columns(text=["a"] * 6, label=CLASSES),
        Columns(text=["a"] * 6, labels=CLASSES),
        data.Subset(Rows(8, targets=[9, *CLASSES, 9]), range(1, 7)),
        data.Subset(data.Subset(Rows(8, targets=[9, *CLASSES, 9]), range(8)), [1, 2, 3, 4, 5, 6]),
        data.ConcatDataset([Rows(2, targets=CLASSES[:2]), Rows(4, targets=CLASSES[2:])]),
    ],
)
def test_labels_are_found_where_people_keep_them(dataset: Any) -> None:
    assert labels_at_hand(dataset).tolist() == CLASSES


def test_a_text_is_the_same_class_in_all_parts() -> None:
    both = data.ConcatDataset([Rows(2, targets=["cat", "dog"]), Rows(3, targets=["dog", "emu", "dog"])])

    assert labels_at_hand(both).tolist() == [0, 1, 1, 2, 1]
    assert labels_at_hand(data.Subset(both, [1, 4])).tolist() == [0, 0]
    assert labels_at_hand(data.ConcatDataset([Rows(1, targets=["cat"]), Rows(1, targets=[0])])) is None


@pytest.mark.parametrize(
    "dataset",
    [
        Rows(),
        Rows(targets=[{"boxes": 1}] * 6),
        Rows(targets=[[1], [1, 2], [1], [1], [1], [1]]),
        Rows(labels=5),
        data.ConcatDataset([Rows(2, targets=[0, 1]), Rows(4)]),
        data.ConcatDataset([Rows(2, targets=[0, 1]), Rows(2, targets=[[1, 0], [0, 1]])]),
        [1, 2, 3],
    ],
)
def test_what_is_no_label_is_not_taken_for_one(dataset: Any) -> None:
    assert labels_at_hand(dataset) is None


@pytest.mark.parametrize(
    "row", [lambda n: (n, CLASSES[n % 6], "more"), lambda n: {"x": n, "labels": torch.tensor(n % 3)}]
)
def test_labels_of_rows_are_read_and_that_is_said(row: Any) -> None:
    run, dataset = Run(), Rows(60, row)
    state = torch.get_rng_state()
    shards = dealt(dataset, run=run)
    assert run.say.has("reading every row for its label")
    assert dataset.read == 60
    assert torch.equal(torch.get_rng_state(), state)
    counts = [np.bincount([int(_label(row(n))) for n in shards.shard(number).features]) for number in range(2)]
    assert np.abs(counts[0] - counts[1]).max() <= 1


def _label(row: Any) -> Any:
    return row["labels"] if isinstance(row, dict) else row[1]


def test_strategies_that_need_no_labels_read_nothing() -> None:
    for strategy in ("random", "round_robin"):
        run, dataset = Run(), Rows(60, lambda n: (n, n % 3))
        dealt(dataset, strategy, run)
        assert (dataset.read, len(run.say)) == (0, 0)


def test_labels_that_the_user_gives_win() -> None:
    dataset = Rows(60, targets=[0] * 59 + [1])
    given = ["a", "b"] * 30
    shards = dealt(dataset, labels=given)
    assert [sum(given[row] == "a" for row in shards.shard(number).features) for number in range(2)] == [15, 15]
    assert shards.manifest.fingerprint != dealt(dataset, labels=given[::-1]).manifest.fingerprint


def test_hidden_groups_are_found_in_the_features_of_rows() -> None:
    points = np.concatenate([np.zeros((30, 2)), np.full((30, 2), 9.0)]) + np.random.default_rng(0).normal(
        0, 0.1, (60, 2)
    )
    how = {"name": "distribution_aware", "clusters": 2}
    for row in (
        lambda n: (torch.tensor(points[n]), "no class"),
        lambda n: {"a": points[n, 0], "b": points[n, 1:], "label": 3, "text": "left out"},
    ):
        shards = dealt(Rows(60, row), how)
        assert [int((shards.shard(number).features < 30).sum()) for number in range(2)] == [15, 15]


def test_rows_that_draw_at_random_are_dealt_alike_in_all_processes() -> None:
    how = {"name": "distribution_aware", "clusters": 3}
    prints = set()
    for _ in range(2):
        torch.rand(3)  # the two processes have drawn differently before
        prints.add(dealt(Rows(60, lambda n: (torch.randn(4) + n % 3, 0)), how).manifest.fingerprint)
    assert len(prints) == 1


@pytest.mark.parametrize(
    ("dataset", "strategy", "words"),
    [
        (Rows(60, lambda n: {"x": n}), "stratified", "Row 0 .* no label to deal by: a dict of x.*labels="),
        (Rows(60, lambda n: (n,)), "stratified", "no label to deal by: a tuple of int"),
        (Rows(60), "stratified", "no label to deal by: a int"),
        (Rows(60, lambda n: (n, object())), "stratified", "neither numbers nor text"),
        (Rows(60, lambda n: ("text", 1)), {"name": "distribution_aware", "clusters": 2}, "holds no numbers"),
        (
            Rows(60, lambda n: (np.zeros(n), 1)),
            {"name": "distribution_aware", "clusters": 2},
            "must have the same shape",
        ),
        (Rows(60, targets=[0.5] * 60), "stratified", "can't be stratified"),
    ],
)
def test_a_strategy_without_what_it_needs_says_so(dataset: Any, strategy: Any, words: str) -> None:
    with pytest.raises((ConfigError, DataError), match=words):
        dealt(dataset, strategy)


def test_workers_whose_data_differs_have_different_fingerprints() -> None:
    whole = Rows(60, targets=list(range(60)))
    seeded = [data.random_split(whole, [50, 10], torch.Generator().manual_seed(seed))[0] for seed in (1, 1, 2)]
    alike, same, other = (dealt(part, "random").manifest.fingerprint for part in seeded)
    assert alike == same != other
    sets = [
        Rows(60),
        Rows(61),
        Rows(60, targets=list(range(60))),
        data.Subset(Rows(61), range(60)),
        data.ConcatDataset([Rows(30), Rows(30)]),
        data.ConcatDataset([Rows(20), Rows(40)]),
        [0] * 60,
    ]
    assert len({dealt(one, "random").manifest.fingerprint for one in sets}) == len(sets)


def test_a_column_of_lists_is_not_read_for_a_fingerprint() -> None:
    class Value:
        """A column of one value a row, as a Hugging Face set calls it."""

    class Tokens(Columns):
        features: ClassVar = {"label": Value(), "labels": [Value()]}

        def __getitem__(self, key: Any) -> Any:
            assert key != "labels"
            return super().__getitem__(key)

    lists = [[row, row % 3] for row in range(60)]
    prints = {dealt(Tokens(labels=rows), "random").manifest.fingerprint for rows in (lists, lists[:], lists[::-1])}
    assert len(prints) == 2
    assert dealt(Tokens(label=CLASSES)).manifest.fingerprint != dealt(Tokens(label=CLASSES[::-1])).manifest.fingerprint


def test_shards_are_row_numbers_that_need_no_check() -> None:
    shards = dealt(Rows(9), "round_robin")
    assert len(shards) == 2
    assert shards.shard(1).features.tolist() == shards.shard(1).ids.tolist() == shards.ids(1).tolist() == [1, 3, 5, 7]
    shards.verify(0)
    assert (shards.manifest.train_examples, shards.manifest.sizes, shards.manifest.epoch_lens) == (9, [5, 4], [5, 4])


def test_what_the_script_asks_for_lies_below_the_settings() -> None:
    one = brought(Rows(60))
    assert one.asks == {"batch_size": 4}
    assert one.dealt(Config(workers=2)) is one.dealt(Config(workers=2))
    assert len(one.dealt(Config(workers=3))) == 3
    assert len(one.dealt(Config(workers=3, data={"shards": 6}))) == 6


@pytest.mark.parametrize(("source", "where"), [("script", "of the data set"), ("files", "in its shards")])
def test_a_mini_batch_that_is_too_large_is_told_in_words_of_what_people_have(source: str, where: str) -> None:
    from paceline.worker.membership.member import check_batch

    config = Config(batch_size=4000, workers=2, data={"source": source})  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match=f"no worker has more than 500 {where}. Set batch_size to 1,000"):
        check_batch(config, 500)
