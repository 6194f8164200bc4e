"""Topologies: which ranks are linked, the mixing weights, the two colours; one contract for all in the folder."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core import registry
from paceline.core.errors import ConfigError
from paceline.core.peers.topologies.complete import Complete
from paceline.core.peers.topologies.exponential import Exponential
from paceline.core.peers.topologies.matrix import Matrix
from paceline.core.peers.topologies.ring import Ring
from paceline.core.peers.topologies.torus import Torus
from paceline.core.peers.topologies.tree import Tree
from paceline.core.peers.topology import PACKAGE, build_topology, distances
from paceline.core.settings.config import Options

TOPOLOGIES = registry.names(PACKAGE)
EIGHT = tuple(range(8))
UNEVEN = ((0.5, 0.3, 0.2), (0.1, 0.6, 0.3), (0.4, 0.1, 0.5))
members = st.sets(st.integers(0, 15), min_size=1, max_size=13).map(lambda ranks: tuple(sorted(ranks)))


def made(name, size=16):
    """The topology with its default options; a matrix for this number of ranks."""
    options = {"rows": np.full((size, size), 1 / size).tolist()} if name == "matrix" else {}
    return build_topology(Options(name=name, **options))


def random_matrix(seed, size):
    """Doubly stochastic and not symmetric: a mixture of permutations with a part of each one's own."""
    draw, matrix = np.random.default_rng(seed), np.zeros((size, size))
    for share in draw.dirichlet(np.ones(3)):
        matrix += share * np.eye(size)[draw.permutation(size)]
    return 0.2 * np.eye(size) + 0.3 * np.eye(size)[np.roll(np.arange(size), 1)] + 0.5 * matrix


# ring
def test_a_ring_of_four_weighs_itself_and_both_neighbours_by_a_third():
    assert Ring().neighbours((0, 1, 2, 3), 0) == (1, 3)
    assert Ring().weights((0, 1, 2, 3)) == pytest.approx(
        np.array([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]) / 3
    )


def test_a_ring_closes_over_those_who_left():
    assert Ring().neighbours((0, 3, 7, 9), 3) == (7, 0)
    assert Ring().neighbours((0, 3, 9), 3) == (9, 0)


@pytest.mark.parametrize(("ranks", "weights"), [((5,), [[1]]), ((2, 5), [[0.5, 0.5], [0.5, 0.5]])])
def test_a_ring_of_one_or_two(ranks, weights):
    assert Ring().weights(ranks) == pytest.approx(np.array(weights))


@pytest.mark.parametrize(
    ("size", "hops"), [(1, []), (2, [1]), (3, [1]), (4, [1, 3]), (8, [1, 3, 5]), (9, [1, 3, 5]), (18, [1, 3, 5, 9, 17])]
)
def test_the_hops_of_a_ring_with_shortcuts(size, hops):
    """{1} and {2^i + 1 : i >= 1, < n}; n = 8 gives {1, 3, 5}: only odd hops, between actives and passives."""
    assert Ring(shortcuts=True).hops(size) == hops


def test_shortcuts_link_colours_that_differ_only():
    assert set(Ring(shortcuts=True).neighbours(EIGHT, 0)) == {1, 3, 5, 7}


# the others
def test_a_complete_topology_mixes_to_the_mean_at_once():
    assert Complete().weights((1, 4, 6)) == pytest.approx(np.full((3, 3), 1 / 3))


def test_exponential_links_reach_powers_of_two_and_have_one_direction():
    assert Exponential().neighbours(EIGHT, 5) == (6, 7, 1)
    assert Exponential().neighbours((0, 1, 2, 3, 4), 3) == (4, 0, 2)
    assert Exponential().sources(EIGHT, 5) == (1, 3, 4)
    assert Exponential().weights(EIGHT)[5] == pytest.approx(np.isin(EIGHT, [1, 3, 4, 5]) / 4)


def test_a_torus_of_twelve_is_three_by_four():
    assert set(Torus().neighbours(tuple(range(12)), 0)) == {1, 3, 4, 8}


def test_a_torus_of_a_prime_number_is_a_ring():
    assert set(Torus().neighbours(tuple(range(7)), 0)) == {1, 6}


def test_a_tree_links_parents_and_children_and_weighs_by_the_larger_degree():
    tree, ranks = Tree(), (0, 1, 2, 3)

    assert [tree.neighbours(ranks, rank) for rank in ranks] == [(1, 2), (0, 3), (0,), (1,)]
    assert tree.weights(ranks)[0] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert tree.weights(ranks)[3] == pytest.approx([0, 1 / 3, 0, 2 / 3])


def test_a_tree_of_one_child_each_is_a_chain():
    assert Tree(children=1).neighbours((0, 1, 2), 1) == (0, 2)


# the user's matrix
def test_a_matrix_sends_where_the_receivers_row_has_a_weight():
    rows = ((0.5, 0.5, 0), (0, 0.5, 0.5), (0.5, 0, 0.5))

    assert Matrix(rows=rows).neighbours((0, 1, 2), 0) == (2,)
    assert Matrix(rows=rows).sources((0, 1, 2), 0) == (1,)


def test_who_leaves_a_matrix_is_passed_through():
    """Worked out: W_00 <- .5 + .2 * .4 / .5 = .66, W_01 <- .3 + .2 * .1 / .5 = .34, and so on."""
    assert Matrix(rows=UNEVEN).weights((0, 1)) == pytest.approx(np.array([[0.66, 0.34], [0.34, 0.66]]))


@given(st.integers(0, 999), st.integers(2, 8), st.data())
def test_a_matrix_stays_doubly_stochastic_and_connected_whoever_leaves(seed, size, data):
    topology = Matrix(rows=random_matrix(seed, size).tolist())
    left = tuple(sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1))))

    matrix = topology.weights(left)

    assert matrix.sum(axis=0) == pytest.approx(np.ones(len(left)))
    assert matrix.sum(axis=1) == pytest.approx(np.ones(len(left)))
    assert np.linalg.matrix_power(matrix, 2000) == pytest.approx(np.full_like(matrix, 1 / len(left)))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([[0.5, 0.4], [0.5, 0.5]], "row 0 sums to 0.9, 0.1 too little"),
        ([[0.5, 0.6], [0.5, 0.5]], "row 0 sums to 1.1, 0.1 too much"),
        ([[0.9, 0.1], [0.5, 0.5]], "column [01] sums to .*, 0.4 too"),
        ([[1.1, -0.1], [-0.1, 1.1]], "row 0, column 1 is -0.1"),
        ([[float("nan"), 1.0], [1.0, 0.0]], "row 0, column 0 is nan"),
        ([[float("inf"), 1.0], [1.0, 0.0]], "row 0, column 0 is inf"),
        ([[1, 0], [0, 1]], "members 0 and 1 are not connected"),
        ([[0, 1], [1, 0]], "row 0 gives its own model the weight 0"),
        ([[0.5, 0.5], [1.0]], r"got 2 rows with \[2, 1\] weights"),
        ([], "at least one"),
    ],
)
def test_a_matrix_that_does_not_mix_is_refused_and_says_why(rows, said):
    with pytest.raises(ConfigError, match=rf"topology\.rows: .*{said}"):
        build_topology(Options(name="matrix", rows=rows))


def test_a_matrix_has_no_weights_for_ranks_beyond_its_rows():
    with pytest.raises(ConfigError, match=r"ranks 0 to 2, but rank 3 is a member\. Add rows"):
        Matrix(rows=UNEVEN).weights((0, 1, 3))


def test_a_matrix_may_be_off_by_rounding():
    Matrix(rows=[[0.33333334, 0.33333333, 0.33333333]] * 3)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("rings", {}, "Did you mean 'ring'"),
        ("tree", {"children": 0}, r"topology\.children: got 0"),
        ("matrix", {}, r"topology\.rows: .* required"),
    ],
)
def test_wrong_names_and_options_are_refused(name, options, said):
    with pytest.raises(ConfigError, match=said):
        build_topology(Options(name=name, **options))


# two colours
def test_a_ring_of_even_length_is_half_active():
    assert Ring().two_colours((0, 1, 2, 3)) == ({1, 3}, {0, 2})


def test_one_of_an_odd_ring_is_a_passive_more():
    assert Ring().two_colours((0, 1, 2, 3, 4)) == ({1, 3}, {0, 2, 4})
    assert Ring().partners((0, 1, 2, 3, 4), 4) == (3,)


def test_colours_are_drawn_anew_when_a_member_leaves():
    assert Ring().two_colours((0, 2, 3)) == ({2}, {0, 3})


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 16])
def test_a_complete_topology_is_halved(size):
    active, passive = Complete().two_colours(tuple(range(size)))

    assert len(active) == size // 2
    assert Complete().partners(tuple(range(size)), 1) == tuple(sorted(passive))


# one contract for every topology in the folder
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_topology_says_what_each_option_is_and_takes_one_member(name):
    topology = made(name)

    assert all(option.description for option in type(topology).model_fields.values())
    assert type(topology).__doc__
    assert topology.weights((0,)) == pytest.approx(np.ones((1, 1)))


@pytest.mark.parametrize("name", TOPOLOGIES)
@given(ranks=members)
def test_every_topology_mixes_to_the_mean_and_links_no_member_to_itself(name, ranks):
    topology, size = made(name), len(ranks)

    matrix = topology.weights(ranks)

    assert (matrix >= 0).all()
    assert matrix.sum(axis=0) == pytest.approx(np.ones(size))
    assert matrix.sum(axis=1) == pytest.approx(np.ones(size))
    assert np.linalg.matrix_power(matrix, 4000) == pytest.approx(np.full((size, size), 1 / size), abs=1e-6)
    for place, rank in enumerate(ranks):
        reached = topology.neighbours(ranks, rank)
        assert rank not in reached
        assert len(set(reached)) == len(reached)
        linked = {ranks[i] for i in np.flatnonzero(matrix[:, place])} - {rank}
        assert set(reached) == linked
        assert topology.sources(ranks, rank) == tuple(
            other for other in ranks if rank in topology.neighbours(ranks, other)
        )


@pytest.mark.parametrize("name", TOPOLOGIES)
@given(ranks=members)
def test_every_topologys_links_between_the_two_colours_hold_all_together(name, ranks):
    topology = made(name)

    active, passive = topology.two_colours(ranks)
    partners = {rank: topology.partners(ranks, rank) for rank in ranks}

    assert active | passive == set(ranks)
    assert not active & passive
    assert len(active) <= len(passive)
    assert all((rank in active) != (other in active) for rank in ranks for other in partners[rank])
    assert all(rank in partners[other] for rank in ranks for other in partners[rank])
    assert distances(partners, ranks[0]).keys() == set(ranks)
