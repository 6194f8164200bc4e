"""Deep gradient compression: momentum before the selection, and a share that falls to its own."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.codecs.codec import Codec, build_codec
from paceline.core.codecs.sparse_codec import SparseCodec
from paceline.core.errors import ConfigError
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.settings.config import Config, Options
from paceline.settings.load_settings import load
from tests.core.codecs.test_error_feedback import owing, through

PLAIN = {"name": "sgd", "lr": 0.1, "momentum": 0, "weight_decay": 0}
DGC = {"push": {"name": "topk", "share": 0.001}, "momentum": 0.9}
SPARSE = [
    build_codec(options, "codec")
    for options in (
        Options(name="topk", share=0.3),
        Options(name="threshold", tau=0.5),
        Options(name="threshold", share=0.3),
        Options(name="threshold", tau=0.5, form="quantised"),
        Options(name="randomk", share=0.3),
    )
]


def topk(share: float) -> Codec:
    return build_codec(Options(name="topk", share=share), "codec")


def test_the_worked_example_of_momentum_before_the_selection() -> None:
    """One of four values is sent at a momentum of .5: velocity u, residual r, what is sent goes to 0 in both."""
    owed, codec = owing(4, momentum=0.5), topk(0.25)
    steps = [  # given; sent; r and u after it
        ([4, 2, 1, 0], [4, 0, 0, 0], [0, 2, 1, 0], [0, 2, 1, 0]),
        ([1, 2, 1, 0], [0, 5, 0, 0], [1, 0, 2.5, 0], [1, 0, 1.5, 0]),
        ([0, 0, 0, 0], [0, 0, 3.25, 0], [1.5, 0, 0, 0], [0.5, 0, 0, 0]),
    ]
    for clock, (gradient, message, residual, velocity) in enumerate(steps, 1):
        out, _ = through(owed.feedback(codec), np.array(gradient, np.float32))
        owed.sent(clock)
        assert out.tolist() == message
        assert owed.residual.tolist() == residual
        assert owed.velocity.tolist() == velocity


def test_what_was_never_sent_is_what_the_servers_momentum_would_have_done() -> None:
    """[Lin et al. 2018, 3.2]: that is the correction."""
    random, owed = np.random.default_rng(0), owing(5, momentum=0.9)
    sgd, weights = Sgd(lr=1.0, momentum=0.9, weight_decay=0.0), np.zeros(5, np.float32)
    slots, nothing = sgd.new_slots(5), build_codec(Options(name="threshold", tau=1e20), "codec")
    for clock in range(1, 8):
        gradient = random.standard_normal(5).astype(np.float32)
        sgd.step(weights, weights, gradient, 1.0, 1.0, slots, clock)
        through(owed.feedback(nothing), gradient)
        owed.sent(clock)
    np.testing.assert_allclose(owed.residual, -weights, rtol=1e-5)


@pytest.mark.parametrize("codec", SPARSE, ids=repr)
@given(
    steps=st.integers(1, 20).flatmap(
        lambda n: st.lists(st.lists(st.floats(-8, 8, width=16), min_size=n, max_size=n), min_size=1, max_size=8)
    ),
    dropped=st.lists(st.booleans(), min_size=8, max_size=8),
    part_bytes=st.integers(60, 300),
)
def test_velocity_and_residual_follow_what_was_sent_and_what_was_dropped(
    codec: SparseCodec, steps: list[list[float]], dropped: list[bool], part_bytes: int
) -> None:
    """Against algorithm 4 written down in float64, where a dropped push is one that selected nothing."""
    owed, momentum = owing(len(steps[0]), momentum=0.75), 0.75
    velocity, residual = np.zeros(len(steps[0])), np.zeros(len(steps[0]))
    for clock, (step, is_dropped) in enumerate(zip(steps, dropped, strict=False), 1):
        gradient = np.array(step, np.float32)
        out, parts = through(owed.feedback(codec), gradient, part_bytes)
        owed.sent(clock)
        velocity = momentum * velocity + gradient
        residual = residual + velocity
        if is_dropped:
            owed.take_back(gradient)
        else:
            residual = residual - out
            for offset, data in parts:
                velocity[offset : offset + codec.elements_in(data)][codec.places_in(data, codec.elements_in(data))] = 0
        np.testing.assert_allclose(owed.residual, residual, atol=1e-3)
        np.testing.assert_allclose(owed.velocity, velocity, atol=1e-4)


def test_the_share_falls_to_its_own_in_equal_ratios() -> None:
    codec = Config(codec=DGC).codec
    shares = [codec.push_codec_in(epoch) for epoch in range(6)]
    assert all(isinstance(one, SparseCodec) for one in shares)
    found = [one.share for one in shares if isinstance(one, SparseCodec)]
    assert found == pytest.approx(
        [0.25, 0.0629, 0.0158, 0.00398, 0.001, 0.001], rel=1e-2
    )  # the paper's, but for digits
    assert [round(100 * (1 - share), 1) for share in found] == [75.0, 93.7, 98.4, 99.6, 99.9, 99.9]


@pytest.mark.parametrize(
    ("codec", "warmup"),
    [
        (DGC, 4),
        (DGC | {"warmup_epochs": 0}, 0),
        (DGC | {"warmup_epochs": 2.5}, 2.5),
        ({"push": "topk"}, 0),
        ({"push": "topk", "warmup_epochs": 3}, 3),
        ({"push": {"name": "topk", "share": 0.5}, "momentum": 0.9}, 0),
        ({"push": {"name": "threshold", "tau": 1}, "momentum": 0.9}, 0),
        ({"push": "randomk", "momentum": 0.9}, 4),
    ],
)
def test_only_momentum_or_a_wish_brings_a_warm_up(codec: dict[str, Any], warmup: float) -> None:
    found = load(None, {"codec": codec, "optimizer": PLAIN}).codec
    assert found.warmup == warmup
    assert (found.push_codec_in(0) == found.push_codec) == (warmup == 0)
    assert found.push_codec_in(int(np.ceil(warmup))) == found.push_codec


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (
            {"optimizer": PLAIN | {"momentum": 0.9}, "schedule": {"lr_scale": "none"}},
            "the workers keep .* optimizer.momentum 0.9",
        ),
        ({"codec": {"momentum": 0.9}}, "codec.push is none, with error feedback off. It corrects"),
        ({"codec": {"push": "int8", "momentum": 0.9}}, "codec.push is int8, with error feedback on"),
        ({"codec": DGC | {"momentum": 1.0}}, "codec.momentum: got 1.0"),
        ({"codec": {"push": {"name": "topk", "share": 0.4}, "warmup_epochs": 2}}, "share, and one below 0.25"),
        ({"codec": {"push": {"name": "threshold", "tau": 1}, "warmup_epochs": 2}}, "threshold or topk with default"),
    ],
)
def test_what_does_not_go_with_momentum_or_a_warm_up_is_refused(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        load(None, {"policy": {"name": "bsp"}, "codec": DGC, "optimizer": PLAIN} | changes)
