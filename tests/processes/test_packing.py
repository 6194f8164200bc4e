"""Live objects through inherited memory: what arrives, who shares what, and that nothing else is ever unpickled."""

import os
import pickle
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import ConfigError, OutOfMemory
from paceline.processes import inherited_memory

torch = pytest.importorskip("torch")
from paceline.processes.packing import can_be_packed, pack, unpack  # noqa: E402


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, trap: str) -> None:
        self.trap = trap

    def __reduce__(self) -> Any:
        return (open, (self.trap, "w"))


def through(objects: Any) -> Any:
    memory = pack(objects)
    try:
        return unpack(memory)
    finally:
        os.close(memory)


def test_an_optimizer_and_a_scheduler_still_belong_to_the_model() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    found = through({"model": model, "optimizer": optimizer, "scheduler": scheduler})

    assert all(torch.equal(found["model"].state_dict()[key], each) for key, each in model.state_dict().items())
    assert found["optimizer"].param_groups[0]["params"][0] is found["model"][0].weight
    assert found["scheduler"].optimizer is found["optimizer"]


def test_tied_weights_and_views_stay_tied() -> None:
    values = torch.arange(6.0)
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    first.weight = second.weight

    found = through({"values": values, "view": values[2:4], "layers": [first, second]})
    found["values"][2] = 7

    assert found["view"].tolist() == [7.0, 3.0]
    assert found["layers"][0].weight is found["layers"][1].weight
    assert values[2] == 2


def test_a_lambda_brings_what_it_closes_over() -> None:
    weights, numbers = torch.tensor([1.0, 2.0]), np.arange(3)

    found = through(lambda factor: (weights * factor).sum().item() + numbers.sum())

    assert found(2) == 9


def test_a_changed_copy_changes_neither_the_original_nor_the_next_copy() -> None:
    rows = torch.zeros(1000)
    memory = pack(rows)

    unpack(memory)[:] = 1

    assert not rows.any()
    assert not unpack(memory).any()
    os.close(memory)


def test_a_tensor_that_two_objects_view_is_there_once() -> None:
    rows = torch.zeros(1_000_000)
    memory = pack([rows, rows[:10], rows.view(1000, 1000)])

    assert os.fstat(memory).st_size < 4_100_000
    os.close(memory)


def test_the_memory_has_no_name_is_this_users_alone_and_is_not_inherited_by_chance() -> None:
    memory = pack([1])
    found = os.fstat(memory)

    assert (found.st_nlink, found.st_mode & 0o777) == (0, 0o600)
    assert not os.get_inheritable(memory)
    os.close(memory)


def test_nobody_writes_to_it_again() -> None:
    memory = pack([1])

    with pytest.raises(PermissionError):
        os.pwrite(memory, b"x", 0)
    os.close(memory)


def test_a_pickle_in_a_file_is_refused_and_not_run(tmp_path: Path) -> None:
    trap, file = tmp_path / "trap", tmp_path / "objects"
    memory = pack(Bomb(str(trap)))
    file.write_bytes(os.pread(memory, os.fstat(memory).st_size, 0))
    os.close(memory)

    with file.open("rb") as opened, pytest.raises(ConfigError, match="never a file or the network"):
        unpack(opened.fileno())
    assert not trap.exists()


def test_a_socket_a_pipe_and_a_closed_descriptor_are_refused() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    os.write(writer, pickle.dumps([1]))

    for descriptor in (ours.fileno(), reader, 10_000):
        with pytest.raises(ConfigError, match="not memory that this process inherited"):
            unpack(descriptor)
    for each in (ours, theirs):
        each.close()
    for each in (reader, writer):
        os.close(each)


def test_what_can_not_be_sent_is_told_without_keeping_it() -> None:
    assert "cannot pickle '_thread.lock' object" in str(can_be_packed([threading.Lock()]))
    assert can_be_packed(torch.zeros(3)) is None


def test_parts_come_back_as_they_were() -> None:
    parts = [b"", b"a", os.urandom(inherited_memory.ALIGNMENT + 1)]
    memory = inherited_memory.write(parts)

    assert [bytes(part) for part in inherited_memory.read(memory)] == parts
    os.close(memory)


def test_no_room_is_said_with_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OutOfMemory, match="no memory for the 1 MiB of objects"):
        inherited_memory.write([bytes(1 << 20)])
