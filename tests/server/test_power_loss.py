"""The power goes at every call to the disk, before and after it: what was acknowledged exists when it comes back."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import DataError
from paceline.core.settings.config import PlanConfig
from paceline.core.slice.plan import make_plan
from paceline.core.slice.state import SliceState
from paceline.server.disk import Disk
from paceline.server.json_files import Owner
from paceline.server.state_folder import StateFolder
from tests.support.disks import PowerCut, PoweredDisk, survivals

PLAN = make_plan((("weight", (3,)),), 1, PlanConfig())
OWNER = Owner("a-run", 0, 1)


def silent(event: str, **facts: Any) -> None:
    pass


def state_at(version: int) -> SliceState:
    table = {"version": version, "pushes": version, "clocks": {"worker-0": {"incarnation": 1, "clock": version}}}
    return SliceState(np.full(3, version, np.float32), [np.full(3, -version, np.float32)], table)


@dataclass
class Promised:
    """What the folder has acknowledged, and what it was last asked for."""

    term: int = 0
    kept: dict[str, int] = field(default_factory=lambda: {"snapshot": 0, "run": 0})
    asked: dict[str, int] = field(default_factory=lambda: {"snapshot": 0, "run": 0})


def live(folder: Path, disk: Disk, promised: Promised) -> None:
    """Two lives of a server, each with two run states and three snapshots, of which two are kept."""
    for life in (0, 3):
        store = StateFolder(folder, 2, silent, OWNER, disk)
        try:
            promised.term = store.term
            store.check_settings([f"life={life}"] if life == 0 else ["life=0"])
            for number in range(life + 1, life + 4):
                promised.asked["run"] = number
                store.save_run({"number": number})
                promised.kept["run"] = promised.asked["snapshot"] = number
                store.save_snapshot(PLAN, state_at(number))
                promised.kept["snapshot"] = number
        finally:
            store.close()


def after_a_cut(folder: Path, disk: PoweredDisk, survives: Callable[[], bool]) -> bool:
    """Whether the power went before the end; checks what exists when it is back."""
    folder.mkdir()
    promised = Promised()
    with suppress(PowerCut):
        live(folder, disk, promised)
        return False
    disk.lose_power(folder, survives)
    store = StateFolder(folder, 2, silent, OWNER, PoweredDisk())
    try:
        found, run = store.newest_snapshot(), store.load_run()
    finally:
        store.close()
    version = 0 if found is None else int(found[1].table["version"])
    assert store.term > promised.term
    assert promised.kept["snapshot"] <= version <= promised.asked["snapshot"]
    assert found is None or found[1].weights.tolist() == [version] * 3
    assert promised.kept["run"] <= (0 if run is None else run["number"]) <= promised.asked["run"]
    return True


def cut_everywhere(folder: Path, make: Callable[[int, bool], PoweredDisk]) -> int:
    """How many cuts there were."""
    cuts = 0
    for after in (False, True):
        for way, survives in enumerate(survivals(seed=1)):
            place = 1
            while after_a_cut(folder / f"{after}-{way}-{place}", make(place, after), survives):
                place += 1
            cuts += place - 1
    return cuts


def test_what_was_acknowledged_survives_a_power_cut_at_every_call(tmp_path: Path) -> None:
    assert cut_everywhere(tmp_path, PoweredDisk) > 300


class Unsynced(PoweredDisk):
    """A server that does not wait for what it writes."""

    def sync(self, file: int) -> None:
        pass


class UnsyncedNames(PoweredDisk):
    """A server that does not wait for the names of what it writes."""

    def sync_folder(self, folder: Path) -> None:
        pass


@pytest.mark.parametrize("careless", [Unsynced, UnsyncedNames])
def test_a_server_that_does_not_sync_is_caught(tmp_path: Path, careless: type[PoweredDisk]) -> None:
    with pytest.raises((AssertionError, DataError)):
        cut_everywhere(tmp_path, careless)
