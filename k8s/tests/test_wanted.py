"""What a run on Kubernetes needs after any applies, deletions and losses, in any order: on a model of the cluster."""

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from paceline_k8s.wanted import (
    ATTEMPTS,
    ATTEMPTS_OF_SCRIPT,
    EVALUATOR,
    PARTS,
    ROOM,
    SERVER,
    SHARDER,
    WORKER,
    Chief,
    Ended,
    Failed,
    Memory,
    Part,
    Pod,
    Result,
    Seen,
    Sizes,
    count_of,
    wanted,
)

SIZES = Sizes(servers=2, workers=2, epochs=20)
READY = Pod("a", ready_since=1.0)
FINISHED = Chief(is_finished=True, result="test accuracy 0.9", version=7)


def part(*pods: Pod, replicas: int = 2, settings: str = "config") -> Part:
    return Part(replicas, "a", settings, pods)


def seen(**more: Any) -> Seen:
    """A run that trains, but for what is given."""
    parts = {SERVER: part(READY, READY), WORKER: part(READY, READY), EVALUATOR: part(READY, replicas=1)}
    return Seen(**{"parts": parts | more.pop("parts", {}), "settings": "config", "sizes": SIZES, **more})


TRAINS = Memory(is_open=True)


def test_workers_and_evaluator_begin_once_all_servers_serve():
    starting = seen(parts={SERVER: part(READY, Pod("a")), WORKER: part(replicas=1), EVALUATOR: part(replicas=1)})

    before = wanted(starting, Memory())
    after = wanted(seen(), before.kept)

    assert before.counts == {SERVER: 2, WORKER: 0, EVALUATOR: 0}
    assert after.counts == {SERVER: 2, WORKER: 2, EVALUATOR: 1}
    assert (before.says, after.says) == ("Servers start.", "The run trains, with 2 workers.")


def test_workers_stay_while_a_server_starts_again():
    found = wanted(seen(parts={SERVER: part(READY, Pod("a"))}), TRAINS)

    assert found.counts[WORKER] == 2
    assert found.says == "Servers start again, and the others wait for them."


@pytest.mark.parametrize("stuck", [Pod("a", homeless=ROOM + 1), Pod("a", ended=Ended(78, 5.0, "Other settings"))])
def test_workers_make_room_for_a_server_that_can_not_start(stuck: Pod):
    found = wanted(seen(parts={SERVER: part(READY, stuck)}), TRAINS)

    assert found.counts == {SERVER: 2, WORKER: 0, EVALUATOR: 0}


def test_all_begin_together_in_a_queue_which_lets_a_whole_run_begin():
    sharder = part(replicas=1)

    found = wanted(seen(parts={SERVER: part(), SHARDER: sharder, WORKER: part(replicas=1)}, in_queue=True), Memory())

    assert found.counts == {SERVER: 2, SHARDER: 1, WORKER: 2, EVALUATOR: 1}


def test_workers_wait_for_shards_and_the_sharder_goes_once_they_are_there():
    waiting = {SHARDER: part(READY, replicas=1), WORKER: part(replicas=0)}
    through = waiting | {SHARDER: part(Pod("a", ended=Ended(0, 5.0)), replicas=1)}

    before, after = wanted(seen(parts=waiting), TRAINS), wanted(seen(parts=through), TRAINS)

    assert (before.counts[SHARDER], before.counts[WORKER]) == (1, 0)
    assert (after.counts[SHARDER], after.counts[WORKER]) == (0, 2)
    assert wanted(seen(parts={SHARDER: part(replicas=0)}), after.kept).counts[SHARDER] == 0


def test_a_sharder_is_given_up_after_its_deadline_unless_it_is_through_or_streams():
    def failed(pod: Pod, sizes: Sizes = SIZES) -> dict[str, Failed]:
        sharder = Part(1, "a", "config", (pod,), deadline=7200.0)
        return dict(wanted(seen(parts={SHARDER: sharder}, sizes=sizes), TRAINS).kept.failed)

    late = failed(Pod("a", age=7201.0))

    assert late[SHARDER].code == 143
    assert "stopped after 2 hours" in late[SHARDER].sentence
    assert failed(Pod("a", age=7199.0)) == {}
    assert failed(Pod("a", age=7201.0, ended=Ended(0, 7200.0))) == {}
    assert failed(Pod("a", age=7201.0), Sizes(2, 2, 20, streams=True)) == {}


def test_a_run_trains_on_while_a_newer_sharder_has_yet_to_run():
    parts = {SERVER: part(READY, READY), SHARDER: part(replicas=0), WORKER: part(READY, replicas=2)}

    found = wanted(seen(parts=parts), Memory(sharded="older", is_open=True))

    assert (found.counts[SHARDER], found.counts[WORKER]) == (1, 2)
    assert found.says.startswith("The run trains, with 2 workers. The sharder's manifests have changed")


def test_a_server_of_shards_stays_as_long_as_the_run():
    sizes = Sizes(2, 2, 20, streams=True)

    assert wanted(seen(parts={SHARDER: part(READY, replicas=1)}, sizes=sizes), TRAINS).counts[SHARDER] == 1


def test_the_number_of_workers_is_that_which_a_person_asked_for():
    assert wanted(seen(workers=4), TRAINS).counts[WORKER] == 4
    assert [count_of(text) for text in ("4", "", None, "four")] == [4, None, None, None]


def test_a_finished_run_keeps_its_result_and_no_process_and_nothing_wakes_it():
    end = wanted(seen(chief=FINISHED), TRAINS)

    assert end.counts == {SERVER: 0, WORKER: 0, EVALUATOR: 0}
    assert end.kept == Memory(Result(20, "test accuracy 0.9", version=7))
    assert (
        end.says == "The run is finished: test accuracy 0.9. To go on, set `epochs` in run.yaml above 20 and apply it."
    )
    assert wanted(seen(), end.kept).counts == end.counts


def test_a_finished_run_goes_on_with_more_epochs_and_ends_only_once_the_servers_have_them():
    more, kept = Sizes(2, 2, 30), Memory(Result(20, "test accuracy 0.9"))
    rolling = part(Pod("old", ready_since=1.0), READY)

    found = wanted(seen(sizes=more, chief=FINISHED, parts={SERVER: rolling}), kept)

    assert found.counts[SERVER] == 2
    assert found.kept.result is None


def test_nothing_changes_while_an_apply_is_under_way():
    found = wanted(seen(parts={SERVER: part(READY, READY, replicas=5, settings="other")}, chief=FINISHED), TRAINS)

    assert found.counts == {SERVER: 5, WORKER: 2, EVALUATOR: 1}
    assert found.kept == TRAINS
    assert "(other): an apply is under way" in found.says


def test_a_hopeless_error_frees_the_part_until_its_manifests_change():
    broken = part(READY, Pod("a", ended=Ended(78, 5.0, "worker-1: ConfigError: no GPU.")))

    found = wanted(seen(parts={WORKER: broken}), TRAINS)
    again = wanted(seen(parts={WORKER: part(replicas=0)}), found.kept)
    edited = wanted(seen(parts={WORKER: Part(0, "b", "config")}), found.kept)

    assert found.kept.failed == {WORKER: Failed("a", 78, "worker-1: ConfigError: no GPU.")}
    assert (found.counts[WORKER], again.counts[WORKER], edited.counts[WORKER]) == (0, 0, 2)
    assert "exit code 78: worker-1: ConfigError: no GPU. It is started again when its manifests change" in found.says


def test_an_error_from_before_all_servers_had_the_newest_settings_proves_nothing():
    early = part(READY, Pod("a", ended=Ended(78, 0.5)))

    assert wanted(seen(parts={WORKER: early}), TRAINS).kept.failed == {}


@pytest.mark.parametrize(("is_script", "most"), [(False, ATTEMPTS), (True, ATTEMPTS_OF_SCRIPT)])
def test_a_part_is_given_up_once_all_its_processes_have_failed_too_often(is_script: bool, most: int):
    sizes = Sizes(2, 2, 20, is_script=is_script)
    worn, fresh = Pod("a", starts=most, ended=Ended(70, 5.0)), Pod("a", starts=most - 1, ended=Ended(70, 5.0))

    def failed(*pods: Pod) -> bool:
        return WORKER in wanted(seen(parts={WORKER: part(*pods)}, sizes=sizes), TRAINS).kept.failed

    assert failed(worn, worn)
    assert not failed(worn, fresh)
    assert not failed(worn, READY)
    assert not failed(worn, Pod("a", starts=most, ended=Ended(75, 5.0)))


def test_what_is_kept_is_read_back_and_what_can_not_be_read_is_nothing():
    kept = Memory(Result(20, "test accuracy 0.9"), {WORKER: Failed("a", 78, "no GPU")}, "a", is_open=True)

    assert Memory.of(kept.text()) == kept
    for text in ("", "[]", "{}", '{"result": {"epochs": 1}, "failed": {}}'):
        assert Memory.of(text) == Memory()


def test_a_part_that_was_deleted_is_named():
    parts = {SERVER: part(READY, READY), EVALUATOR: part(READY, replicas=1)}

    found = wanted(Seen(parts, "config", SIZES), TRAINS)

    assert found.counts == {SERVER: 2, EVALUATOR: 1}
    assert "There is no StatefulSet of the worker: apply all manifests." in found.says


# -- a model of the cluster -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Version:
    """Manifests, as they may be applied."""

    name: str
    epochs: int = 20
    cpu: int = 2
    """Of a worker."""
    refuses: str = ""
    """The part whose processes end with 78."""
    protocol: int = 5
    """Workers refuse servers of another one, with 78."""


A, B, WIDE = Version("a"), Version("b", protocol=6), Version("wide", cpu=3)
MORE, NO_GPU, OTHER = Version("more", epochs=30), Version("no-gpu", refuses=WORKER), Version("other", refuses=SERVER)
VERSIONS = (A, B, WIDE, MORE, NO_GPU, OTHER)
DEPLOYMENT = "controller"
ORDERS = 400
"""How many orders of events are tried."""


def room(version: Version) -> int:
    """What a node must have for exactly one run of these manifests; the sharder has gone before the workers come."""
    return SIZES.servers + SIZES.workers * version.cpu + 1


@dataclass
class Process:
    """A pod."""

    version: Version
    rank: int
    made: float
    cpu: int
    has_room: bool = False
    is_leaving: bool = False
    ready_since: float = math.inf
    starts: int = 0
    ended: Ended | None = None


@dataclass
class StatefulSet:
    """As Kubernetes keeps one with podManagementPolicy Parallel."""

    version: Version
    replicas: int = 1
    """Of one whose manifest names no number."""
    pods: list[Process] = field(default_factory=list)


class Model:
    """A cluster with one node, one run, and its controller. A tick is 5 seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.room = room(A)
        self.sets: dict[str, StatefulSet] = {}
        self.controller: Version | None = None
        self.is_up = self.answers = True
        self.kept = Memory().text()
        self.trained = 0
        self.is_scored = False
        self.was_woken: list[str] = []
        self.last = A

    # what people and faults do
    def apply(self, version: Version, part: str) -> None:
        self.last = version
        if part == DEPLOYMENT:
            self.controller = version
        elif part in self.sets:
            self.sets[part].version = version
        else:
            self.sets[part] = StatefulSet(version)

    def apply_all(self, version: Version) -> None:
        for part in (*PARTS, DEPLOYMENT):
            self.apply(version, part)

    def delete(self, part: str) -> None:
        self.sets.pop(part, None)  # with its pods: Kubernetes makes none of that name before they are gone

    def kill(self, part: str, rank: int) -> None:
        for pod in self.sets[part].pods if part in self.sets else ():
            pod.is_leaving |= pod.rank == rank

    # what the cluster does
    def tick(self) -> None:
        self.now += 5
        for part, one in self.sets.items():
            self._manage(part, one)
        self._schedule()
        for part, one in self.sets.items():
            for pod in one.pods:
                self._run(part, pod)
        self._train()
        if self.is_up and self.controller is not None:
            self._control(self.controller)
        for part, one in self.sets.items():
            places = [pod.rank for pod in one.pods]
            assert len(places) == len(set(places)), f"two processes of one rank of the {part}"

    def _manage(self, part: str, one: StatefulSet) -> None:
        one.pods = [pod for pod in one.pods if not pod.is_leaving]
        cpu = one.version.cpu if part == WORKER else 1
        for pod in one.pods:
            pod.is_leaving = pod.rank >= one.replicas
        for rank in set(range(one.replicas)) - {pod.rank for pod in one.pods}:
            one.pods.append(Process(one.version, rank, self.now, cpu))
        for pod in sorted(one.pods, key=lambda pod: -pod.rank):
            if pod.version != one.version:
                pod.is_leaving = True
                return
            if math.isinf(pod.ready_since):
                return

    def _schedule(self) -> None:
        pods = [pod for one in self.sets.values() for pod in one.pods]
        free = self.room - sum(pod.cpu for pod in pods if pod.has_room)
        for pod in sorted(pods, key=lambda pod: (pod.made, -pod.cpu)):  # the largest first, which is the worst order
            if not pod.has_room and pod.cpu <= free:
                pod.has_room, free = True, free - pod.cpu

    def _run(self, part: str, pod: Process) -> None:
        if not pod.has_room or pod.is_leaving:
            return
        chief = self._ready(SERVER, 0)
        is_older = part == WORKER and chief is not None and chief.version.protocol != pod.version.protocol
        if pod.version.refuses == part or is_older:
            code = 78
        elif part == SHARDER or (part != SERVER and self.is_finished):
            code = 0
        else:
            pod.ready_since = min(pod.ready_since, self.now)
            return
        pod.ready_since = math.inf
        pod.starts += 1
        pod.ended = Ended(code, self.now)

    @property
    def is_finished(self) -> bool:
        chief = self._ready(SERVER, 0)
        return chief is not None and self.trained >= chief.version.epochs and self.is_scored

    def _ready(self, part: str, rank: int) -> Process | None:
        pods = self.sets[part].pods if part in self.sets else []
        return next((pod for pod in pods if pod.rank == rank and not math.isinf(pod.ready_since)), None)

    def _train(self) -> None:
        servers = [self._ready(SERVER, rank) for rank in range(SIZES.servers)]
        if None in servers or self.is_finished:
            return
        epochs = min(server.version.epochs for server in servers if server)
        if self.trained < epochs:
            works = any(self._ready(WORKER, rank) for rank in range(SIZES.workers))
            self.trained, self.is_scored = self.trained + 5 * works, False
        elif self._ready(EVALUATOR, 0):
            self.is_scored = True

    def _control(self, version: Version) -> None:
        parts = {
            part: Part(one.replicas, one.version.name, one.version.name, tuple(map(self._look, one.pods)))
            for part, one in self.sets.items()
        }
        can_ask = self.answers and self._ready(SERVER, 0) is not None
        chief = Chief(self.is_finished, "test accuracy 0.9") if can_ask else None
        sizes = Sizes(SIZES.servers, SIZES.workers, version.epochs)
        before = Memory.of(self.kept)
        found = wanted(Seen(parts, version.name, sizes, chief), before)
        assert found.says
        if before.result is not None and before.result.epochs >= version.epochs:
            self.was_woken += [part for part, number in found.counts.items() if number > parts[part].replicas]
        if not found.kept.is_open and all(part.settings == version.name for part in parts.values()):
            assert all(found.counts.get(part, 0) == 0 for part in (WORKER, EVALUATOR)), "workers before servers"
        self.kept = found.kept.text()
        for part, number in found.counts.items():
            self.sets[part].replicas = number

    def _look(self, pod: Process) -> Pod:
        homeless = 0.0 if pod.has_room else self.now - pod.made
        return Pod(pod.version.name, pod.ready_since, pod.starts, pod.ended, homeless)


def disturb(model: Model, dice: random.Random) -> None:
    """One event, then some time, often too short for what it begins."""
    event = dice.randrange(12)
    if event < 5:
        model.apply_all(dice.choice(VERSIONS))
    elif event < 7:
        model.apply(dice.choice(VERSIONS), dice.choice((*PARTS, DEPLOYMENT)))
    elif event == 7:
        model.delete(dice.choice(PARTS))
    elif event == 8:
        model.kill(dice.choice(PARTS), dice.randrange(2))
    elif event == 9:
        model.is_up = dice.random() < 0.5
    elif event == 10:
        model.answers, model.room = dice.random() < 0.5, dice.randrange(2, room(WIDE) + 2)
    else:
        model.kept = ""
    for _ in range(dice.choice((0, 1, 2, 5, 15))):
        model.tick()


def end_of(seed: int) -> str:
    """Which end comes after a random order of events, once the last manifests are applied as a whole and nothing is disturbed
    any more, on a node without a CPU to spare."""
    dice, model = random.Random(seed), Model()
    for _ in range(dice.randrange(1, 9)):
        disturb(model, dice)
    last = dice.choice(VERSIONS)
    model.is_up = True
    model.answers = True
    model.room = room(last)
    model.apply_all(last)
    for _ in range(100):
        model.tick()

    assert model.was_woken == [], "a finished run was woken"
    kept, counts = Memory.of(model.kept), {part: one.replicas for part, one in model.sets.items()}
    if kept.result is not None:
        assert model.trained >= last.epochs <= kept.result.epochs
        assert counts == dict.fromkeys(PARTS, 0)
        assert not any(one.pods for one in model.sets.values())
        return "finished"
    assert last.refuses in (WORKER, SERVER), "it makes no progress"
    assert counts == {SERVER: 2, SHARDER: 0, WORKER: 0, EVALUATOR: int(last.refuses == WORKER)}
    assert set(kept.failed) == ({WORKER} if last.refuses == WORKER else set())
    return f"refused by the {last.refuses}"


def test_any_order_of_applies_deletes_and_faults_ends_in_the_run_of_the_last_manifests():
    ends: Counter[str] = Counter()
    for seed in range(ORDERS):
        try:
            ends[end_of(seed)] += 1
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise

    print(f"{ORDERS} orders of events: {dict(ends)}")
    assert set(ends) == {"finished", "refused by the worker", "refused by the server"}


def test_an_edit_that_is_reverted_in_mid_run_is_the_older_run_again():
    model = Model()
    model.apply_all(A)
    for version in (B, A):
        for _ in range(3):
            model.tick()
        trained = model.trained
        model.apply_all(version)
    for _ in range(100):
        model.tick()

    assert trained >= 0
    assert Memory.of(model.kept).result == Result(20, "test accuracy 0.9")


def test_an_edit_on_a_node_without_spare_room_goes_through():
    model = Model()
    model.apply_all(A)
    for _ in range(6):
        model.tick()
    model.apply_all(WIDE)
    model.room = room(WIDE)
    ticks = count()
    while any(pod.version != WIDE for one in model.sets.values() for pod in one.pods):
        model.tick()
        assert next(ticks) < 100
