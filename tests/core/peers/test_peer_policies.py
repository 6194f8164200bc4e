"""Peer policies against the worked examples of docs/understand/peers.md and others, what mixing keeps under any
schedule, and one contract for all in the folder."""

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core import registry
from paceline.core.chief.run import Run
from paceline.core.errors import BadPush, ConfigError
from paceline.core.optimizers.builtin.sgd import Sgd, plain_sgd
from paceline.core.peers.peer_policies.allreduce import Buffers
from paceline.core.peers.peer_policy import PACKAGE, Group, Message, PeerPolicy, build_peer_policy
from paceline.core.peers.peer_run import topology_of
from paceline.core.peers.topologies.complete import Complete
from paceline.core.peers.topologies.ring import Ring
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Own, from_shorthand
from paceline.core.settings.config import Options
from paceline.settings.load_settings import load
from tests.support.nights import fewer, some
from tests.support.peer_network import Peers

POLICIES = registry.names(PACKAGE)
MIXING = [("dpsgd", {}), ("adpsgd", {}), ("sgp", {}), ("gosgd", {"probability": 0.7})]
PUSH_SUM = [("sgp", {}), ("gosgd", {"probability": 0.7})]
EQUAL = ["allreduce", "broadcast"]
"""Whose members have one model."""
TOPOLOGIES = ["ring", "complete", "exponential", "torus", "tree", Ring(shortcuts=True)]
FEW = fewer(2)
schedules = {"count": st.integers(1, 8), "seed": st.integers(0, 10_000), "topology": st.sampled_from(TOPOLOGIES)}


def models(count, seed, length=3):
    """First models of members whose ranks have gaps."""
    draw = np.random.default_rng(seed)
    return {3 * place + 1: draw.normal(size=length) for place in range(count)}


def starts(name, count, seed, length=3):
    first = models(count, seed, length)
    return dict.fromkeys(first, np.ones(length)) if name in EQUAL else first


def parts(peers):
    return [(message.sender, message.to, message.hop, message.values.tolist()) for message in peers.sent]


def weight(peers, rank):
    return peers.members[rank]._weight


def mass(peers):
    """Of members, messages under way and messages kept: sum of weights, and of models by weight."""
    members = [(weight(peers, rank), peers.model(rank)) for rank in peers.members]
    kept = [message for policy in peers.members.values() for message in getattr(policy, "_came", ())]
    coming = [(message.weight, message.values) for message in (*peers.wire, *kept) if message.kind == "model"]
    return sum(w for w, _ in members + coming), sum(w * x.astype(np.float64) for w, x in members + coming)


# AllReduce
def test_allreduce_of_three_adds_up_round_the_ring():
    gradients = {0: [1, 2, 3], 1: [10, 20, 30], 2: [100, 200, 300]}
    peers = Peers(
        "allreduce", {rank: [0, 0, 0] for rank in gradients}, gradient=lambda rank, x: np.float32(gradients[rank])
    )
    first = [(message.sender, message.to, message.hop, message.values.copy()) for message in hop_by_hop(peers, 4)]

    assert [(sender, to, hop, values.tolist()) for sender, to, hop, values in first] == [
        (0, 1, 0, [1]),
        (1, 2, 0, [20]),
        (2, 0, 0, [300]),
        (1, 2, 1, [11]),
        (2, 0, 1, [220]),
        (0, 1, 1, [303]),
        (2, 0, 2, [111]),
        (0, 1, 2, [222]),
        (1, 2, 2, [333]),
        (0, 1, 3, [111]),
        (1, 2, 3, [222]),
        (2, 0, 3, [333]),
    ]
    assert peers.models() == pytest.approx(np.tile([-18.5, -37, -55.5], (3, 1)))


def hop_by_hop(peers, hops):
    """All steps and all messages, in the order in which they were sent; yields each message before it is delivered."""
    for _ in range(2):
        for rank in sorted(peers.members):
            peers.go_on(rank)
    while peers.wire:
        yield peers.wire[0]
        peers.deliver()
    assert len(peers.sent) == hops * len(peers.members)


@given(st.integers(1, 9), st.integers(0, 12), st.integers(0, 999))
def test_allreduce_gives_everybody_the_mean_and_sends_each_chunk_once_each_hop(count, length, seed):
    gradients = models(count, seed, length)
    peers = Peers(
        "allreduce",
        dict.fromkeys(gradients, np.zeros(length)),
        seed=seed,
        lr=1.0,
        gradient=lambda rank, x: gradients[rank].astype(np.float32),
    )

    peers.run(1)

    assert peers.models() == pytest.approx(np.tile(-np.mean(list(gradients.values()), axis=0), (count, 1)), abs=1e-5)
    assert len(set(map(bytes, map(peers.model, peers.members)))) == 1
    assert len({(message.sender, message.hop) for message in peers.sent}) == len(peers.sent) == 2 * (count - 1) * count
    for hop in range(2 * (count - 1)):
        assert sum(len(message.values) for message in peers.sent if message.hop == hop) == length


@pytest.mark.parametrize(("without", "model"), [({1}, -2.0), ({0, 1, 2}, 0.0)])
def test_a_gradient_that_cannot_be_used_weighs_nothing_in_the_mean(without, model):
    gradient = lambda rank, x: None if rank in without else np.float32([rank + 1])  # noqa: E731
    peers = Peers("allreduce", {rank: [0.0] for rank in range(3)}, lr=1.0, gradient=gradient)

    peers.run(1)

    assert peers.models() == pytest.approx(np.full((3, 1), model))


def test_a_departure_starts_the_ring_anew_among_those_who_stay():
    peers = Peers(
        "allreduce", {rank: [0.0] for rank in range(3)}, lr=1.0, gradient=lambda rank, x: np.float32([10**rank])
    )
    for rank in (0, 0, 1, 1):
        peers.go_on(rank)
    assert peers.members[0].waits_for() == {2}

    peers.leave(2)
    peers.run(1)

    assert peers.models() == pytest.approx(np.full((2, 1), -5.5))


@FEW
@given(st.integers(2, 7), st.integers(0, 10_000), st.integers(0, 200), st.sampled_from(["none", "bf16", "fp16"]))
def test_all_who_stay_take_the_same_allreduce_steps_whenever_one_leaves_and_one_joins(count, seed, events, codec):
    peers = Peers(
        "allreduce",
        starts("allreduce", count, seed),
        seed=seed,
        optimizer=Sgd(lr=0.1),
        codec=codec,
        gradient=lambda rank, x: x / 3 - np.float32(rank / 7),
    )
    random = Random(seed)

    peers.run(9, events=events)
    peers.leave(random.choice(sorted(peers.members)))
    peers.run(9, events=events // 5)
    peers.join(99, random.choice(sorted(peers.members)))
    peers.run(12)

    assert len(set(map(bytes, map(peers.model, peers.members)))) == 1


@pytest.mark.parametrize(
    ("sender", "hop", "length"), [(7, 0, 2), (4, 4, 2), (4, 1, 3)], ids=["sender", "hop", "length"]
)
def test_allreduce_takes_only_its_ring_s_parts(sender, hop, length):
    peers = Peers("allreduce", dict.fromkeys((1, 4, 7), np.ones(6)), gradient=lambda rank, x: x)
    for _ in range(2):
        peers.go_on(7)

    with pytest.raises(BadPush, match="expects 2 of rank 4, as hops 0 to 3"):
        peers.members[7].receive(Message("part", sender, 7, 1, 1, np.ones(length, np.float32), hop=hop))


def test_allreduce_has_room_for_parts_of_its_own_round_alone():
    peers = Peers("allreduce", dict.fromkeys(range(3), np.ones(6)), gradient=lambda rank, x: x)
    policy = peers.members[0]
    rooms = [[policy.room("part", 1, round, hop) is not None for hop in range(6)] for round in (0, 1, 2)]
    assert not any(map(any, rooms))  # before it takes part
    peers.go_on(0)

    rooms = [[policy.room("part", 1, round, hop) is not None for hop in range(6)] for round in (0, 1, 2)]

    assert rooms == [[False] * 6, [True, True, True, True, False, False], [False] * 6]


def test_a_vector_of_which_anybody_holds_a_view_is_not_used_again():
    buffers, like = Buffers(), np.zeros(4, np.float32)
    first = buffers.take(like)
    view = buffers.lend(first[1:3])
    buffers.give_back(first, like[:2])

    assert buffers.take(like) is not first
    del view
    assert buffers.take(like) is first


# D-PSGD
@pytest.mark.parametrize(
    ("name", "models", "gradient", "expected"),
    [
        # mixed by thirds: 4, 3, 6, 5
        ("dpsgd", [0, 3, 6, 9], lambda rank, x: np.float32([rank]), [4.0, 2.5, 5.0, 3.5]),
        ("dpsgd", [0, 4], lambda rank, x: x, [2.0, 0.0]),  # 2 - .5 * 0, 2 - .5 * 4
        ("sgp", [0, 4], lambda rank, x: np.float32([2.0 * rank]), [1.5, 1.5]),
    ],
    ids=["steps from the mixture", "gradient at its own model", "sgp steps before it sends"],
)
def test_a_step_on_a_ring_is_taken_where_the_paper_says(name, models, gradient, expected):
    peers = Peers(name, {rank: [model] for rank, model in enumerate(models)}, "ring", gradient=gradient, lr=0.5)

    peers.in_step()

    assert peers.models().ravel() == pytest.approx(expected)


def test_dpsgd_waits_for_its_neighbours_of_the_same_round_only():
    peers = Peers("dpsgd", {rank: [float(rank)] for rank in range(5)}, "ring")
    for rank in (0, 0, 1, 1):
        peers.go_on(rank)

    assert peers.members[0].waits_for() == {1, 4}
    while peers.wire:
        peers.deliver()

    assert peers.members[0].waits_for() == {4}
    assert peers.members[1].waits_for() == {2}


# AD-PSGD
def pair():
    """Rank 0 is passive, rank 1 active, as in 3.9."""
    return Peers("adpsgd", {0: [3.0, 1.0], 1: [1.0, 3.0]}, lr=0.5, gradient=lambda rank, x: np.float32([1.0, 1.0]))


def test_adpsgd_averages_active_and_passive_and_then_steps_on_the_live_model():
    """3.9: x_A = [1, 3], x_P = [3, 1] -> both [2, 2]; g_A = [1, 1], lr .5 -> A [1.5, 1.5]; mean [1.75, 1.75]."""
    peers = pair()

    peers.go_on(1)
    peers.deliver()
    assert peers.model(0).tolist() == [2.0, 2.0]
    peers.deliver()
    assert peers.model(1).tolist() == [2.0, 2.0]
    peers.go_on(1)

    assert peers.model(1).tolist() == [1.5, 1.5]
    assert peers.models().mean(axis=0).tolist() == [1.75, 1.75]


def test_an_answer_keeps_what_both_have_done_meanwhile():
    peers = pair()
    peers.go_on(1)
    peers.go_on(0)
    peers.go_on(0)
    peers.go_on(1)

    assert peers.members[1].waits_for() == {0}
    peers.deliver()
    peers.deliver()

    assert peers.members[1].waits_for() == set()
    assert peers.models().sum(axis=0).tolist() == [3.0, 3.0]  # 4 - 2 * .5


def test_a_repeated_ask_gets_the_same_answer_and_moves_the_passive_once():
    peers = pair()
    peers.go_on(1)
    ask = peers.wire[0]

    first = peers.members[0].receive(ask)
    again = peers.members[0].receive(ask)

    assert first[0] is again[0]
    assert peers.model(0).tolist() == [2.0, 2.0]
    for answer in first + again:
        peers.members[1].receive(answer)
    assert peers.model(1).tolist() == [2.0, 2.0]


def test_an_ask_older_than_the_last_one_answered_is_passed_over():
    peers = pair()
    peers.in_step(2)
    old = next(message for message in peers.sent if message.kind == "ask")

    assert peers.members[0].receive(old) == []


def test_an_unknown_answer_is_skipped_and_still_good_when_it_comes_late():
    peers = pair()
    peers.go_on(1)
    ask = peers.wire[0]
    peers.go_on(1)
    peers.deliver()

    peers.members[1].gave_up(ask)
    assert peers.members[1].waits_for() == set()
    assert peers.model(1).tolist() == [0.5, 2.5]
    peers.deliver()

    assert peers.model(1).tolist() == [1.5, 1.5]


def test_an_active_whose_passive_is_gone_goes_on_and_is_coloured_anew():
    peers = Peers("adpsgd", {0: [0.0], 1: [1.0], 2: [2.0]})
    for _ in range(2):
        peers.go_on(1)
    (to,) = peers.members[1].waits_for()

    peers.leave(to)
    peers.tell_all()

    assert peers.members[1].waits_for() == set()
    peers.wire.clear()
    peers.in_step(1)
    assert peers.models() == pytest.approx(np.full((2, 1), peers.models().mean()))


def test_passives_never_ask():
    peers = Peers("adpsgd", models(7, 1), "ring")

    peers.run(20)

    active, _ = Ring().two_colours(peers.group.members)
    assert {message.sender for message in peers.sent if message.kind == "ask"} == active


# SGP and GoSGD
def test_sgp_sends_half_of_its_model_to_the_member_2_to_the_i_hops_on():
    """Four members, x = 0, 4, 8, 12, no gradients: hop 1, then hop 2, then all have the mean."""
    peers = Peers("sgp", {rank: [4.0 * rank] for rank in range(4)})

    peers.in_step()
    assert peers.models().ravel() == pytest.approx([6, 2, 6, 10])
    peers.in_step()

    assert peers.models().ravel() == pytest.approx([6, 6, 6, 6])
    second = [(message.sender, message.to) for message in peers.sent if message.round == 2]
    assert second == [(0, 2), (1, 3), (2, 0), (3, 1)]


def test_sgp_divides_a_step_by_its_weight():
    """z = x / w: x <- x - lr * g moves z by lr * g / w."""
    peers = Peers("sgp", {0: [1.0]}, gradient=lambda rank, x: np.float32([1.0]), lr=0.25)
    peers.members[0]._weight = 0.5

    peers.in_step()

    assert weight(peers, 0) == 0.5
    assert peers.model(0).tolist() == [0.5]


def test_gosgd_mixes_by_the_weights_that_models_carry():
    """x = 0, 8; rank 0 sends (0, 1/2): x_1 <- (1 * 8 + 1/2 * 0) / 1.5 = 16/3, w_1 = 3/2. Rank 1 sends (16/3, 3/4):
    x_0 <- (1/2 * 0 + 3/4 * 16/3) / 1.25 = 3.2, w_0 = 5/4; 5/4 * 3.2 + 3/4 * 16/3 = 8 as before."""
    peers = Peers("gosgd", {0: [0.0], 1: [8.0]}, probability=1)

    for rank in (0, 1):
        peers.go_on(rank)
        peers.go_on(rank)
        peers.deliver()

    assert peers.models().ravel() == pytest.approx([3.2, 16 / 3])
    assert [weight(peers, rank) for rank in (0, 1)] == [1.25, 0.75]
    assert mass(peers)[1] == pytest.approx([8.0])


def test_gosgd_sends_as_often_as_it_is_told():
    peers = Peers("gosgd", models(4, 0), probability=0.25)

    peers.run(1000)

    assert len(peers.sent) == pytest.approx(1000, rel=0.1)


@pytest.mark.parametrize(("name", "options"), PUSH_SUM)
def test_a_joiner_begins_with_a_weight_of_one_and_its_host_keeps_its_own(name, options):
    peers = Peers(name, {0: [2.0], 1: [4.0]}, **options)

    peers.join(5, through=1)

    assert (weight(peers, 1), weight(peers, 5), peers.model(5).tolist()) == (1.0, 1.0, [4.0])


# Broadcast
GRADIENTS = [[0.3, -0.6, 0.1, 1.2], [0.3, 0.2, 0.1, -0.1], [0, -0.4, 0.35, 0.1]]


@pytest.mark.parametrize(
    ("quantised", "sent", "residual"),
    [
        (False, [{1: -0.6, 3: 1.2}, {0: 0.6}, {2: 0.55}], [0, -0.2, 0, 0]),
        (True, [{1: -0.5, 3: 0.5}, {0: 0.5, 3: 0.5}, {2: 0.5}], [0.1, -0.3, 0.05, 0.2]),
    ],
)
def test_broadcast_sends_what_crosses_the_threshold(quantised, sent, residual):
    """A worked example, tau .5."""
    steps, start = iter(GRADIENTS), dict.fromkeys((0, 1, 2), [0.0] * 4)
    gradient = lambda rank, x: np.float32(next(steps))  # noqa: E731
    peers = Peers("broadcast", start, tau=0.5, quantised=quantised, lr=1.0, gradient=gradient)

    for _ in range(6):
        peers.go_on(0)
    while peers.wire:
        peers.deliver()

    to_first = [message for message in peers.sent if message.to == 1]
    seen = [dict(zip(message.places.tolist(), message.values.tolist(), strict=True)) for message in to_first]
    assert seen == [pytest.approx(part) for part in sent]
    assert len(peers.sent) == 2 * len(to_first)
    assert peers.members[0]._residual == pytest.approx(np.float32(residual), abs=1e-6)
    assert peers.models()[0] == pytest.approx(np.array(residual) - np.sum(GRADIENTS, axis=0), abs=1e-6)
    assert peers.models()[1] == pytest.approx(peers.models()[0])


def test_the_sender_of_actors_takes_its_whole_gradient_and_others_its_update_at_its_rate():
    gradient = lambda rank, x: np.float32([0.3, 0.6])  # noqa: E731
    peers = Peers("broadcast", {0: [0, 0], 1: [0, 0]}, tau=0.5, own="gradient", lr=1.0, gradient=gradient)
    peers.members[1].take_rate(0.125)

    peers.go_on(0)
    peers.go_on(0)
    peers.deliver()

    assert peers.models() == pytest.approx(np.array([[-0.3, -0.6], [0, -0.6]]))


def test_nothing_is_sent_where_nothing_crosses_the_threshold():
    peers = Peers("broadcast", {rank: [0.0] for rank in range(3)}, tau=0.5, gradient=lambda rank, x: np.float32([0.2]))

    peers.in_step(2)

    assert peers.sent == []
    peers.in_step(1)
    assert len(peers.sent) == 6


@given(st.integers(0, 999), st.floats(0.01, 2), st.booleans())
def test_what_was_sent_and_the_residual_are_all_gradients(seed, tau, quantised):
    gradients = np.random.default_rng(seed).normal(size=(20, 5)).astype(np.float32)
    steps = iter(gradients)
    start, gradient = dict.fromkeys((0, 1), [0.0] * 5), lambda rank, x: next(steps)
    peers = Peers("broadcast", start, tau=tau, quantised=quantised, lr=1.0, gradient=gradient)

    for _ in range(40):
        peers.go_on(0)

    assert peers.members[0]._residual - peers.model(0) == pytest.approx(gradients.sum(axis=0), abs=1e-4)


# what mixing keeps
@pytest.mark.parametrize("name", ["dpsgd", "adpsgd"])
@FEW
@given(**schedules, steps=st.integers(1, 12))
def test_mixing_keeps_the_mean_of_all_models_under_any_schedule_and_between_departures(
    name, count, seed, topology, steps
):
    peers = Peers(name, models(count, seed), topology, seed=seed)
    random, until = Random(seed), 0
    while True:
        until += steps
        before = peers.models().mean(axis=0)
        peers.run(until)
        assert peers.models().mean(axis=0) == pytest.approx(before, abs=1e-5)
        if len(peers.members) == 1:
            break
        peers.leave(random.choice(sorted(peers.members)))
        peers.tell_all()


@pytest.mark.parametrize(("name", "options"), PUSH_SUM)
@FEW
@given(**schedules, steps=st.integers(1, 12))
def test_push_sum_keeps_all_weight_at_every_moment_and_a_joiner_brings_one_more(
    name, options, count, seed, topology, steps
):
    peers = Peers(name, models(count, seed), topology, seed=seed, **options)
    total, by_weight = mass(peers)
    assert total == count

    for _ in range(10):
        peers.run(steps, events=3)
        assert mass(peers)[0] == pytest.approx(total)
        assert mass(peers)[1] == pytest.approx(by_weight, abs=1e-4)
    brought = peers.join(2, through=1)  # the view that names it may have let member 1 mix what had come
    peers.run(steps + 3)

    assert mass(peers)[0] == pytest.approx(total + 1)
    assert mass(peers)[1] == pytest.approx(by_weight + brought, abs=1e-4)


@pytest.mark.parametrize(("name", "options"), MIXING)
@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_all_come_to_one_model_where_nobody_has_a_gradient(name, options, topology):
    peers = Peers(name, models(7, 3), topology, seed=3, **options)

    peers.run(150)

    assert np.ptp(peers.models(), axis=0) == pytest.approx(np.zeros(3), abs=1e-3)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", some(range(3), [0]))
def test_every_policy_finds_the_minimum_of_the_mean_of_different_losses(name, seed):
    """Loss of rank r: (x - m_r)^2 / 2, one minimum each; that of their mean is the mean of the minima."""
    minima = models(5, seed)
    options = {"gosgd": {"probability": 1}, "broadcast": {"tau": 0.02}}.get(name, {})
    peers = Peers(
        name,
        dict.fromkeys(minima, np.zeros(3)),
        seed=seed,
        lr=0.05 if name == "broadcast" else 0.2,
        gradient=lambda rank, x: (x - minima[rank]).astype(np.float32),
        **options,
    )

    for until in range(40, 280, 40):
        peers.run(until)
        for own in peers.owns.values():
            own.lr *= 0.6

    assert peers.models().mean(axis=0) == pytest.approx(np.mean(list(minima.values()), axis=0), abs=0.1)
    assert np.ptp(peers.models(), axis=0) == pytest.approx(np.zeros(3), abs=0.2)


# one contract for every peer policy in the folder
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_needs_no_options_and_says_what_each_is(name):
    policy = build_peer_policy(Options(name=name))

    assert all(option.description for option in type(policy).model_fields.values())
    assert type(policy).__doc__
    assert "[" in type(policy).__doc__, "names its paper"


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_trains_a_lone_member_as_sgd_does(name):
    options = {"broadcast": {"tau": 1e-6}}.get(name, {})
    peers = Peers(name, {4: [1.0, -2.0]}, gradient=lambda rank, x: x, lr=0.5, **options)

    peers.run(3)

    assert peers.sent == []
    assert peers.model(4) == pytest.approx(np.float32([0.125, -0.25]))


@pytest.mark.parametrize("name", POLICIES)
@FEW
@given(**schedules, events=st.lists(st.integers(0, 60), min_size=1, max_size=5))
def test_every_policy_goes_on_whoever_leaves_or_joins_in_mid_step(name, count, seed, topology, events):
    random = Random(seed)
    peers = Peers(
        name,
        starts(name, count, seed),
        topology,
        seed=seed,
        optimizer=Sgd(lr=0.1),
        gradient=lambda rank, x: None if random.random() < 0.1 else x - np.float32(rank),
    )

    peers.run_with_changes(events, random)
    peers.run(max(peers.rounds.values()) + 3)

    assert len(set(peers.rounds.values())) == 1
    assert np.isfinite(peers.models()).all()


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_has_the_same_bits_when_it_is_run_again_and_one_with_rounds_under_any_schedule(name):
    has_rounds, results = name not in ("adpsgd", "gosgd", "broadcast"), set()
    for seed in range(5) if has_rounds else (2, 2):
        peers = Peers(name, starts(name, 5, 2), seed=seed, gradient=lambda rank, x: x - np.float32(rank))
        peers.run(8)
        results.add(peers.models().tobytes())

    assert len(results) == 1


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_passes_over_an_old_view_and_refuses_one_without_itself(name):
    peers = Peers(name, starts(name, 3, 0))
    policy = peers.members[1]

    assert policy.regroup(Group(1, (1,))) == []
    with pytest.raises(ConfigError, match=r"Rank 1 is not in view 2, whose members are \(4, 7\)"):
        policy.regroup(Group(2, (4, 7)))


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "broadcast"])
def test_every_policy_refuses_a_message_of_another_length(name):
    options = {"gosgd": {"probability": 1}}.get(name, {})
    peers = Peers(name, starts(name, 2, 0, length=6), **options)
    short = Message(
        {"allreduce": "part", "adpsgd": "ask"}.get(name, "model"), 4, 1, 1, 1, np.ones(1, np.float32), hop=0
    )

    def deliver():
        peers.members[1].start()
        peers.members[1].step(np.zeros(6, np.float32))
        peers.members[1].receive(short)

    with pytest.raises(BadPush, match=r"expects 3 of rank 4|pass equal lengths"):
        deliver()


@pytest.mark.parametrize("ranks", [(), (2, 1), (1, 1)])
def test_a_group_needs_rising_ranks(ranks):
    with pytest.raises(ConfigError, match="expected at least one rank, in rising order"):
        Group(1, ranks)


def test_an_unknown_policy_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'adpsgd'"):
        build_peer_policy(Options(name="adpsg"))


def test_a_policy_needs_what_it_is_begun_with():
    policy: PeerPolicy = build_peer_policy(Options(name="dpsgd"))

    with pytest.raises(ConfigError, match="Rank 3 is not in view 1"):
        policy.begin(3, Group(1, (0, 1)), Complete(), Own(np.zeros(1, np.float32), plain_sgd(0.1), 0.1), Random(0))


def settings(policy: str = "adpsgd", servers: int = 0, **more: Any) -> dict[str, Any]:
    return {"servers": servers, "workers": 4, "policy": {"name": policy}, **more}


@pytest.mark.parametrize(
    ("policy", "topology"), [("adpsgd", "ring"), ("sgp", "exponential"), ("gosgd", "complete"), ("dpsgd", "ring")]
)
def test_a_policy_has_a_usual_topology_and_another_may_be_set(policy: str, topology: str) -> None:
    assert type(topology_of(load(None, settings(policy)))).__name__.lower() == topology
    assert type(topology_of(load(None, settings(policy, topology={"name": "torus"})))).__name__ == "Torus"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (settings(topology={"name": "rng"}), "There is no 'rng' among the topologies.*'ring'"),
        (settings(topology={"name": "tree", "children": 0}), "topology.children: got 0"),
        (settings(topology={"name": "matrix", "rows": [[0.5, 0.5], [0.5, 0.5]]}), "ranks 0 to 1, but rank 3"),
        *(
            (settings(name) | {"policy": {"name": name, key: value}}, rf"policy\.{key}: {said}")
            for name, key, value, said in (
                ("gosgd", "probability", 2, "got 2"),
                ("gosgd", "probability", 0, "got 0"),
                ("broadcast", "tau", 0, "got 0"),
                ("broadcast", "tau", float("inf"), "got inf"),
                ("broadcast", "own", "none", "got 'none'"),
                ("sgp", "late", 1, "there is no such setting"),
            )
        ),
        (settings("allreduce", codec={"push": "int8"}), "codec.push is int8.*can't travel so. Use bf16, fp16 or none"),
        (settings("broadcast", codec={"push": "bf16"}), "codec.push is bf16.*can't travel so. Use none"),
        (settings(overlap=True), "overlap: true does not go with policy adpsgd"),
    ],
)
def test_what_does_not_go_together_is_told(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        load(None, wrong)


def test_a_peer_policy_has_no_short_form_with_a_value() -> None:
    assert from_shorthand("adpsgd") == {"name": "adpsgd"}
    with pytest.raises(ConfigError, match="adpsgd takes no value after ':'"):
        from_shorthand("adpsgd:3")


def test_the_policy_of_a_run_without_servers_stays() -> None:
    run = Run(load(None, settings(start_when=1)))
    run.ready(0.0)
    run.seat("worker-0", run.join("worker-0", False, 100, 10, "", 0.0), 0, Clocks, 0.0)
    with pytest.raises(ConfigError, match="keeps its policy"):
        run.switch(Options(name="dpsgd"), Clocks)
