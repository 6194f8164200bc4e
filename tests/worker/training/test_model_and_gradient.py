import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from paceline.core.errors import ConfigError, DataError
from paceline.data.dataset import Dataset, Labelled
from paceline.tasks import defaults
from paceline.tasks.task import Task, load_task
from paceline.worker.training import flat_model as flat_module
from paceline.worker.training.device import Precision
from paceline.worker.training.model_and_gradient import Replica, use_threads

FEATURES = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
LABELS = np.arange(10) % 3


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    use_threads(1)
    yield
    use_threads(threads)


def task_of(model: Callable[[], nn.Module], loss: Any = defaults.loss, metrics: Any = defaults.metrics) -> Task:
    dataset = Dataset(train=Labelled(FEATURES, LABELS))
    return Task("small", lambda path: dataset, model, defaults.prepare, loss, metrics, {})


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))


def with_norm() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))


class Tied(nn.Module):
    """Two layers with one weight, and a frozen scale."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4), requires_grad=False)
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x * self.scale))


def test_shapes_follow_the_model():
    replica = Replica(task_of(mlp))

    assert replica.shapes == (("0.weight", (5, 4)), ("0.bias", (5,)), ("2.weight", (3, 5)), ("2.bias", (3,)))
    assert replica.length == 43
    assert replica.local.shape == (43,)
    assert replica.local.dtype == np.float32


def test_tied_parameters_count_once_and_frozen_ones_not_at_all():
    replica = Replica(task_of(Tied))

    step = replica.gradient(FEATURES, LABELS, seed=0, rng=None)

    assert replica.shapes == (("first.weight", (4, 4)),)
    expected = Tied()
    expected.load_state_dict(replica.model.state_dict())
    defaults.loss(expected, torch.from_numpy(FEATURES), torch.from_numpy(LABELS)).backward()
    assert np.allclose(step.gradient, expected.first.weight.grad.reshape(-1), atol=1e-7)


def test_the_same_seed_gives_the_same_weights_and_another_does_not():
    task = task_of(mlp)

    assert np.array_equal(Replica(task, seed=3).local, Replica(task, seed=3).local)
    assert not np.array_equal(Replica(task, seed=3).local, Replica(task, seed=4).local)


@pytest.mark.parametrize("model", [mlp, with_dropout, with_norm])
def test_two_replicas_give_the_same_gradient_bits(model: Callable[[], nn.Module]):
    one, other = Replica(task_of(model), seed=1), Replica(task_of(model), seed=1)
    other.gradient(FEATURES[:3], LABELS[:3], seed=9, rng=None)  # what came before must not matter

    first = one.gradient(FEATURES, LABELS, seed=7, rng=None)
    second = other.gradient(FEATURES, LABELS, seed=7, rng=None)

    assert first.gradient.tobytes() == second.gradient.tobytes()
    assert (first.loss, first.examples) == (second.loss, 10)


def test_resnet_gradients_have_the_same_bits_with_the_same_augmentation():
    task = load_task("cifar10")
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 32, 32)).astype(np.uint8)

    found = [Replica(task, seed=1).gradient(images, LABELS[:4], 5, np.random.default_rng(5)).gradient for _ in range(2)]

    assert found[0].tobytes() == found[1].tobytes()


def test_dropout_follows_the_seed_of_the_step():
    replica = Replica(task_of(with_dropout))

    first = replica.gradient(FEATURES, LABELS, seed=1, rng=None).gradient.copy()
    second = replica.gradient(FEATURES, LABELS, seed=2, rng=None).gradient

    assert not np.array_equal(first, second)


@given(cut=st.integers(1, 9), seed=st.integers(0, 1000))
def test_the_gradient_of_a_batch_is_the_mean_over_its_halves_by_examples(cut: int, seed: int):
    replica = Replica(task_of(mlp), seed=seed)

    whole = replica.gradient(FEATURES, LABELS, 0, None).gradient.copy()
    head = replica.gradient(FEATURES[:cut], LABELS[:cut], 0, None).gradient.copy()
    tail = replica.gradient(FEATURES[cut:], LABELS[cut:], 0, None).gradient.copy()

    assert np.allclose(whole, (cut * head + (10 - cut) * tail) / 10, atol=1e-6)


def test_a_loaded_vector_is_what_the_model_computes_with():
    one, other = Replica(task_of(mlp), seed=1), Replica(task_of(mlp), seed=2)

    other.load(one.local)

    assert np.array_equal(one.local, other.local)
    assert one.score(FEATURES, LABELS) == other.score(FEATURES, LABELS)
    assert torch.equal(one.model[2].bias, other.model[2].bias)


def test_on_the_cpu_local_is_the_memory_of_the_model():
    replica = Replica(task_of(mlp))

    replica.local -= 1.0
    replica.load(replica.local)

    assert replica.model[2].bias.detach().numpy().tobytes() == replica.local[-3:].tobytes()


def test_a_vector_of_another_length_is_refused():
    replica = Replica(task_of(mlp))

    with pytest.raises(ConfigError, match=r"shape \(1,\), but the model of task 'small' has 43 trainable parameters"):
        replica.load(np.zeros(1, np.float32))


def test_unused_parameters_have_gradient_zero():
    def model() -> nn.Module:
        net = nn.Linear(4, 3)
        net.unused = nn.Parameter(torch.ones(2))
        return net

    replica = Replica(task_of(model))
    replica.gradient(FEATURES, LABELS, 0, None)

    step = replica.gradient(FEATURES, LABELS, 0, None)

    names = dict(replica.shapes)
    assert names["unused"] == (2,)
    assert np.count_nonzero(step.gradient) == 15
    start = list(names).index("unused")
    offset = sum(int(np.prod(shape)) for _, shape in replica.shapes[:start])
    assert step.gradient[offset : offset + 2].tolist() == [0, 0]


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_loss_that_clears_gradients_neither_detaches_them_from_the_vector_nor_clears_those_of_other_parts(
    set_to_none: bool,
):
    def clearing(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        model.zero_grad(set_to_none=set_to_none)
        return defaults.loss(model, inputs, labels)

    plain = Replica(task_of(mlp)).gradient(FEATURES, LABELS, 0, None)
    replica = Replica(task_of(mlp, clearing))
    replica.gradient(FEATURES[:2], LABELS[:2], 0, None)
    in_parts = Replica(task_of(mlp, clearing), accumulate=4).gradient(FEATURES, LABELS, 0, None)

    assert np.array_equal(replica.gradient(FEATURES, LABELS, 0, None).gradient, plain.gradient)
    assert np.allclose(in_parts.gradient, plain.gradient, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (nn.ReLU, "'small' has no trainable parameters"),
        (lambda: nn.Linear(4, 3).requires_grad_(False), "'small' has no trainable parameters"),
        (lambda: nn.Linear(4, 3).double(), "'weight' of task 'small' is torch.float64"),
        (lambda: nn.LazyLinear(3), "'weight' of task 'small' is lazy"),
    ],
)
def test_a_model_that_can_not_be_trained_is_refused_by_name(model: Callable[[], nn.Module], told: str):
    with pytest.raises(ConfigError, match=told):
        Replica(task_of(model))


def test_training_moves_both_names_of_a_tied_parameter_and_no_frozen_one():
    replica = Replica(task_of(Tied))
    before = replica.state()

    replica.load(replica.local - replica.gradient(FEATURES, LABELS, seed=0, rng=None).gradient)

    after = replica.state()
    assert torch.equal(after["first.weight"], after["second.weight"])
    assert not torch.equal(after["first.weight"], before["first.weight"])
    assert torch.equal(after["scale"], before["scale"])


@pytest.mark.parametrize("device", ["gpu", "mps", "cuda:99", "meta"])
def test_a_device_that_is_not_there_is_refused(device: str):
    with pytest.raises(ConfigError, match=f"'{device}'"):
        Replica(task_of(mlp), device=device)


def test_a_loss_apart_from_the_model_is_refused():
    replica = Replica(task_of(mlp, lambda model, inputs, labels: inputs.mean()))

    with pytest.raises(ConfigError, match="does not depend on trainable parameters"):
        replica.gradient(FEATURES, LABELS, 0, None)


def test_a_backward_pass_that_fails_is_told():
    def loss(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        outputs = model(inputs).exp()
        outputs.sum().backward()
        return outputs.sum()

    with pytest.raises(ConfigError, match="backward pass of task 'small' failed"):
        Replica(task_of(mlp, loss)).gradient(FEATURES, LABELS, 0, None)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_loss_that_is_not_finite_is_screened(bad: float):
    replica = Replica(task_of(mlp, lambda model, inputs, labels: defaults.loss(model, inputs, labels) * bad))

    assert not replica.gradient(FEATURES, LABELS, 0, None).finite


@given(place=st.integers(0, 42), bad=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_one_element_that_is_not_finite_is_screened_wherever_it_stands(place: int, bad: float):
    replica = Replica(task_of(mlp))
    names = [name for name, shape in replica.shapes for _ in range(int(np.prod(shape)))]
    within = place - names.index(names[place])

    def poison(gradient: Tensor) -> Tensor:
        found = gradient.clone()
        found.view(-1)[within] = bad
        return found

    dict(replica.model.named_parameters())[names[place]].register_hook(poison)
    step = replica.gradient(FEATURES, LABELS, 0, None)

    assert np.isfinite(step.loss)
    assert not np.isfinite(step.gradient[place])
    assert not step.finite


def test_large_finite_gradients_are_not_screened():
    replica = Replica(task_of(mlp, lambda model, inputs, labels: model(inputs).mean() * 1e38))

    assert replica.gradient(FEATURES * 10, LABELS, 0, None).finite


def test_a_score_is_the_mean_over_examples_whatever_the_batch():
    replica = Replica(task_of(mlp))

    one, many = replica.score(FEATURES, LABELS), replica.score(FEATURES, LABELS, batch=3)

    assert set(one) == {"loss", "accuracy"}
    assert many == pytest.approx(one, abs=1e-6)


def test_scoring_leaves_no_trace_in_the_model():
    replica = Replica(task_of(with_norm))
    before = replica.state()

    replica.score(FEATURES, LABELS)

    assert all(torch.equal(before[name], value) for name, value in replica.state().items())


def test_a_score_runs_the_model_once_unless_the_loss_feeds_it_something_else():
    calls: list[int] = []

    class Counting(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(len(x))
            return super().forward(x)

    def on_noise(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(model(inputs + 100), labels)

    plain, noisy = Replica(task_of(lambda: Counting(4, 3))), Replica(task_of(lambda: Counting(4, 3), on_noise))

    expected = plain.score(FEATURES, LABELS)
    assert calls == [10]
    assert noisy.score(FEATURES, LABELS)["accuracy"] == expected["accuracy"]
    assert calls == [10, 10, 10]


def test_the_metrics_of_the_task_are_scored():
    replica = Replica(task_of(mlp, metrics=lambda outputs, labels: {"mean_label": labels.float().mean()}))

    assert replica.score(FEATURES, LABELS, batch=4)["mean_label"] == pytest.approx(LABELS.mean())


def test_scoring_no_examples_is_bad_data():
    with pytest.raises(DataError, match="no examples to score task 'small'"):
        Replica(task_of(mlp)).score(FEATURES[:0], LABELS[:0])


def test_recalibration_gives_the_statistics_of_the_examples():
    replica = Replica(task_of(with_norm))
    for _ in range(3):
        replica.gradient(FEATURES * 50, LABELS, 0, None)

    replica.recalibrate(FEATURES, LABELS)

    norm = replica.model[0]
    assert np.allclose(norm.running_mean, FEATURES.mean(0), atol=1e-6)
    assert np.allclose(norm.running_var, FEATURES.var(0, ddof=1), atol=1e-6)
    assert norm.momentum == 0.1


def test_recalibration_averages_over_batches_and_gives_the_same_bits_again():
    replica = Replica(task_of(lambda: nn.Sequential(nn.Dropout(0.5), *with_norm())))

    replica.recalibrate(FEATURES, LABELS, batch=4)
    first = replica.state()
    torch.manual_seed(99)
    replica.recalibrate(FEATURES, LABELS, batch=4)

    assert all(torch.equal(first[name], value) for name, value in replica.state().items())
    assert first["1.num_batches_tracked"] == 3


def test_recalibration_does_nothing_without_batch_norm():
    replica = Replica(task_of(mlp))
    before = replica.state()

    replica.recalibrate(FEATURES[:0], LABELS[:0])

    assert all(torch.equal(before[name], value) for name, value in replica.state().items())


def test_recalibration_leaves_layers_alone_that_the_model_keeps_in_eval_mode():
    class Frozen(nn.Sequential):
        def train(self, mode: bool = True) -> "Frozen":
            super().train(mode)
            self[0].eval()
            return self

    replica = Replica(task_of(lambda: Frozen(*with_norm())))
    replica.model[0].running_mean.fill_(7)

    replica.recalibrate(FEATURES, LABELS)

    assert replica.model[0].running_mean.tolist() == [7, 7, 7, 7]


def test_the_state_holds_buffers_frozen_and_tied_parameters():
    assert set(Replica(task_of(Tied)).state()) == {"scale", "first.weight", "second.weight"}
    assert "0.running_mean" in Replica(task_of(with_norm)).state()


def test_a_state_that_is_no_tensor_is_refused():
    class Odd(nn.Linear):
        def get_extra_state(self) -> str:
            return "odd"

    with pytest.raises(ConfigError, match="'_extra_state' is not a tensor"):
        Replica(task_of(lambda: Odd(4, 3))).state()


def test_the_number_of_threads_is_set_and_checked():
    use_threads(2)

    assert torch.get_num_threads() == 2
    with pytest.raises(ConfigError, match="The number of threads is 0"):
        use_threads(0)


def test_a_replica_whose_host_vectors_are_copies_computes_the_same(monkeypatch: pytest.MonkeyPatch):
    plain = Replica(task_of(mlp), seed=1)
    monkeypatch.setattr(flat_module, "on_host", torch.clone)  # as on CUDA
    copied = Replica(task_of(mlp), seed=1)

    for _ in range(3):
        expected, found = (replica.gradient(FEATURES, LABELS, 0, None) for replica in (plain, copied))
        assert np.array_equal(found.gradient, expected.gradient)
        plain.load(plain.local - expected.gradient)
        copied.local -= found.gradient
        copied.load(copied.local)

    assert copied.score(FEATURES, LABELS) == plain.score(FEATURES, LABELS)


# gradients in parts
@given(parts=st.integers(1, 12), seed=st.integers(0, 1000))
def test_a_gradient_in_parts_is_that_of_the_whole_mini_batch(parts: int, seed: int):
    whole = Replica(task_of(mlp), seed=seed).gradient(FEATURES, LABELS, 0, None)

    found = Replica(task_of(mlp), seed=seed, accumulate=parts).gradient(FEATURES, LABELS, 0, None)

    assert np.allclose(found.gradient, whole.gradient, atol=1e-6)
    assert found.loss == pytest.approx(whole.loss, abs=1e-6)
    assert found.examples == 10


def test_parts_are_nearly_equal_and_each_is_prepared_by_itself():
    sizes: list[int] = []

    def noting(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        sizes.append(len(inputs))
        return defaults.loss(model, inputs, labels)

    Replica(task_of(mlp, noting), accumulate=3).gradient(FEATURES, LABELS, 0, None)
    Replica(task_of(mlp, noting), accumulate=3).gradient(FEATURES[:2], LABELS[:2], 0, None)

    assert sizes == [3, 3, 4, 1, 1]


def test_one_part_whose_loss_is_not_finite_screens_the_whole_step():
    def odd(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        return defaults.loss(model, inputs, labels) * (np.nan if 0 in labels else 1.0)

    replica = Replica(task_of(mlp, odd), accumulate=10)

    assert not replica.gradient(FEATURES, LABELS, 0, None).finite
    assert replica.gradient(FEATURES[1:3], LABELS[1:3], 0, None).finite


def test_a_gradient_that_is_kept_outlives_the_next_step_and_not_the_one_after():
    replica, other = Replica(task_of(mlp)), Replica(task_of(mlp))
    first = replica.gradient(FEATURES, LABELS, 0, None).gradient
    before = first.copy()

    replica.keep_gradient()
    second = replica.gradient(FEATURES[:3], LABELS[:3], 0, None).gradient

    assert np.array_equal(first, before)
    assert np.array_equal(second, other.gradient(FEATURES[:3], LABELS[:3], 0, None).gradient)
    replica.keep_gradient()
    assert replica.gradient(FEATURES, LABELS, 0, None).gradient is not second
    assert np.array_equal(first, before)
    replica.gradient(FEATURES[:3], LABELS[:3], 0, None)
    assert not np.array_equal(first, before)


def test_gradients_that_an_abandoned_exchange_may_send_are_never_written_again():
    replica, other = Replica(task_of(mlp)), Replica(task_of(mlp))
    first = replica.gradient(FEATURES, LABELS, 0, None).gradient
    replica.keep_gradient()
    second = replica.gradient(FEATURES[:3], LABELS[:3], 0, None).gradient
    before = first.copy(), second.copy()

    replica.leave_gradients()
    third = replica.gradient(FEATURES[:2], LABELS[:2], 0, None).gradient
    replica.keep_gradient()
    replica.gradient(FEATURES[:2], LABELS[:2], 0, None)

    assert np.array_equal(first, before[0])
    assert np.array_equal(second, before[1])
    assert np.array_equal(third, other.gradient(FEATURES[:2], LABELS[:2], 0, None).gradient)


# number formats
@pytest.mark.parametrize(("precision", "off_by"), [("bf16", 0.02), ("fp16", 0.003)])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_gradient_in_half_precision_is_near_that_in_float32(precision: str, off_by: float, accumulate: int):
    exact = Replica(task_of(mlp)).gradient(FEATURES, LABELS, 0, None)
    replica = Replica(task_of(mlp), precision=precision, accumulate=accumulate)

    found = replica.gradient(FEATURES, LABELS, 0, None)

    assert found.finite
    assert found.gradient.dtype == replica.local.dtype == np.float32
    assert not np.array_equal(found.gradient, exact.gradient)
    assert np.abs(found.gradient - exact.gradient).max() < off_by * np.abs(exact.gradient).max()
    assert found.loss == pytest.approx(exact.loss, rel=off_by)


def test_half_precision_is_what_the_model_computes_in():
    seen: list[torch.dtype] = []

    def noting(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        outputs = model(inputs)
        seen.append(outputs.dtype)
        return functional.cross_entropy(outputs, labels)

    for precision in ("float32", "bf16", "fp16"):
        Replica(task_of(mlp, noting), precision=precision).gradient(FEATURES, LABELS, 0, None)

    assert seen == [torch.float32, torch.bfloat16, torch.float16]


def test_scaling_saves_gradients_that_are_too_small_for_fp16():
    def small(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        return model(inputs).float().mean() * 1e-6  # 3e-8 at every output, which fp16 rounds to 0 or 6e-8

    exact = Replica(task_of(mlp, small)).gradient(FEATURES, LABELS, 0, None)
    found = Replica(task_of(mlp, small), precision="fp16").gradient(FEATURES, LABELS, 0, None)

    assert found.finite
    assert np.allclose(found.gradient, exact.gradient, rtol=0.02, atol=1e-10)


def test_a_scale_that_is_too_large_is_halved_until_the_gradient_is_finite():
    def large(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        return model(inputs).mean() * 100.0

    replica = Replica(task_of(mlp, large), precision="fp16")

    found = [replica.gradient(FEATURES, LABELS, 0, None).finite for _ in range(12)]

    assert found[0] is False
    assert found == sorted(found)
    assert found[-1] is True


def test_the_scale_halves_at_once_and_doubles_after_2000_good_steps():
    precision = Precision("fp16", torch.device("cpu"))
    assert precision.scale == 65536

    for _ in range(1999):
        precision.note(True)
    precision.note(False)
    assert precision.scale == 32768

    for _ in range(2000):
        precision.note(True)
    assert precision.scale == 65536
    for _ in range(40):
        precision.note(False)
    assert precision.scale == 1
    for name in ("float32", "bf16"):  # not scaled
        precision = Precision(name, torch.device("cpu"))
        precision.note(False)
        assert precision.scale == 1


def test_a_loss_that_is_not_finite_is_not_the_scales_fault():
    replica = Replica(task_of(mlp, lambda model, inputs, labels: model(inputs).mean() * np.nan), precision="fp16")

    assert not replica.gradient(FEATURES, LABELS, 0, None).finite
    assert replica._precision.scale == 65536


def test_scores_are_computed_in_float32():
    plain, half = Replica(task_of(mlp), seed=1), Replica(task_of(mlp), seed=1, precision="bf16")

    assert half.score(FEATURES, LABELS) == plain.score(FEATURES, LABELS)


# compiled models
@pytest.mark.nightly  # torch compiles with g++ for half a minute of CPU time
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_compiled_model_has_the_same_names_and_gives_the_same_gradient():
    plain, compiled = Replica(task_of(mlp), seed=1), Replica(task_of(mlp), seed=1, compile=True)

    expected, found = (replica.gradient(FEATURES, LABELS, 0, None) for replica in (plain, compiled))

    assert np.allclose(found.gradient, expected.gradient, atol=1e-6)
    assert compiled.shapes == plain.shapes
    assert set(compiled.state()) == set(plain.state())
    compiled.load(compiled.local - found.gradient)
    plain.load(plain.local - expected.gradient)
    after = [replica.gradient(FEATURES, LABELS, 0, None).loss for replica in (plain, compiled)]
    assert after[1] == pytest.approx(after[0], abs=1e-6)
    assert after[0] < expected.loss


def test_without_a_compiler_compile_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CXX", "no-such-compiler")

    with pytest.raises(ConfigError, match=r"needs a C\+\+ compiler, and 'no-such-compiler' is not installed here"):
        Replica(task_of(mlp), compile=True)


# devices
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_starts_from_the_same_weights_and_gives_the_same_gradient():
    host, device = Replica(task_of(mlp), seed=1), Replica(task_of(mlp), device="auto", seed=1)

    expected = host.gradient(FEATURES, LABELS, 0, None)
    found = device.gradient(FEATURES, LABELS, 0, None)
    assert np.array_equal(host.local, device.local)
    assert np.allclose(found.gradient, expected.gradient, atol=1e-5)
    device.load(device.local - found.gradient)
    host.load(host.local - expected.gradient)
    assert device.score(FEATURES, LABELS)["loss"] == pytest.approx(host.score(FEATURES, LABELS)["loss"], abs=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("precision", "off_by"), [("float32", 1e-4), ("bf16", 0.02), ("fp16", 0.003)])
def test_cuda_gives_the_same_gradient_in_parts_in_each_format_and_keeps_it(precision: str, off_by: float):
    exact = Replica(task_of(mlp), seed=1).gradient(FEATURES, LABELS, 0, None).gradient
    device = Replica(task_of(mlp), "auto", 1, precision=precision, accumulate=3)

    found = device.gradient(FEATURES, LABELS, 0, None).gradient
    device.keep_gradient()
    device.gradient(FEATURES[:2], LABELS[:2], 0, None)

    assert np.abs(found - exact).max() < off_by * np.abs(exact).max()
