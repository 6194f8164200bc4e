"""Every strategy deals every example, evenly and by its seed; the paper's own assignment can be compared."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import ConfigError, DataError
from paceline.core.registry import names
from paceline.core.settings.config import Options
from paceline.data import out_of_core
from paceline.data.dataset import Labelled, Selection
from paceline.sharder import clustering
from paceline.sharder.clustering import Clustering, cluster
from paceline.sharder.dealing_order import Turns
from paceline.sharder.strategies.distribution_aware import DistributionAware
from paceline.sharder.strategy import PACKAGE, build_strategy, deal

WEIGHTS = st.lists(st.integers(1, 9), min_size=1, max_size=6)
LABELS = st.lists(st.integers(-2, 4), min_size=6, max_size=120).filter(lambda labels: len(set(labels)) > 1)


def examples(labels, features=None):
    labels = np.array(labels)
    features = np.zeros((len(labels), 1)) if features is None else features
    return Selection(Labelled(features, labels), np.arange(len(labels)))


def dealt(name, train, weights, seed=0, **options):
    found = deal(build_strategy(Options(name=name, **options)), train, weights, seed)
    return [rows.tolist() for rows in found.shards]


def blobs(sizes, width=6):
    """Clouds far from each other, one after the other."""
    rng = np.random.default_rng(0)
    centres = rng.normal(scale=100, size=(len(sizes), width))
    clouds = [centre + rng.normal(size=(size, width)) for centre, size in zip(centres, sizes, strict=True)]
    return np.concatenate(clouds)


@pytest.mark.parametrize("name", names(PACKAGE))
@pytest.mark.parametrize("weights", [[1], [1, 1], [1] * 7, [1, 3, 2]])
def test_every_strategy_deals_out_every_row_by_its_seed(name, weights):
    train = examples(np.arange(40) % 3, np.random.default_rng(0).normal(size=(40, 5)))

    once, again = (dealt(name, train, weights, seed=1) for _ in range(2))

    assert len(once) == len(weights)
    assert sorted({row for rows in once for row in rows}) == list(range(40))
    assert once == again


def test_random_deals_a_permutation_round_robin():
    order = np.random.default_rng(0).permutation(11).tolist()

    found = dealt("random", examples([0] * 11), [1] * 4)

    assert found == [order[0::4], order[1::4], order[2::4], order[3::4]]


def test_round_robin_keeps_the_order_of_the_file():
    assert dealt("round_robin", examples([0] * 5), [1, 1]) == [[0, 2, 4], [1, 3]]


def test_the_counter_goes_on_from_class_to_class():
    assert dealt("stratified", examples([0, 0, 0, 1, 1]), [1, 1], shuffle=False) == [[0, 2, 4], [1, 3]]


def test_literally_the_counter_restarts_in_each_class():
    assert dealt("stratified", examples([0, 0, 0, 1, 1]), [1, 1], literal=True) == [[0, 2, 3], [1, 4]]


def test_only_the_paper_piles_up_remainders_on_the_first_shards():
    cifar100 = examples(np.repeat(np.arange(100), 500))

    ours, papers = ([len(rows) for rows in dealt("stratified", cifar100, [1] * 12, literal=how)] for how in (0, 1))

    assert ours == [4167] * 8 + [4166] * 4
    assert papers == [4200] * 8 + [4100] * 4


@given(LABELS, st.integers(1, 6), st.integers(0, 2**40), st.booleans())
def test_stratified_shards_differ_by_at_most_one_in_every_class_and_in_all(labels, shards, seed, shuffle):
    found = dealt("stratified", examples(labels), [1] * shards, seed, shuffle=shuffle)

    assert sorted(row for rows in found for row in rows) == list(range(len(labels)))
    assert max(map(len, found)) - min(map(len, found)) <= 1
    for label in set(labels):
        counts = [sum(labels[row] == label for row in rows) for rows in found]
        assert max(counts) - min(counts) <= 1


def test_examples_are_shuffled_inside_their_class_by_the_seed():
    train = examples(np.arange(100) % 2)

    shards = {str(dealt("stratified", train, [1, 1], seed)) for seed in (0, 1, 2)}

    assert len(shards) == 3


@given(st.integers(60, 400), WEIGHTS)
def test_totals_are_in_proportion_to_the_weights(rows, weights):
    sizes = [len(part) for part in Turns(weights).deal(np.arange(rows))]

    assert sum(sizes) == rows
    assert max(abs(size - rows * weight / sum(weights)) for size, weight in zip(sizes, weights, strict=True)) < 1


def test_each_class_is_in_proportion_to_the_weights_too():
    found = dealt("stratified", examples(np.repeat([0, 1, 2], 400)), [1, 1, 2])

    counts = [[sum(row // 400 == label for row in rows) for label in range(3)] for rows in found]
    assert counts == [[100] * 3, [100] * 3, [200] * 3]


def test_weighted_turns_are_spread_evenly():
    turns = [part.tolist() for part in Turns([1, 1, 2]).deal(np.arange(8))]

    assert turns == [[0, 4], [2, 6], [1, 3, 5, 7]]


@pytest.mark.parametrize(
    ("clusters", "found"),
    [
        ([0, 0, 0, 0, 0, 1], [[0, 2, 4, 5], [1, 3, 5]]),
        ([0, 0, 1, 1, 1], [[2, 4, 0, 1], [3, 0, 1]]),  # Fig. 6, line 13: only those with more are dealt
    ],
)
def test_dense_clusters_are_dealt_and_sparse_ones_and_literally_those_of_one_example_a_shard_go_to_all(clusters, found):
    dealt = DistributionAware(literal=True).deal(np.array(clusters), Turns([1, 1]), np.random.default_rng(0))

    assert [rows.tolist() for rows in dealt] == found


@pytest.mark.parametrize(("least", "everywhere"), [(None, 0), (3, 2), (0, 0)])
def test_a_cluster_of_one_example_for_each_shard_is_dense_unless_told_otherwise(least, everywhere):
    clusters = np.array([0, 0, 1, 1, 1])

    found = DistributionAware(sparse_below=least).deal(clusters, Turns([1, 1]), np.random.default_rng(0))

    assert len(set(found[0]) & set(found[1])) == everywhere
    assert set(found[0]) | set(found[1]) == set(range(5))


def test_literally_pca_sees_all_examples_and_every_start_of_kmeans_ends():
    asked = []

    def note(train, how, rng):
        asked.append(how)
        return np.arange(len(train)) % 2

    DistributionAware(literal=True).assign(examples([0, 1] * 9000), Turns([1, 1]), np.random.default_rng(0), note)

    (how,) = asked
    assert (how.sample, how.thorough, how.standardise) == (18_000, True, False)


@given(st.lists(st.integers(0, 5), min_size=6, max_size=90), st.integers(1, 6), st.booleans())
def test_dense_clusters_are_spread_within_one_and_sparse_ones_are_whole(clusters, shards, literal):
    strategy = DistributionAware(literal=literal)

    found = strategy.deal(np.array(clusters), Turns([1] * shards), np.random.default_rng(0))

    for number in set(clusters):
        counts = [sum(clusters[row] == number for row in rows) for rows in found]
        size = clusters.count(number)
        assert counts == [size] * shards if size < shards else max(counts) - min(counts) <= 1
    if not literal:
        assert max(map(len, found)) - min(map(len, found)) <= 1


def test_a_rare_stratum_that_labels_hide_is_found_and_spread():
    train = examples([0] * 60 + [1] * 68, blobs([60, 60, 8]))
    stratum = set(range(120, 128))

    found = dealt("distribution_aware", train, [1] * 4, clusters=3)

    assert [len(stratum & set(rows)) for rows in found] == [2, 2, 2, 2]


def test_outliers_go_to_every_shard():
    found = dealt("distribution_aware", examples([0] * 30 + [1] * 32, blobs([30, 30, 2])), [1] * 4, clusters=3)

    assert all({60, 61} <= set(rows) for rows in found)
    assert sum(map(len, found)) == 60 + 4 * 2


def test_there_are_twice_as_many_clusters_as_classes_unless_told_otherwise():
    train = examples([0] * 30 + [1] * 30, blobs([15, 15, 15, 15]))

    found = deal(DistributionAware(), train, [1, 1], 0)

    assert sorted(np.bincount(found.clusters)) == [15, 15, 15, 15]


@pytest.mark.parametrize("standardise", [True, False])
def test_without_scaling_the_widest_feature_rules(standardise):
    rng = np.random.default_rng(0)
    kinds = np.arange(200) % 2
    told = kinds[:, None] + rng.normal(scale=0.01, size=(200, 3))
    features = np.concatenate([told, rng.normal(scale=1000, size=(200, 1))], axis=1)

    clusters = cluster(examples(kinds, features), Clustering(2, 1, 150, standardise), np.random.default_rng(0))

    assert np.array_equal(clusters == clusters[0], kinds == kinds[0]) == standardise


@pytest.mark.parametrize(("fitted", "in_memory", "chunk"), [(50, 10**6, 1 << 20), (10**6, 100, 1 << 20), (60, 100, 64)])
def test_large_data_is_fitted_on_a_part_and_taken_in_chunks(monkeypatch, fitted, in_memory, chunk):
    monkeypatch.setattr(clustering, "FITTED", fitted)
    monkeypatch.setattr(out_of_core, "IN_MEMORY", in_memory)
    monkeypatch.setattr(clustering, "CHUNK_BYTES", chunk)
    train = examples([0] * 240, blobs([80, 80, 80]))

    clusters = cluster(train, Clustering(3, 2, 150, True), np.random.default_rng(0))

    assert [len(set(part)) for part in np.split(clusters, 3)] == [1, 1, 1]
    assert len(set(clusters)) == 3


@pytest.mark.parametrize("standardise", [True, False])
def test_clusters_of_sparse_rows_are_found(standardise):
    from scipy.sparse import csr_array

    topics = np.kron(np.eye(3), np.ones(20))[np.repeat([0, 1, 2], 40)]
    words = topics * (np.random.default_rng(0).random((120, 60)) < 0.4)
    train = Selection(Labelled(csr_array(words.astype(np.float32)), np.zeros(120, int)), np.arange(120))

    clusters = cluster(train, Clustering(3, 4, 150, standardise), np.random.default_rng(0))

    assert [len(set(part)) for part in np.split(clusters, 3)] == [1, 1, 1]
    assert len(set(clusters)) == 3


def _fitted(features, **how):
    """What the settings make of the features: an example's points."""
    train = examples([0] * len(features), np.asarray(features, np.float32))
    asked = Clustering(2, **({"components": 2, "iterations": 150, "standardise": False} | how))
    found = []
    cluster(train, asked, np.random.default_rng(0), elsewhere=lambda *told: found.append(told))
    (directions, seeds), *_ = found
    return clustering.summary(train, directions), len(seeds)


@pytest.mark.parametrize(("iterations", "thorough", "first"), [(150, False, 5), (3, False, 3), (150, True, 150)])
def test_each_start_of_kmeans_runs_to_its_end_only_where_that_is_asked_for(iterations, thorough, first):
    assert Clustering(2, 1, iterations, True, thorough=thorough).first_iterations == first


def test_whitened_components_all_have_variance_one():
    wide = np.random.default_rng(0).normal(size=(400, 3)) * [100, 10, 1]

    plain, whitened = _fitted(wide)[0].std(axis=0), _fitted(wide, whiten=True)[0].std(axis=0)

    assert plain[0] > 8 * plain[1]
    assert whitened == pytest.approx([1, 1], abs=0.01)


def test_all_components_and_any_number_of_starts_may_be_asked_for():
    points, starts = _fitted(np.random.default_rng(0).normal(size=(40, 7)), components=None, starts=5)

    assert points.shape == (40, 7)
    assert starts == 5


def test_by_cosine_only_the_direction_of_a_point_counts():
    points, _ = _fitted(np.random.default_rng(0).normal(size=(40, 7)), cosine=True)

    assert np.linalg.norm(points, axis=1) == pytest.approx(np.ones(40), abs=1e-5)


@pytest.mark.parametrize("whiten", [False, True])
def test_what_does_not_fit_in_memory_is_fitted_on_piece_by_piece_with_the_same_result(monkeypatch, whiten):
    features = np.random.default_rng(0).normal(size=(600, 5)) * [9, 6, 3, 0.1, 0.1] + 3
    whole, _ = _fitted(features, whiten=whiten, components=3)
    monkeypatch.setattr(clustering, "SAMPLE_BYTES", 100)
    monkeypatch.setattr(clustering, "CHUNK_BYTES", 2000)

    pieces, _ = _fitted(features, whiten=whiten, components=3)

    assert np.abs(pieces) == pytest.approx(np.abs(whole), rel=0.05, abs=0.05)


def test_clusters_of_a_thorough_search_are_scikit_learns_own():
    train = examples([0] * 240, blobs([80, 80, 80]))

    clusters = cluster(train, Clustering(3, 2, 150, False, thorough=True), np.random.default_rng(0))

    assert [len(set(part)) for part in np.split(clusters, 3)] == [1, 1, 1]


def test_clusters_are_as_tight_as_those_of_scikit_learn_on_all_rows(monkeypatch):
    monkeypatch.setattr(clustering, "FITTED", 300)
    from sklearn.cluster import KMeans
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA

    features, labels = load_digits(return_X_y=True)
    points = PCA(20, random_state=0).fit_transform(features)

    clusters = cluster(examples(labels, features), Clustering(20, 20, 150, False), np.random.default_rng(0))

    middles = np.stack([points[clusters == number].mean(axis=0) for number in range(20)])
    theirs = KMeans(20, n_init=10, max_iter=150, random_state=0).fit(points).inertia_
    assert ((points - middles[clusters]) ** 2).sum() <= 1.02 * theirs


@pytest.mark.parametrize(
    ("name", "labels", "weights", "options", "found"),
    [
        ("stratified", [0] * 9, [1, 1], {}, "All 9 .* the same class.*random or distribution_aware"),
        ("stratified", [0.5] * 9, [1, 1], {}, "labels are float64 with shape .*so they can't be stratified.*random"),
        ("stratified", [[0, 1]] * 9, [1, 1], {}, r"int64 with shape \(9, 2\), not one whole number"),
        ("distribution_aware", [0.5] * 9, [1, 1], {}, r"not classes.*set data\.strategy\.clusters"),
        ("distribution_aware", [0] * 9, [1], {"clusters": 10}, r"9 .* can't make 10 clusters.*clusters lower"),
        ("random", [0] * 3, [1] * 4, {}, "3 training examples can't fill 4 shards"),
        ("random", [0] * 10, [1000, 1], {}, "Shard 1 would get none of the 10 training examples.*more equal"),
        ("stratified", [0, 0, 1, 1], [1] * 3, {"literal": True}, "Shard 2 would get none.*literal"),
    ],
)
def test_examples_that_a_strategy_can_not_deal_are_refused(name, labels, weights, options, found):
    with pytest.raises(DataError, match=found):
        dealt(name, examples(labels), weights, **options)


@pytest.mark.parametrize("largest", [1e30, 1e300])
def test_features_that_float32_does_not_hold_are_refused(largest):
    train = examples([0, 1] * 20, np.full((40, 2), largest / 40) * np.arange(40)[:, None])

    with pytest.raises(DataError, match="too large for clustering"):
        dealt("distribution_aware", train, [1, 1])


def test_equal_examples_make_one_cluster_that_is_dealt():
    found = dealt("distribution_aware", examples([0, 1] * 20, np.full((40, 2), 0.1)), [1, 1])

    assert [len(rows) for rows in found] == [20, 20]


def test_an_option_that_a_strategy_does_not_have_is_refused():
    with pytest.raises(ConfigError, match=r"data\.strategy\.clusters: there is no such setting"):
        build_strategy(Options(name="random", clusters=3))
    with pytest.raises(ConfigError, match=r"data\.strategy\.cluster: .*Did you mean 'clusters'"):
        build_strategy(Options(name="distribution_aware", cluster=3))
    with pytest.raises(ConfigError, match=r"data\.strategy\.clusters: got 0"):
        build_strategy(Options(name="distribution_aware", clusters=0))


OWN = """
from paceline.extend import Assignment, ShardingStrategy
class Halves(ShardingStrategy):
    forgets: int = 0
    def assign(self, train, turns, rng, cluster):
        import numpy as np
        return Assignment(np.array_split(np.arange(len(train) - self.forgets), turns.shards))
"""


@pytest.fixture
def halves(tmp_path, monkeypatch):
    from paceline.sharder import strategies

    Path(tmp_path / "halves.py").write_text(OWN)
    monkeypatch.setattr(strategies, "__path__", [*strategies.__path__, str(tmp_path)])
    yield "halves"
    sys.modules.pop("paceline.sharder.strategies.halves", None)


def test_a_strategy_is_added_as_one_file(halves):
    assert dealt(halves, examples([0] * 4), [1, 1]) == [[0, 1], [2, 3]]


def test_a_strategy_that_forgets_examples_is_refused(halves):
    with pytest.raises(ConfigError, match="Halves dealt 3 of 4 examples to 2 of 2 shards"):
        dealt(halves, examples([0] * 4), [1, 1], forgets=1)
