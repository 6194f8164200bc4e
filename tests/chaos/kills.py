"""Which processes of a run are killed when: a pure function of the seed."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.chaos.own.dying_server import POINTS

MANNERS = ("server", "server", "server and worker", "server and worker", "everything", "worker")
"""Each kill is one of these: one server; a server and a worker in the same instant; all servers and two workers; a worker."""


@dataclass(frozen=True)
class Kill:
    """Processes that get SIGKILL in the same instant."""

    after: float
    """Seconds since the processes of the kill before were started again."""
    servers: tuple[int, ...]
    workers: tuple[int, ...]
    pause: float
    """Seconds until they are started again."""
    point: str = ""
    """Where in its work on a push the first server dies by itself, and the others with it; '': anywhere."""
    push: int = 1
    """Which of its next new pushes that is."""
    names_kept: bool = False
    """Where the power goes with the servers: whether unsynced changes of names survive."""

    def __str__(self) -> str:
        names = [f"server {index}" for index in self.servers] + [f"worker {rank}" for rank in self.workers]
        return f"{self.after:.2f} s: {', '.join(names)}{f' ({self.point} of push {self.push})' if self.point else ''}"

    def at(self, rng: random.Random) -> "Kill":
        """The same one, of which a third of those with servers happen at a point of a push."""
        point = rng.choice(POINTS) if rng.random() < 1 / 3 and self.servers else ""
        return replace(self, point=point, push=rng.randint(1, 9), names_kept=rng.random() < 0.5)


def schedule(
    seed: int, count: int | None, servers: int, workers: int, pauses: tuple[float, float] = (0.05, 3.0)
) -> Iterator[Kill]:
    """This many kills (None: without end), each at a random instant some seconds (`pauses`) after the one before is
    repaired."""
    rng, points = random.Random(f"kills {seed}"), random.Random(f"points {seed}")
    for _ in itertools.count() if count is None else range(count):
        manner = rng.choice(MANNERS)
        hit_servers: tuple[int, ...] = (rng.randrange(servers),)
        hit_workers = tuple(sorted(rng.sample(range(workers), 2)))
        if manner == "everything":
            hit_servers = tuple(range(servers))
        elif manner == "worker":
            hit_servers, hit_workers = (), hit_workers[:1]
        else:
            hit_workers = hit_workers[:1] if manner == "server and worker" else ()
        kill = Kill(rng.uniform(*pauses), hit_servers, hit_workers, rng.choice([0.0, 0.0, 0.5, 1.5]))
        yield kill.at(points)
