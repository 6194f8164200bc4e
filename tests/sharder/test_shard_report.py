"""The report on shards: its numbers are right, its files are whole, and folders that can't be compared are refused."""

import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from paceline.base import plot_style
from paceline.base.plot_style import Drawn
from paceline.cli.__main__ import app
from paceline.core.errors import DataError, DiskError, UsageError
from paceline.core.settings.config import Config
from paceline.data.manifest import MANIFEST, FileEntry, Manifest, Recipe, ShardEntry, read_manifest, render
from paceline.sharder.report import pictures
from paceline.sharder.report.report import page, write_report
from paceline.sharder.report.shard_set import Clusters, ShardSet, digits, divergence, find_clusters, read_sets
from paceline.sharder.sharding import make_shards
from tests.support.pages import FROM_ELSEWHERE

PNG = b"\x89PNG\r\n\x1a\n"
FILE = FileEntry(bytes=4, dtype="<f4", shape=(), sha256="0" * 64)


TASK = """
import numpy as np
from paceline.extend import Dataset, Labelled
def data(path):
    features = np.arange(0.0, 40)[:, None]
    return Dataset(Labelled(features, np.arange(40) % 2))
def model():
    raise NotImplementedError
"""


def entry(classes: dict[str, int], clusters: dict[str, int] | None = None, examples: int = 1) -> ShardEntry:
    size = sum(classes.values()) or examples
    files = dict.fromkeys(("features", "labels", "ids"), FILE.model_copy(update={"shape": (size,), "bytes": 4 * size}))
    return ShardEntry(examples=size, epoch_len=size, classes=classes, clusters=clusters or {}, files=files)


def made(*shards: ShardEntry, strategy: str | dict = "random", copied: int = 0, **changed) -> Manifest:
    recipe = {"task": "t", "strategy": strategy, "shards": len(shards), "validation": 0.15, "test": 0.15, "seed": 0}
    about = {key: changed.pop(key) for key in list(changed) if key in ("source", "seconds", "sparse")}
    return Manifest(
        source=about.pop("source", "digits.npz"),
        recipe=Recipe.model_validate({**recipe, "examples": "a" * 64, **changed}),
        train_examples=sum(shard.examples for shard in shards),
        duplicates=tuple(range(copied)),
        shards=shards,
        parts={},
        **about,
    )


def kept(folder: Path, manifest: Manifest) -> Path:
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_bytes(render(manifest))
    return folder


def shard_set(*shards: ShardEntry, name: str = "random", **changed) -> ShardSet:
    return ShardSet(name, Path("shards"), made(*shards, **changed))


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    shards = entry({"0": 30, "1": 10}), entry({"0": 10, "1": 30})
    return kept(tmp_path_factory.mktemp("shards") / "uneven", made(*shards, seconds=0.001))


@pytest.fixture(scope="module")
def even(tmp_path_factory):
    clusters = {"0": 10, "1": 10, "2": 1}
    shards = [entry({"0": 20, "1": 21}, clusters), entry({"0": 20, "1": 21}, clusters)]
    whole = made(*shards, strategy="distribution_aware", copied=1, sparse=(2,), seconds=2.0)
    return kept(tmp_path_factory.mktemp("shards") / "even", whole)


class Reported(NamedTuple):
    """A report, and what the command that wrote it said and ended with."""

    folder: Path
    done: subprocess.CompletedProcess[str]

    @property
    def text(self) -> str:
        return (self.folder / "report.html").read_text()


@pytest.fixture(scope="module")
def report(uneven, even, tmp_path_factory) -> Reported:
    """Drawn once, by the real command, of two sets that have clusters and tell their time."""
    out = tmp_path_factory.mktemp("reports") / "deep" / "report"
    command = [sys.executable, "-m", "paceline.cli", "report", uneven, even, "--out", out]
    return Reported(out, subprocess.run(command, capture_output=True, text=True, check=False))


@pytest.fixture
def words(monkeypatch):
    """Writes reports whose pictures are laid out and not drawn, which takes nearly all the time."""
    monkeypatch.setattr(pictures, "drawn", lambda figure: Drawn(PNG, '<svg viewBox="0 0 9 9"></svg>'))
    return write_report


def run_here(*arguments: object) -> Result:
    """What the command line does with them, in this process."""
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_equal_distributions_are_0_bits_apart_and_disjoint_ones_1_bit():
    counts = np.array([[3, 9, 0], [6, 18, 0], [0, 0, 7]])

    assert divergence(counts, np.array([[1], [2], [0]])) == pytest.approx([0, 0, 1], abs=1e-12)


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=20), st.integers(1, 1000))
def test_a_shard_in_proportion_is_0_bits_off_however_it_rounds(whole, times):
    counts = np.array(whole)[:, None]

    assert divergence(counts * times, counts) == pytest.approx([0], abs=1e-12)


def test_two_workers_without_a_common_class_are_as_far_as_by_hand():
    shards = shard_set(entry({"a": 5}), entry({"b": 5}))

    # M = (3/4, 1/4): half of log2(1 / (3/4)), and half of 1/2 log2(1/2 / 3/4) + 1/2 log2(1/2 / 1/4)
    by_hand = 0.5 * np.log2(4 / 3) + 0.5 * (0.5 * np.log2(2 / 3) + 0.5 * np.log2(2))
    assert shards.divergence == pytest.approx([by_hand, by_hand])


def test_the_deviation_compares_shares_not_counts():
    shards = shard_set(entry({"0": 10, "1": 30}), entry({"0": 50, "1": 30}))  # class 0 is half of all

    assert shards.deviation == pytest.approx(np.array([[-0.5, 0.25], [0.5, -0.25]]))
    assert shards.furthest == ("0", 0, -0.5)


def test_shards_of_unequal_sizes_with_equal_shares_deviate_by_nothing():
    shards = shard_set(entry({"0": 1, "1": 3}), entry({"0": 2, "1": 6}))

    assert shards.furthest[2] == 0
    assert shards.divergence == pytest.approx([0, 0], abs=1e-12)


def test_dealing_at_random_gives_what_is_expected_of_chance():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 100)
    found = []
    for _ in range(50):
        order = rng.permutation(labels)
        found.append(shard_set(*(entry(_counted(order[shard::4])) for shard in range(4))))

    assert np.mean([shards.divergence.mean() for shards in found]) == pytest.approx(found[0].chance, rel=0.1)


def _counted(labels) -> dict[str, int]:
    return {str(label): int(count) for label, count in zip(*np.unique(labels, return_counts=True), strict=True)}


def test_classes_are_in_the_order_of_their_numbers_and_one_that_a_shard_lacks_counts_0():
    shards = shard_set(entry({"10": 1, "9": 2}), entry({"2": 3, "cat": 4}))

    assert shards.classes == ["2", "9", "10", "cat"]
    assert shards.counts.tolist() == [[0, 3], [2, 0], [1, 0], [0, 4]]


@pytest.mark.parametrize(
    ("held", "told", "sizes", "sparse"),
    [
        # cluster 0 dealt (2, 2, 1), cluster 1 has two examples, which all three got
        ((2, 2, 1), {"copied": 2, "sparse": (1,)}, [5, 2], [False, True]),
        ((1, 1, 1), {}, [3, 6], [False, False]),
    ],
    ids=["one that every worker has whole counts once", "one dealt without remainder is not taken for a sparse one"],
)
def test_the_sizes_of_clusters_of_3_workers(held, told, sizes, sparse):
    found = find_clusters(made(*(entry({"x": 9}, {"0": count, "1": 2}) for count in held), **told))

    assert found.sizes.tolist() == sizes
    assert found.sparse.tolist() == sparse


@pytest.mark.parametrize(("options", "least"), [({}, 3), ({"literal": True}, 4), ({"sparse_below": 9}, 9)])
def test_a_cluster_is_sparse_below_what_its_strategy_says(options, least):
    strategy = {"name": "distribution_aware", **options}

    assert shard_set(*(entry({"x": 9}) for _ in range(3)), strategy=strategy).sparse_below == least


def test_the_table_of_sparse_neighbourhoods_has_their_number_and_mean_size(even):
    (shards,) = read_sets([even])

    text = re.sub(r"<[^>]+>", " ", page([shards], {"clusters.png": '<svg viewBox="0 0 9 9"></svg>'}))

    assert isinstance(shards.clusters, Clusters)
    assert find_clusters(made(entry({"x": 9}))) is None
    assert shards.clusters.sparse_sizes.tolist() == [1]
    assert re.search(r"distribution_aware\s+3\s+1\s+1\.00\s+1\s+1\s+20\s+20", text)


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (0.0000318, "0.000032"), (0.31, "0.31"), (282.4, "280")])
def test_numbers_have_two_digits_and_no_power_of_ten(value, text):
    assert digits(value) == text


def test_the_report_is_png_pictures_and_one_page(report):
    pictures = {"class-counts.png", "heat-map.png", "divergence.png", "clusters.png", "seconds.png"}
    assert {path.name for path in report.folder.iterdir()} == {*pictures, "report.html"}
    for name in pictures:
        content = (report.folder / name).read_bytes()
        width, height = struct.unpack(">II", content[16:24])
        assert content.startswith(PNG)
        assert 600 <= width <= 2400
        assert 300 <= height <= 2400
        assert 5_000 < len(content) < 1_000_000


def test_the_command_says_what_it_found_and_where_the_report_is(report):
    said = report.done.stdout

    assert (report.done.returncode, report.done.stderr) == (0, "")
    assert said.startswith("distribution_aware spreads the classes most evenly: its worst worker is 0 bits")
    assert "at most, worker 0 has 50.0% more of class 0 than its share" in said  # 30 of 40, and 40 of 80
    assert str(report.folder / "report.html") in said


def test_pictures_of_an_earlier_report_do_not_stay_beside_another(words, uneven, even, tmp_path):
    words([even], tmp_path / "report")
    assert (tmp_path / "report/clusters.png").exists()

    words([uneven], tmp_path / "report")

    assert not (tmp_path / "report/clusters.png").exists()
    assert "None of these sets was made from clusters" in (tmp_path / "report/report.html").read_text()


def test_the_time_is_on_the_page_where_the_manifest_has_it(report):
    assert ">0.001</td>" in report.text


def test_one_worker_with_one_class_has_a_report_too_without_a_picture_of_the_time_where_it_has_none(words, tmp_path):
    said = words([kept(tmp_path / "a", made(entry({"0": 1})))], tmp_path / "report")

    assert said.startswith("random: every worker has exactly its share of every class.\n")
    assert not (tmp_path / "report/seconds.png").exists()


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing(report):
    assert report.text.count("<svg ") == 5
    assert not FROM_ELSEWHERE.search(re.sub(r'base64,[^"]*', "", report.text))


def test_names_from_the_data_are_text_to_the_page_and_to_the_pictures(tmp_path):
    odd = kept(tmp_path / "a", made(entry({"<b>$x^$": 2, "$": 3}), source='<script>alert("&")</script>'))

    write_report([odd], tmp_path / "report")

    text = (tmp_path / "report/report.html").read_text()
    assert "&lt;script&gt;alert(&quot;&amp;&quot;)" in text
    assert "&lt;b&gt;$x^$" in text
    assert "<script" not in text
    assert "<b>" not in text


@pytest.mark.filterwarnings("error")
def test_letters_that_the_pictures_lack_are_on_the_page_and_no_warning(tmp_path):
    """One set has one worker with one class, the other one another number of workers."""
    folders = [kept(tmp_path / "データ", made(entry({"0": 1})))]
    folders.append(kept(tmp_path / ("b" * 200), made(*[entry({"0": 1, "1": 1})] * 5, seed=1)))

    write_report(folders, tmp_path / "report")

    assert "random (データ)" in (tmp_path / "report/report.html").read_text(encoding="utf-8")


@pytest.mark.nightly  # large pictures
def test_sets_of_many_workers_and_classes_have_pictures_of_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr(plot_style, "svg", lambda figure: '<svg viewBox="0 0 9 9"></svg>')
    rng = np.random.default_rng(0)
    shards = [entry({str(name): int(count) for name, count in enumerate(row)}) for row in rng.integers(1, 9, (64, 100))]
    folders = [kept(tmp_path / name, made(*shards, strategy=name)) for name in ("random", "stratified")]

    write_report(folders, tmp_path / "report")

    found = list((tmp_path / "report").glob("*.png"))
    assert len(found) == 3
    for path in found:
        assert max(struct.unpack(">II", path.read_bytes()[16:24])) <= 4000


def test_sets_are_called_by_strategy_and_where_that_is_not_enough_by_folder(tmp_path):
    random, other = made(entry({"0": 1})), made(entry({"0": 1}), strategy={"name": "aware", "clusters": 30})
    folders = [kept(tmp_path / name, one) for name, one in (("a", random), ("b", random), ("c", other))]

    names = [shards.name for shards in read_sets(folders)]

    assert names == ["random (a)", "random (b)", "aware, clusters 30"]


def test_folders_of_one_name_are_told_apart_by_their_paths(tmp_path):
    folders = [kept(tmp_path / name / "shards", made(entry({"0": 1}))) for name in ("a", "b")]

    assert [shards.name for shards in read_sets(folders)] == [f"random ({folder})" for folder in folders]


def test_a_folder_without_shards_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has no manifest\.json"):
        write_report([tmp_path], tmp_path / "report")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"examples": "b" * 64}, "other data sets .aaaaaaaaaaaa and bbbbbbbbbbbb"),
        ({"validation": 0.3}, "other shares for validation .0.15 and 0.3"),
        ({"test": 0.3}, "other shares for testing"),
    ],
)
def test_shards_of_other_examples_are_not_compared(uneven, tmp_path, changed, said):
    other = kept(tmp_path / "other", made(entry({"0": 1}), **changed))

    with pytest.raises(DataError, match=f"uneven and .*other were made from {said}"):
        read_sets([uneven, other])


def test_labels_that_are_no_classes_are_refused(tmp_path):
    folder = kept(tmp_path / "a", made(entry({}), task="housing"))

    with pytest.raises(DataError, match=r"labels that are not classes \(task housing\)"):
        read_sets([folder])


@pytest.fixture
def strata(tmp_path):
    """Shards of 40 examples in 2 classes, and a task that knows 4 strata in them: example i is of stratum i % 4."""
    classes, kinds = tmp_path / "classes.py", tmp_path / "kinds.py"
    classes.write_text(TASK)
    kinds.write_text(TASK.replace("% 2", "% 4"))
    for strategy in ("round_robin", "stratified"):
        settings = {"task": str(classes), "workers": 4, "data": {"strategy": strategy, "test": 0, "validation": 0}}
        make_shards(Config.model_validate(settings), tmp_path / strategy)
    return kinds


def test_strata_that_the_classes_hide_are_shown_by_another_tasks_labels(strata, tmp_path):
    folders = [tmp_path / "round_robin", tmp_path / "stratified"]

    hidden = read_sets(folders)[1]
    dealt, shown = read_sets(folders, by=str(strata))

    assert hidden.counts.tolist() == [[5] * 4] * 2
    assert dealt.counts.tolist() == (10 * np.eye(4, dtype=int)).tolist()
    assert shown.counts.sum(axis=1).tolist() == [10] * 4
    for worker in range(4):
        ids = np.load(tmp_path / f"stratified/shard-{worker}/ids.npy")
        assert shown.counts[:, worker].tolist() == np.bincount(ids % 4, minlength=4).tolist()


def test_a_report_by_another_task_says_whose_classes_it_shows(words, strata, tmp_path):
    said = words([tmp_path / "round_robin"], tmp_path / "report", by=str(strata))

    assert "has 300.0% more of class 0 of kinds than its share" in said
    text = (tmp_path / "report/report.html").read_text()
    assert "40 training examples of 4 classes of kinds, task classes" in text
    assert '<th scope="col">class of kinds</th>' in text


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("40", "39", r"shard-3 has example 39, but task .*kinds\.py has 39 training examples, 0 to 38\..* --data"),
        ("0.0, 40", "1.0, 41", r"shard-0 has other examples than task .*kinds\.py, or .* another order\. Give --by"),
        ("(40)", "(40.0)", r"labels of task .*kinds\.py are float64 with shape \(40,\), so they are not classes"),
    ],
)
def test_a_task_that_can_not_label_the_shards_is_refused(strata, tmp_path, old, new, said):
    strata.write_text(strata.read_text().replace(old, new))

    with pytest.raises(DataError, match=said):
        read_sets([tmp_path / "round_robin"], by=str(strata))


def test_labels_that_are_no_classes_have_a_report_by_a_task_that_has_some(strata, tmp_path):
    folder = tmp_path / "round_robin"
    manifest = read_manifest(folder)
    bare = [entry.model_copy(update={"classes": {}}) for entry in manifest.shards]
    (folder / MANIFEST).write_bytes(render(manifest.model_copy(update={"shards": tuple(bare)})))

    (shards,) = read_sets([folder], by=str(strata))

    assert shards.counts.sum() == 40


def test_a_data_set_without_the_task_that_reads_it_is_refused(uneven):
    done = run_here(uneven, "--data", "files")

    assert done.exit_code == UsageError.exit_code
    assert "give --by TASK too" in done.stderr


@pytest.mark.parametrize(
    ("ask", "error", "told"),
    [
        (lambda one, other: read_sets([one, one / ".." / one.name]), UsageError, "in the list twice"),
        (lambda one, other: read_sets([*map(Path, "abcdefghijklm")]), UsageError, r"13 folders .* 12 or fewer"),
        (lambda one, other: write_report([one], other), DataError, "even is a folder of shards"),
        (lambda one, other: write_report([Path("s3://a/b")], Path("c")), DataError, r"s3:/a/b is a URL.*\. Copy them"),
    ],
    ids=["twice", "too many", "among shards", "a URL"],
)
def test_folders_that_give_no_report_are_refused(uneven, even, ask, error, told):
    with pytest.raises(error, match=told):
        ask(uneven, even)


def test_a_place_that_cannot_be_written_is_said(words, uneven, tmp_path):
    (tmp_path / "report").write_text("a file")

    with pytest.raises(DiskError, match=r"Can't write the report to .*report: .*--out"):
        words([uneven], tmp_path / "report")


def test_the_command_says_where_there_are_no_shards(tmp_path):
    done = run_here(tmp_path / "none", tmp_path / "neither")

    assert done.exit_code == DataError.exit_code
    assert done.stderr.startswith("paceline: DataError: There are no shards at")
