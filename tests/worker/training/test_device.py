"""Which device a process computes on."""

import re

import pytest
from prometheus_client import CollectorRegistry

from paceline.core.errors import ConfigError

torch = pytest.importorskip("torch")
device_module = pytest.importorskip("paceline.worker.training.device")


@pytest.mark.parametrize(
    ("count", "rank", "chosen"), [(2, 0, "cuda:0"), (2, 3, "cuda:1"), (1, 7, "cuda:0"), (0, 1, "cpu")]
)
def test_auto_deals_the_gpus_out_by_rank(count: int, rank: int, chosen: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)

    assert str(device_module.choose_device("auto", rank)) == chosen


def test_cuda_is_the_first_gpu_and_a_script_sees_its_own_as_that(monkeypatch: pytest.MonkeyPatch):
    """torch takes no device without a number as the thread's own."""
    chosen: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(str(device)))

    found = [device_module.choose_device("cuda"), device_module.device_of_script("cuda:3", 1)]

    assert [str(each) for each in found] == chosen == ["cuda:0", "cuda:0"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "cuda:3",
            "Device 'cuda:3' was asked for, but torch finds no CUDA device here: torch 2.15 has no CUDA. Install one that "
            "has it (docs/run/laptop.md#gpus). Or use cpu or auto.",
        ),
        ("cuda:x", "There is no device 'cuda:x'; use cpu, cuda, cuda:1 or auto."),
        ("gpu", "There is no device 'gpu'; use cpu, cuda, cuda:1 or auto."),
    ],
)
def test_a_script_is_refused_a_gpu_that_is_not_there(name: str, said: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "__version__", "2.15")
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)

    with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
        device_module.device_of_script(name)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            "The NVIDIA driver on your system is too old (found version 12040). Update it",
            r"CUDA 12\.4 at most, .* needs 13\.2\. Update the driver, or install a torch for an older CUDA",
        ),
        ("Found no NVIDIA driver on your system. Check", r"no NVIDIA driver\..*nvidia\.com/gpu.*component gpu"),
        ("No CUDA GPUs are available", "See nvidia-smi, and check CUDA_VISIBLE"),
    ],
)
def test_a_missing_gpu_is_refused_with_what_is_missing(error: str, told: str, monkeypatch: pytest.MonkeyPatch):
    def init() -> None:
        raise RuntimeError(error)

    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "init", init)

    with pytest.raises(ConfigError, match=told):
        device_module.choose_device("cuda")


def test_a_worker_tells_its_device_in_its_log_and_as_a_metric():
    said, registry = [], CollectorRegistry()

    device_module.tell_device(torch.device("cpu"), lambda event, **facts: said.append((event, facts)), registry)

    facts = {"device": "cpu", "torch": torch.__version__, "cuda": torch.version.cuda or "none"}
    assert said == [("computes", {"on": "cpu", **facts})]
    assert registry.get_sample_value("paceline_worker_device", facts) == 1
