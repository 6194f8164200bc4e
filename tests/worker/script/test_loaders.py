"""Mini-batches of scripts: every row once over all workers, on from a worker's clock, and the forms that batches have."""

import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import ConfigError, DataError, TryAgain
from tests.support.nights import fewer

torch = pytest.importorskip("torch")
data = torch.utils.data
FakeRun = pytest.importorskip("tests.support.script_run").FakeRun
loaders = pytest.importorskip("paceline.worker.script.loaders")
draws = pytest.importorskip("paceline.worker.script.draws")


class Numbers(data.Dataset):
    """Rows that are their own numbers, with classes that come at random."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.targets = np.random.default_rng(0).integers(0, 3, count)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> int:
        return row


class Stream(data.IterableDataset):
    """The numbers from 0 on."""

    def __init__(self, count: int, told: int | None = None) -> None:
        self.count = count
        if told is not None:
            self.told = told

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


class Known(Stream):
    def __len__(self) -> int:
        return self.count


class DealsItself(Known):
    """As torch's documentation has it."""

    def __iter__(self) -> Iterator[int]:
        info = data.get_worker_info()
        return iter(range(self.count)) if info is None else iter(range(info.id, self.count, info.num_workers))


def flat(batches: Any) -> list[int]:
    return [row for batch in batches for row in batch]


def epoch_of_all(workers: int, dataset: Any, how: Any, **options: Any) -> list[list[list[int]]]:
    """What each worker gets in one epoch."""
    found = []
    for rank in range(workers):
        run = FakeRun(rank, workers=workers, **options)
        found.append(run.train(how(run, dataset)))
    return found


CASES = st.fixed_dictionaries(
    {
        "count": st.integers(40, 130),
        "workers": st.integers(1, 4),
        "batch": st.integers(4, 24),
        "strategy": st.sampled_from(["random", "round_robin", "stratified"]),
        "accumulate": st.integers(1, 2),
        "shuffle": st.booleans(),
    }
)


@fewer(2)
@given(CASES)
def test_each_row_of_an_epoch_comes_once_over_all_workers(case: dict[str, Any]) -> None:
    def how(run: Any, dataset: Any) -> Any:
        return run.loader(dataset, case["batch"], shuffle=case["shuffle"])

    workers = case["workers"]
    options = {"accumulate": case["accumulate"], "data": {"strategy": case["strategy"]}}
    if case["batch"] * case["accumulate"] // workers < 2 * case["accumulate"]:
        return  # some steps would have too few rows to be cut
    found = epoch_of_all(workers, Numbers(case["count"]), how, **options)
    assert sorted(flat(flat(found))) == list(range(case["count"]))
    assert all(len(batch) <= case["batch"] for batch in flat(found))
    assert len({len(mine) for mine in found}) == 1  # all workers make as many steps


@fewer(2)
@given(CASES)
def test_drop_last_gives_full_mini_batches_and_no_row_twice(case: dict[str, Any]) -> None:
    each = max(1, case["batch"] * case["accumulate"] // case["workers"])
    if case["count"] // case["workers"] < each or each < case["accumulate"]:
        return
    found = epoch_of_all(
        case["workers"],
        Numbers(case["count"]),
        lambda run, dataset: run.loader(dataset, case["batch"], drop_last=True, shuffle=case["shuffle"]),
        accumulate=case["accumulate"],
        data={"strategy": case["strategy"]},
    )
    sizes = {
        len(flat(mine[i : i + case["accumulate"]])) for mine in found for i in range(0, len(mine), case["accumulate"])
    }
    assert sizes == {each}
    assert max(Counter(flat(flat(found))).values()) == 1


@fewer(3)
@given(CASES, st.integers(0, 40), st.sampled_from(["loader", "batch_sampler", "sampler", "stream"]))
def test_a_restarted_worker_gets_the_same_rest_from_any_clock_on(case: dict[str, Any], clock: int, form: str) -> None:
    def begin(done: int) -> Any:
        run = FakeRun(1 % case["workers"], workers=case["workers"], done=done, epochs=3)
        dataset = Numbers(case["count"])
        if form == "stream":
            return run, run.loader(Known(case["count"]), case["batch"])
        if form == "loader":
            return run, run.loader(dataset, case["batch"])
        if form == "batch_sampler":
            return run, data.DataLoader(dataset, batch_sampler=run.sampler(dataset, case["batch"]))
        each = max(1, case["batch"] // case["workers"])
        return run, data.DataLoader(dataset, each, sampler=run.sampler(dataset))

    first, batches = begin(0)
    whole = first.train(batches)
    done = clock % (len(whole) - 1)
    killed, batches = begin(0)
    assert (killed.train(batches, most=done) if done else []) == whole[:done]
    again, batches = begin(killed.position)
    assert again.train(batches) == whole[done:]


@fewer(3)
@given(CASES)
def test_a_plain_dataloader_with_a_sampler_takes_each_row_once(case: dict[str, Any]) -> None:
    each = max(1, case["batch"] // case["workers"])

    def how(run: Any, dataset: Any) -> Any:
        return data.DataLoader(dataset, batch_size=each, sampler=run.sampler(dataset, shuffle=case["shuffle"]))

    found = epoch_of_all(case["workers"], Numbers(case["count"]), how, data={"strategy": case["strategy"]})
    assert sorted(flat(flat(found))) == list(range(case["count"]))
    assert all(len(batch) == each for mine in found for batch in mine[:-1])


@fewer(3)
@given(CASES, st.booleans())
def test_a_batch_sampler_takes_each_row_once(case: dict[str, Any], weighted: bool) -> None:
    weights = [1.0, *[2.0] * (case["workers"] - 1)] if weighted else []
    found = epoch_of_all(
        case["workers"],
        Numbers(case["count"]),
        lambda run, dataset: data.DataLoader(dataset, batch_sampler=run.sampler(dataset, case["batch"])),
        data={"strategy": case["strategy"], "weights": weights},
    )
    assert sorted(flat(flat(found))) == list(range(case["count"]))


@fewer(2)
@given(CASES)
def test_a_stream_is_dealt_by_rank_each_example_once(case: dict[str, Any]) -> None:
    if case["batch"] * case["accumulate"] // case["workers"] < 2 * case["accumulate"]:
        return
    found = epoch_of_all(
        case["workers"],
        Known(case["count"]),
        lambda run, dataset: run.loader(dataset, case["batch"]),
        accumulate=case["accumulate"],
    )
    assert sorted(flat(flat(found))) == list(range(case["count"]))
    for rank, mine in enumerate(found):
        assert flat(mine) == list(range(rank, case["count"], case["workers"]))


def test_an_epoch_with_drop_last_counts_what_is_trained_on() -> None:
    run = FakeRun(workers=2)
    theirs = run.loader(Numbers(600), 32, drop_last=True)
    manifest = theirs._course.brought.dealt(run.so_far()).manifest
    assert (manifest.train_examples, manifest.epoch_lens, len(theirs)) == (576, [288, 288], 18)


def test_a_step_of_all_workers_in_order_is_the_next_rows_of_the_set() -> None:
    found = epoch_of_all(2, Numbers(24), lambda run, dataset: run.loader(dataset, 8, shuffle=False))
    assert [sorted(one + other) for one, other in zip(*found, strict=True)] == [
        list(range(0, 8)),
        list(range(8, 16)),
        list(range(16, 24)),
    ]


def test_epochs_shuffle_anew_but_never_mix_workers() -> None:
    runs = [FakeRun(rank, workers=2, epochs=3) for rank in range(2)]
    one, other = (flat(run.train(run.loader(Numbers(40), 8))) for run in runs)
    assert not set(one) & set(other)
    assert one[:20] != one[20:40]
    assert sorted(one[:20]) == sorted(one[20:40])


def test_the_last_epoch_goes_on_until_the_run_is_over() -> None:
    run = FakeRun(workers=2, epochs=1)
    batches = run.loader(Numbers(16), 8)
    run.epoch = 0
    taken = []
    for batch in batches:
        taken.append(batch)
        run.position += 1
        run.is_over = len(taken) == 11  # the other worker is slow, and the examples of all count
    assert len(taken) == 11
    assert len(batches) == 2


def test_rows_that_all_shards_have_do_not_lengthen_the_epoch() -> None:
    features = torch.cat([torch.randn(97, 2), torch.randn(3, 2) + 50])
    dataset = data.TensorDataset(torch.arange(100), torch.zeros(100, dtype=torch.long))
    dataset = data.TensorDataset(features, torch.arange(100))
    how = {"name": "distribution_aware", "clusters": 2, "sparse_below": 5}
    runs = [FakeRun(rank, workers=2, epochs=8, data={"strategy": how}) for rank in range(2)]
    found = [run.train(run.loader(dataset, 20)) for run in runs]
    assert [len(mine) for mine in found] == [40, 40]
    for mine in found:
        assert {97, 98, 99} <= {int(row) for batch in mine for row in batch[1]}


# forms of batches
class Texts(data.Dataset):
    """Rows that are dicts, with lists of several lengths, as tokenizers give them."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"input_ids": [row] * (row % 4 + 1), "label": row % 2, "meta": {"row": row, "pair": (row, "text")}}


def padded(rows: list[dict[str, Any]]) -> dict[str, Any]:
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.tensor([row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows])
    return {
        "ids": ids,
        "nested": ([row["meta"]["row"] for row in rows], {"label": torch.tensor([r["label"] for r in rows])}),
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_dict_and_nested_batches_come_through_own_collate_functions_and_processes(workers: int) -> None:
    options: dict[str, Any] = {"num_workers": workers, "collate_fn": padded}
    if workers:
        options |= {"persistent_workers": True, "prefetch_factor": 1, "worker_init_fn": torch.manual_seed}
    found = []
    for rank in range(2):
        run = FakeRun(rank, workers=2, epochs=2)
        for batch in run.train(run.loader(Texts(), 6, **options)):
            assert batch["ids"].shape[0] == len(batch["nested"][1]["label"])
            found += batch["nested"][0]
    assert Counter(found) == dict.fromkeys(range(30), 2)


def test_batches_are_the_same_with_and_without_processes() -> None:
    plain, with_processes = FakeRun(workers=2, epochs=2), FakeRun(workers=2, epochs=2)
    assert plain.train(plain.loader(Numbers(21), 6)) == with_processes.train(
        with_processes.loader(Numbers(21), 6, num_workers=2)
    )


@pytest.mark.parametrize("persistent", [False, True])
def test_streams_are_the_same_with_and_without_processes(persistent: bool) -> None:
    def batches(workers: int, done: int) -> Any:
        run = FakeRun(1, workers=2, epochs=3, done=done)
        options = {"num_workers": workers, "persistent_workers": persistent} if workers else {}
        return run.train(run.loader(Stream(31), 6, length=31, **options))

    whole = batches(0, 0)
    assert batches(3, 0) == whole
    assert batches(2, 7) == whole[7:]


def test_default_collation_makes_tuples_and_dicts_of_tensors() -> None:
    run = FakeRun()
    rows = [{"x": np.float32(i), "y": (i, float(i))} for i in range(8)]
    (batch,) = run.train(run.loader(rows, 8))
    assert batch["x"].dtype == torch.float32
    assert batch["y"][0].dtype == torch.int64
    run = FakeRun()
    (batch,) = run.train(run.loader(Known(8), 8))
    assert sorted(batch) == list(range(8))


# streams
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"deals_itself": True}], ids=["by get_worker_info", "all readers of the run"])
def test_a_stream_that_deals_itself_is_dealt_once(workers: int, options: Any) -> None:
    count = 32 if options else 24
    found = epoch_of_all(2, DealsItself(count), lambda run, rows: run.loader(rows, 8, num_workers=workers, **options))
    assert sorted(flat(flat(found))) == list(range(count))
    assert data.get_worker_info() is None


def test_a_stream_that_ends_before_the_epoch_begins_anew_and_says_so() -> None:
    run = FakeRun(1, workers=2)
    with pytest.warns(UserWarning, match="ended after 5 examples, before the epoch did"):
        found = flat(run.train(run.loader(Stream(5), 4, length=12)))
    assert found == [1, 3, 0, 2, 4, 1]


def test_a_stream_longer_than_its_epoch_is_cut() -> None:
    run = FakeRun(1, workers=2, epochs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert flat(run.train(run.loader(Stream(100), 4, length=8))) == [1, 3, 5, 7] * 2


def test_a_stream_with_fewer_examples_than_workers_is_refused() -> None:
    run = FakeRun(3, workers=4)
    with pytest.raises(DataError, match="ended after 2 examples, too few for 4 workers"):
        run.train(run.loader(Stream(2), 4, length=100))


# a look, len, and DataLoaders that exist already
def test_a_look_at_the_first_mini_batch_before_wrap_joins_nothing() -> None:
    for dataset in (Numbers(20), Known(20)):
        run = FakeRun(1, workers=2)
        run.can_join = False
        batches = run.loader(dataset, 4)
        assert len(next(iter(batches))) == 2
        assert run.steps_per_epoch == 0
        run.can_join = True
        assert len(flat(run.train(batches))) == 10


@pytest.mark.parametrize("dataset", [Numbers(50), Known(50)])
def test_the_length_is_known_before_the_join_and_right(dataset: Any) -> None:
    run = FakeRun(workers=2, accumulate=2)
    batches = run.loader(dataset, 8)
    assert len(batches) == 8
    assert batches.batch_size == 8
    assert len(run.train(batches)) == 8


def test_the_length_of_a_dataloader_with_a_sampler_is_that_of_all_workers() -> None:
    lengths = []
    for rank in range(3):
        run = FakeRun(rank, workers=3)
        dataset = Numbers(50)
        lengths.append(len(data.DataLoader(dataset, batch_size=8, sampler=run.sampler(dataset))))
    assert lengths == [3, 3, 3]


def test_a_dataloader_is_dealt_anew_with_its_own_settings() -> None:
    def collate(rows: list[int]) -> dict[str, Any]:
        return {"rows": rows}

    run = FakeRun(1, workers=2)
    theirs = data.DataLoader(Numbers(20), batch_size=4, shuffle=False, collate_fn=collate, num_workers=1, timeout=100)
    mine = run.loader(theirs, None)
    assert (mine.batch_size, mine.num_workers, mine.timeout, mine.collate_fn) == (4, 1, 100, collate)
    assert next(batch["rows"] for batch in run.train(mine)) == [1, 3]


def test_a_dataloader_with_a_subset_sampler_is_dealt_these_rows_only() -> None:
    kept = list(range(0, 40, 2))
    theirs = data.DataLoader(Numbers(40), batch_size=4, sampler=data.SubsetRandomSampler(kept), drop_last=True)
    found = epoch_of_all(2, theirs, lambda run, dataset: run.loader(dataset, None))
    assert sorted(flat(flat(found))) == kept


class Rotating(data.Sampler):
    """A sampler that counts its own passes; with `epochs` it gets them."""

    def __init__(self, epochs: bool) -> None:
        self.turn = 0
        if epochs:
            self.set_epoch = self._set_epoch

    def _set_epoch(self, epoch: int) -> None:
        self.turn = epoch

    def __len__(self) -> int:
        return 30

    def __iter__(self) -> Iterator[int]:
        self.turn += 1
        return iter([(self.turn * 100 + row) % 40 for row in np.random.permutation(30).tolist()])


SAMPLERS = {
    "weighted": lambda: data.WeightedRandomSampler([1.0] * 30 + [9.0] * 10, 60),
    "with its own generator": lambda: data.WeightedRandomSampler(
        [1.0] * 40, 30, replacement=False, generator=torch.Generator()
    ),
    "replacing": lambda: data.RandomSampler(range(40), replacement=True, num_samples=30),
    "counting": lambda: Rotating(False),
    "told its epoch": lambda: Rotating(True),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("done", [0, 7])
def test_what_a_sampler_draws_comes_once_over_all_workers_also_after_a_restart(name: str, done: int) -> None:
    def how(run: FakeRun, dataset: Any) -> Any:
        return run.loader(data.DataLoader(dataset, batch_size=8, sampler=SAMPLERS[name]()), None)

    whole = epoch_of_all(2, Numbers(40), how, epochs=3)
    later = epoch_of_all(2, Numbers(40), how, epochs=3, done=done)
    drawn = draws.SampledRows(SAMPLERS[name](), 0)
    steps = len(whole[0]) // 3
    for epoch in range(3):
        seen = flat(flat(mine[epoch * steps : (epoch + 1) * steps] for mine in whole))
        assert sorted(seen) == sorted(drawn.of(epoch).tolist())
    assert later == [mine[done:] for mine in whole]
    assert drawn.of(1).tolist() != drawn.of(2).tolist()


def test_a_sampler_draws_no_epoch_that_is_long_over() -> None:
    drawn = draws.SampledRows(SAMPLERS["counting"](), 0)
    before, last = drawn.of(1), drawn.of(2)
    assert (drawn.of(1).tolist(), drawn.of(2).tolist()) == (before.tolist(), last.tolist())
    with pytest.raises(TryAgain, match="can't draw the rows of epoch 0 again after those of epoch 2"):
        drawn.of(0)


def test_weighted_draws_have_the_shares_of_torchs_own() -> None:
    sampler = data.WeightedRandomSampler([1.0] * 900 + [9.0] * 100, 5000)
    share = np.mean(draws.SampledRows(sampler, 0).of(0) >= 900)
    assert share == pytest.approx(np.mean(np.array(list(sampler)) >= 900), abs=0.03)


def test_a_sampler_that_draws_no_rows_or_another_number_of_them_is_refused() -> None:
    class Three(list[Any]):
        def __len__(self) -> int:
            return 3

    for rows, words in (([1, 2], "only 2"), ([1] * 4, "more"), ([1.5, 2, 3], "numbers of rows: 'float'")):
        run = FakeRun()
        with pytest.raises(ConfigError, match=words):
            len(run.loader(Numbers(9), sampler=Three(rows)))
    with pytest.raises(ConfigError, match=r"stratified, but a list draws the rows.*or the sampler"):
        len(FakeRun(data={"strategy": "stratified"}).loader(Numbers(9), sampler=[1, 2, 3]))


def test_workers_whose_samplers_draw_differently_have_other_fingerprints() -> None:
    def fingerprint(seed: int) -> str:
        run = FakeRun(workers=2)
        order = np.random.default_rng(seed).permutation(20).tolist()
        brought = run.loader(Numbers(20), sampler=order)._course.brought
        return str(brought.dealt(run.so_far()).manifest.fingerprint)

    assert fingerprint(0) == fingerprint(0)
    assert fingerprint(0) != fingerprint(1)


def test_a_dataloader_of_a_stream_is_dealt_anew() -> None:
    found = epoch_of_all(2, data.DataLoader(Known(20), batch_size=4), lambda run, dataset: run.loader(dataset, None))
    assert sorted(flat(flat(found))) == list(range(20))


# alone
def test_alone_it_is_a_dataloader_of_torch() -> None:
    mine = loaders.loader(None, None, Numbers(20), 8, num_workers=0)
    assert type(mine) is data.DataLoader
    assert (mine.batch_size, len(mine)) == (8, 3)
    taken = flat(batch.tolist() for batch in mine)
    assert sorted(taken) == list(range(20))
    assert taken != list(range(20))
    assert flat(batch.tolist() for batch in loaders.loader(None, None, Numbers(20), 8, shuffle=False)) == list(
        range(20)
    )
    stream = loaders.loader(None, None, Stream(9), 4, length=9)
    assert flat(batch.tolist() for batch in stream) == list(range(9))
    assert len(stream) == 3
    assert len(loaders.loader(None, None, Stream(9), 4, length=9, drop_last=True)) == 2
    again = loaders.loader(None, None, data.DataLoader(Numbers(20), batch_size=5), drop_last=True)
    assert flat(batch.tolist() for batch in again) == list(range(20))


# what is refused
@pytest.mark.parametrize(
    ("dataset", "options", "words"),
    [
        (Numbers(9), {"batch_size": None}, "batch_size is None; expected a whole number of 1 or more"),
        (Numbers(9), {"batch_size": True}, "batch_size is True"),
        (Numbers(9), {"batch_size": 0}, "batch_size is 0"),
        (Numbers(9), {"sampler": (row for row in range(9))}, "the generator has no len"),
        (Numbers(9), {"sampler": []}, "The list draws 0 rows"),
        (Numbers(9), {"sampler": [1, 2], "shuffle": True}, "A list has its own order. Leave out shuffle"),
        (Numbers(9), {"batch_sampler": [[1]]}, "takes no batch_sampler"),
        (Numbers(9), {"in_order": False}, "in_order=False"),
        (Numbers(9), {"deals_itself": True}, "is for streams"),
        (Numbers(9), {"length": 5}, "length=5 is for streams"),
        (Numbers(9), {"labels": [1, 2]}, "labels= are 2; expected one .* 9 rows"),
        (Numbers(0), {}, "a Numbers, has 0 examples"),
        ([], {}, "has 0 examples"),
        (Stream(9), {}, "The length of an epoch is unknown.*length=.*paceline.steps"),
        ((torch.zeros(4, 2), torch.zeros(4)), {}, "tuple of two arrays.*TensorDataset"),
        ({"x": [1]}, {}, "is a dict, .*columns"),
        ((number for number in range(9)), {}, "generator.*only once"),
        ("train.csv", {}, "is a str"),
        (7, {}, "is a int"),
        (Known(9), {"sampler": [1]}, "A Known is a stream"),
        (data.DataLoader(Numbers(9), batch_sampler=[[1, 2]]), {}, "its own batch_sampler .list."),
    ],
)
def test_what_can_not_be_dealt_is_refused_with_what_to_do(dataset: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        FakeRun(workers=2).loader(dataset, **({"batch_size": 4} | options))


@pytest.mark.parametrize(
    ("dataset", "options", "words"),
    [
        (Numbers(3), {}, "3 examples, too few for 4 shards"),
        (Known(3), {}, "3 examples, too few for 4 shards"),
        (Known(30), {"data": {"strategy": "stratified"}}, "strategy is stratified, but the data set is a stream"),
        (Known(30), {"data": {"weights": [1, 1, 1, 2]}}, "data.weights is set, but Paceline deals a stream"),
        (Known(30), {"data": {"shards": 8}}, "data.shards is set, but Paceline deals a stream"),
        (Known(30), {"data": {"access": "all"}}, "data.access is all.*stream"),
        (Numbers(30), {"accumulate": 4, "batch_size": 8}, "accumulate is 4, but some steps .* have fewer examples .1."),
        (Numbers(30), {"data": {"strategy": {"name": "stratified", "by": "cifar100"}}}, "by is cifar100, but a script"),
    ],
)
def test_settings_that_the_data_does_not_allow_are_refused(dataset: Any, options: dict[str, Any], words: str) -> None:
    run = FakeRun(workers=4, **options)
    with pytest.raises((ConfigError, DataError), match=words):
        len(run.loader(dataset, 8))


def test_drop_last_that_would_drop_everything_is_refused() -> None:
    with pytest.raises(ConfigError, match="drop_last leaves no mini-batch: a worker has 5 examples"):
        len(FakeRun(workers=4).loader(Numbers(20), 32, drop_last=True))


def test_an_order_or_whole_mini_batches_do_not_go_with_access_to_all() -> None:
    for options, words in (({"shuffle": False}, "has an order"), ({"drop_last": True}, "of one size")):
        with pytest.raises(ConfigError, match=words):
            len(FakeRun(workers=2, data={"access": "all"}).loader(Numbers(20), 4, **options))


@pytest.mark.parametrize("held", ["nobody", "batch_sampler", "sampler with batch size", "two"])
def test_a_sampler_in_the_wrong_place_is_told(held: str) -> None:
    run, dataset = FakeRun(workers=2), Numbers(20)
    rows = run.sampler(dataset, 4 if held == "sampler with batch size" else None)
    words = "Give it as batch_sampler" if held == "sampler with batch size" else "no DataLoader with a batch_size has"
    if held == "batch_sampler":
        wrong = data.DataLoader(dataset, batch_sampler=rows)
    elif held == "nobody":
        wrong = rows
    else:
        wrong = data.DataLoader(dataset, batch_size=4, sampler=rows)
    if held == "two":
        other = data.DataLoader(dataset, batch_size=5, sampler=rows)
        assert other is not None
        words = "different batch sizes"
    with pytest.raises(ConfigError, match=words):
        run.train(wrong)


@pytest.mark.parametrize("form", ["sampler", "batch_sampler"])
@pytest.mark.parametrize("processes", [0, 1])
def test_a_sampler_says_when_all_of_an_epoch_is_drawn_so_that_skipped_steps_are_left_out(
    form: str, processes: int
) -> None:
    run, dataset, drawn = FakeRun(), Numbers(40), []
    run.drew_all = lambda: drawn.append(run.position)
    own = run.sampler(dataset, 8 if form == "batch_sampler" else None)
    size = {} if form == "batch_sampler" else {"batch_size": 8}
    mine = data.DataLoader(dataset, num_workers=processes, **{form: own}, **size)

    next(iter(mine))
    assert not drawn, "its loop was left"
    list(mine)
    assert drawn == ([] if processes else [0]), "a loader with processes draws ahead of the script"


def test_samplers_say_what_they_can_not_draw() -> None:
    with pytest.raises(ConfigError, match=r"is a stream.*Use paceline\.loader"):
        FakeRun().sampler(Known(9))
    with pytest.raises(ConfigError, match="drop_last belongs to the DataLoader"):
        FakeRun().sampler(Numbers(9), drop_last=True)
    run, dataset = FakeRun(workers=2, budget="total"), Numbers(40)
    mine = data.DataLoader(dataset, batch_size=8, sampler=run.sampler(dataset))
    with pytest.raises(ConfigError, match=r"budget is total.*Leave out budget"):
        len(mine)
    run, dataset = FakeRun(workers=2, batch_size=32), Numbers(40)
    mine = data.DataLoader(dataset, batch_size=8, sampler=run.sampler(dataset))
    with pytest.raises(ConfigError, match=r"makes 8 examples a step, but the run's settings .* 16 for each worker"):
        len(mine)
