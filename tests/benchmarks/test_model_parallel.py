"""The benchmark of layers in different processes: its arithmetic, its schedule, its bounds."""

import multiprocessing
import threading

import numpy as np
import pytest

from benchmarks.contender import WrongResult
from benchmarks.model_parallel import BATCHES, ORACLE, Layers, Net, Stage, bounds, check, loss_slopes

NET = Net((5, 7, 6, 3), 4)
LARGE = Net((5, 1024, 1024, 3), 2048)
"""Its messages fill a pipe several times."""


def trained(stages: int, parts: int, net: Net = NET) -> tuple[np.ndarray, list[int]]:
    """The model after a few steps, and the bytes that each stage has sent."""
    pipes = [end for _ in range(stages - 1) for end in multiprocessing.Pipe()]
    ends = [None, *pipes, None]
    row = [Stage(net, number, stages, parts, *ends[2 * number : 2 * number + 2]) for number in range(stages)]

    def work(stage: Stage) -> None:
        for inputs, labels in net.batches():
            stage.iterate(inputs, labels)

    threads = [threading.Thread(target=work, args=(stage,)) for stage in row]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a stage waits forever"
    return np.concatenate([stage.layers.weights for stage in row]), [stage.sent for stage in row]


def test_gradients_are_the_slopes_of_the_loss() -> None:
    inputs, labels = NET.batches()[0]

    def loss(weights: np.ndarray) -> float:
        outputs = Layers(NET.widths, weights, True).forward(inputs).astype(np.float64)
        odds = np.exp(outputs)
        return float(-np.log(odds[np.arange(NET.batch), labels] / odds.sum(axis=1)).mean())

    layers = Layers(NET.widths, NET.first_weights(), True)
    layers.backward(loss_slopes(layers.forward(inputs), labels, NET.batch), False)
    for place in range(0, NET.elements, 7):
        moved = np.zeros(NET.elements, np.float32)
        moved[place] = 1e-2
        slope = (loss(layers.weights + moved) - loss(layers.weights - moved)) / 2e-2
        assert layers.gradient[place] == pytest.approx(slope, abs=1e-3)


@pytest.mark.parametrize("parts", [1, 2, NET.batch])
def test_stages_end_with_the_model_of_one_process(parts: int) -> None:
    alone, nothing = trained(1, 1)
    apart, sent = trained(2, parts)
    width = NET.widths[NET.cuts()[1]]
    assert not np.array_equal(alone, NET.first_weights())
    assert np.allclose(apart, alone, atol=1e-6)
    assert (nothing, sent) == ([0], [4 * BATCHES * NET.batch * width] * 2)


@pytest.mark.nightly  # processes of torch
def test_stages_with_large_messages_do_not_wait_for_each_other_to_receive() -> None:
    _, sent = trained(2, 4, LARGE)
    assert sent == [4 * BATCHES * LARGE.batch * 1024] * 2


def test_layers_are_dealt_out_as_equally_as_they_can_be() -> None:
    assert Net((784, 1024, 1024, 10), 64).cuts() == (0, 1, 3)
    assert Net((64, 128, 10), 32).cuts() == (0, 1, 2)


def test_the_bounds_of_the_example_are_the_designs() -> None:
    found = bounds(ORACLE, alignment=1)
    assert found == {"layerwise": pytest.approx(107 / 90), "memorywise": pytest.approx(107 / 27)}


def test_another_model_is_refused() -> None:
    with pytest.raises(WrongResult, match="'here' ends 1 away"):
        check("here", np.ones(3, np.float32), np.array([1, 2, 1], np.float32))
