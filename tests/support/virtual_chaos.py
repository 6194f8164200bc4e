"""Runs in virtual time with trouble at random moments, and the books that they must keep."""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from paceline.core.chief.run import Run
from paceline.core.errors import NotYet, PacelineError
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.settings.config import Options
from paceline.core.values import Outcome, Vector
from tests.support.virtual import Cluster, Gradient, make_config, one_hot
from tests.support.virtual_server import Server
from tests.support.virtual_time import Body, Conditions, Task

NAMES = [f"worker-{number}" for number in range(5)]
CLOCKS = 256
"""More than any worker comes to in these runs, also while a chief that is back waits for silent members to lapse."""
HUGE = 1e30
"""A gradient of a step that diverges: after it no gradient is finite."""
STATELESS = Options(name="sgd", momentum=0, weight_decay=0)
"""What the config calls the optimizer, for changes of policy: the ledger keeps no state either."""
PLAIN = (
    "bsp",
    "ssp",
    "asp",
    "shat",
    "shat_root",
    "ensemble",
    "dssp",
    "rennala",
    "backup",
    "delay_threshold",
    "staleness_aware",
    "kbuffered",
)
"""Policies whose fold, with the ledger for an optimizer, is a plain sum of what was pushed."""
DROPPING = ("backup", "rennala", "delay_threshold")
"""Policies that leave out pushes of members though nothing went wrong."""


class Diverging:
    """Gradients of the ledger, and what makes them diverge: a worker's next step that is far too large, or from a moment on
    each step of any worker at more than some rate."""

    def __init__(self, gradient: Gradient) -> None:
        self._gradient = gradient
        self.rates: Callable[[str], float] = lambda worker: 0.0
        self.process_of: Callable[[str], str] = str
        self.highest = math.inf
        """Rate above which every step diverges."""
        self.due: set[str] = set()
        """Workers whose next step diverges."""
        self._begun = Counter[str]()
        """Steps of each process, whose first ones are always sound: they tell what is large."""

    def __call__(self, worker: str, clock: int, local: Vector) -> Vector:
        if not np.abs(local).max() < HUGE / 2:
            return np.full_like(local, math.nan)
        process = self.process_of(worker)
        self._begun[process] += 1
        is_out = self._begun[process] > 3 and (worker in self.due or self.rates(worker) > self.highest)
        if is_out:
            self.due.discard(worker)
        return self._gradient(worker, clock, local) * np.float32(HUGE if is_out else 1)


def chaotic(
    seed: int,
    policy: str,
    happenings: Iterable[str],
    optimizer: Optimizer,
    rounds: int = 12,
    clocks: int = CLOCKS,
    **settings: Any,
) -> Cluster:
    """Four workers on one to three servers, a fifth that may join, and trouble of the given kinds at random moments.
    `policy`: as on the command line; with ' sparse' behind it updates name their places."""
    rng = random.Random(f"{seed} {policy} {happenings}")
    servers = rng.choice([1, 2, 3])
    conditions = Conditions.drawn(rng, NAMES, [0.0, 0.5, 2.0])
    conditions.blank = rng.choice([0.0, 0.0, 0.1])
    settings = {
        "workers": 5,
        "start_when": 4,
        "servers": servers,
        "overlap": rng.random() < 0.3,
        "optimizer": STATELESS,
        "updates": "sparse" if policy.endswith(" sparse") else "dense",
    } | settings
    config = make_config(policy.removesuffix(" sparse"), **settings)
    gradient = Diverging(one_hot(NAMES, clocks, servers))
    length = servers * len(NAMES) * clocks
    cluster = Cluster(seed, config, gradient, optimizer, length, rounds, conditions)
    gradient.rates = lambda worker: cluster.workers[worker].lr
    gradient.process_of = lambda worker: f"{worker} {cluster.workers[worker].incarnation}"
    for name in NAMES[:4]:
        cluster.start_worker(name)
    for what in happenings:
        for _ in range(rng.choice([1, 1, 2])):
            happen(cluster, what, rng.uniform(0.3, 3.0), rng)
    return cluster


def happen(cluster: Cluster, what: str, when: float, rng: random.Random) -> None:
    """One piece of trouble, at its time."""
    worker, seconds = rng.choice(NAMES[:4]), rng.choice([0.5, 5.0, 30.0])
    server, downtime = rng.choice(cluster.servers), rng.uniform(0.1, 3.0)
    follower = cluster.servers[rng.randrange(len(cluster.servers))]
    highest = cluster.optimizer.lr * rng.choice([0.7, 0.3, 0.0]) if what == "too fast" else 0.0

    def silence() -> None:
        cluster.workers[worker].is_silent = True

    def restart(which: Server) -> None:
        if which.is_up:
            which.crash(downtime)

    def restart_from_long_ago() -> None:
        follower.keeps_snapshots = False
        cluster.after(seconds, lambda: restart(follower))

    def all_leave() -> None:
        for name in NAMES[:4]:
            if cluster.workers[name].incarnation:
                cluster.tell_to_leave(name)
                cluster.after(seconds, partial(cluster.start_worker, name))

    def diverge() -> None:
        assert isinstance(cluster.gradient, Diverging)
        cluster.gradient.due.add(worker)

    def be_too_fast() -> None:
        assert isinstance(cluster.gradient, Diverging)
        cluster.gradient.highest = highest

    def leave() -> None:
        if cluster.workers[worker].incarnation:
            cluster.tell_to_leave(worker)

    actions: dict[str, Callable[[], Any]] = {
        "join": lambda: cluster.start_worker(NAMES[4]),
        "leave": leave,
        "all leave": all_leave,
        "crash": lambda: cluster.crash_worker(worker),
        "replace": lambda: cluster.crash_worker(worker, seconds),
        "silence": silence,
        "stop": lambda: Task(cluster, asked(cluster, stop)),
        "restart": lambda: restart(server),
        "chief restart": lambda: restart(cluster.servers[0]),
        "old restart": restart_from_long_ago,
        "diverge": diverge,
        "too fast": be_too_fast,
    }
    cluster.after(when, actions[what])


def stop(run: Run, cluster: Cluster) -> None:
    run.stop("asked to", lambda: cluster.servers[0].slice.clocks, cluster.now)


def asked(cluster: Cluster, action: Any) -> Body:
    """Somebody asks the chief for something, until it does it."""
    while True:
        try:
            yield from cluster.call_chief(lambda run: action(run, cluster))
            return
        except NotYet:
            yield 1.0
        except PacelineError as error:
            cluster.errors.append((cluster.now, "somebody", error))
            return


# the books
def ledger_of(cluster: Cluster, server: int) -> Vector:
    """How often (worker, clock) is in the weights of a server; in its snapshot where it is down when the run ends."""
    found = cluster.servers[server].slice.pull()
    weights = found.values if found is not None else cluster.servers[server].folder.snapshots[-1].state.weights
    return np.where(weights >= HUGE, 1, weights).reshape(len(NAMES), -1)


def folds_of(cluster: Cluster, server: int) -> Vector:
    """How often (worker, clock) was in a fold of a server, whatever the fold made of it."""
    one, book = cluster.servers[server], np.zeros(cluster.plan.lengths[server], np.float32)
    for fold in one.slice.folds if one.slice.pull() is not None else one.folder.snapshots[-1].folds:
        if isinstance(fold, tuple):
            book[NAMES.index(fold[0]) * (len(book) // len(NAMES)) + fold[1]] += 1
        else:
            book[fold] += 1
    return book.reshape(len(NAMES), -1)


def check_ledger(cluster: Cluster, *, is_lossless: bool, may_drop: bool = False, is_plain: bool = True) -> None:
    """No clock is in twice, and none that was dropped. Where no server was restarted every acknowledged one is in, and
    none is dropped but by policies that do so; a server that went back to older weights may have left out those of before.
    What is in is in the weights, where the policy's fold is a plain sum."""
    for server in range(len(cluster.servers)):
        book = folds_of(cluster, server)
        assert book.max() <= 1, f"a push was folded twice: {np.argwhere(book > 1)}"
        if is_plain:
            assert np.array_equal(ledger_of(cluster, server), book), "the weights are not what was folded"
        if not is_lossless:
            continue
        returns = max((change.number for change, _ in cluster.servers[server].went_back), default=0)
        for number, name in enumerate(NAMES):
            for clock, outcome in cluster.acknowledged.get((server, name), {}).items():
                if cluster.servers[server].counted_under[name, clock] < returns:
                    continue
                is_dropped = outcome is Outcome.DROPPED
                assert may_drop or not is_dropped, f"{name} clock {clock} was dropped on server {server}"
                assert book[number, clock] == (not is_dropped), f"{name} {clock} {outcome} on server {server}"
