"""How long everything takes in virtual time: steps, messages, and a server's work on a push."""

import math
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from paceline.core.fault import Fault, faults_of
from paceline.core.network_link import NetworkLink
from paceline.core.settings.config import Config
from paceline.core.settings.slow import slowness
from paceline.worker.training.emulated_slowness import Slowness
from paceline_studies.simulator.links import LATENCY, Links
from paceline_studies.simulator.scene import Scene, Stragglers
from paceline_studies.simulator.timeline import Timeline

Action = Callable[[], Any]
STEP = (0.8, 1.2)
"""Shortest and longest time of an equal worker's step; 1 is the unit of time."""
WAY = (0.02, 0.2)
"""Of a message."""


class Pace(Protocol):
    """Made for one training."""

    second: float
    """A unit of time (seconds)."""

    def step(self, rank: int, position: int, share: float) -> float:
        """The time of this worker's mini-batch at this position of its data, of which it computes a `share`."""

    def speed(self, rank: int) -> float:
        """The worker's; the fastest one has 1."""

    def arrived(self, sent: float) -> float:
        """The time that counts as the arrival of a push that a server takes now, and that set out at `sent`."""

    def carry(self, way: tuple[str, str], values: int, action: Action) -> None:
        """`action` happens when a message with that many values has come from one node to the other. `way`: their names."""

    def serve(self, server: int, values: int, action: Action) -> None:
        """`action` happens when the server has worked on a push that has come now."""


class Slow:
    """One way in which a worker is slow at times."""

    __slots__ = ("how", "left")

    def __init__(self, how: Stragglers) -> None:
        self.how = how
        self.left = 0
        """Steps of the present spell still to come."""

    def factor(self, random: Random) -> float:
        """By what the next step takes longer."""
        if not self.left and random.random() < self.how.probability:
            self.left = self.how.spell
        if not self.left:
            return 1.0
        self.left -= 1
        return self.how.factor


class Chances:
    """The unit of time is an equal worker's step; one seed draws everything, in the order of events. What `slow` says
    multiplies a step; servers take no time."""

    second = 0.1

    def __init__(self, config: Config, time: Timeline, links: Links | None = None, spell: int = 1) -> None:
        """`links`: None: a message takes as long whatever it holds. `spell`: steps that a worker is slow for, once it is."""
        self._time = time
        self._links = links
        self._random = Random(config.seed)
        self._slow = [
            [
                Slow(Stragglers(*slowness(who, how), spell))
                for who, how in config.slow.items()
                if who in ("all", str(rank))
            ]
            for rank in range(config.workers)
        ]

    def step(self, rank: int, position: int, share: float) -> float:
        return math.prod([self._random.uniform(*STEP), *(slow.factor(self._random) for slow in self._slow[rank])])

    def speed(self, rank: int) -> float:
        means = [math.prod(1 + (each.how.factor - 1) * each.how.probability for each in mine) for mine in self._slow]
        return min(means) / means[rank]

    def arrived(self, sent: float) -> float:
        return sent

    def carry(self, way: tuple[str, str], values: int, action: Action) -> None:
        if self._links is None:
            self._time.after(self._random.uniform(*WAY), action)
        else:
            self._links.carry(self._time, self._random.uniform(*LATENCY), way, values, action)

    def serve(self, server: int, values: int, action: Action) -> None:
        action()


class _Node:
    """One node's link, both ways."""

    __slots__ = ("faults", "free_in", "free_out", "latency", "rate")

    def __init__(self, link: NetworkLink, faults: list[Fault]) -> None:
        self.latency = link.latency
        self.rate = link.rate
        self.faults = faults
        self.free_in = self.free_out = 0.0
        """When each direction is free again."""

    def at(self, now: float) -> tuple[float, float]:
        """Latency (seconds) and rate (bytes per second)."""
        links = [link for fault in self.faults if (link := fault.link_at(now)) is not None]
        if not links:
            return self.latency, self.rate
        return max(self.latency, *(link.latency for link in links)), min(self.rate, *(link.rate for link in links))


class ScenePace:
    """The unit of time is a second. Each worker draws its own steps, so that they are the same under all policies, and with
    gradients and without. What the run's own `slow` says is a pause of the same length and at the same steps as in a real
    run; `faults` may slow links down."""

    second = 1.0

    def __init__(self, config: Config, scene: Scene, time: Timeline) -> None:
        self._time = time
        self._scene = scene
        workers, seed = range(config.workers), config.seed
        self._means = [scene.step * factor for factor in scene.factors(config.workers, seed)]
        self._randoms = [Random(f"{seed} step {rank}") for rank in workers]
        self._slow = [[Slow(how) for how in scene.at_times] for _ in workers]
        self._sigma = math.sqrt(math.log1p(scene.jitter**2))
        self._pauses: list[float] = []
        self._emulated = [
            Slowness(config.slow, rank, config.nominal_step, seed, self._pauses.append) if config.slow else None
            for rank in workers
        ]
        self._expected = [mean + self._pause_of(config, rank) for rank, mean in enumerate(self._means)]
        self._fastest = min(self._expected)
        names = [f"worker-{rank}" for rank in workers] + [f"server-{each}" for each in range(config.server_processes)]
        faults = faults_of(config.faults)
        self._nodes = {
            name: _Node(
                NetworkLink.read(scene.links.get(name, scene.link)), [each for each in faults if each.who == name]
            )
            for name in names
        }
        self._busy = [0.0] * config.server_processes
        """Until when each server works on what has come."""
        self._bytes = {
            "worker": config.codec.push_codec.most_bytes(1 << 16) / (1 << 16),
            "server": config.codec.pull_codec.most_bytes(1 << 16) / (1 << 16),
        }
        """Of a value, by who sends it."""

    @staticmethod
    def _pause_of(config: Config, rank: int) -> float:
        """The mean pause of a step (seconds)."""
        rules = [slowness(who, how) for who, how in config.slow.items() if who in ("all", str(rank))]
        return config.nominal_step * sum((factor - 1) * probability for factor, probability in rules)

    def step(self, rank: int, position: int, share: float) -> float:
        random = self._randoms[rank]
        time = self._means[rank] * share
        if self._sigma:
            time *= random.lognormvariate(-(self._sigma**2) / 2, self._sigma)
        for slow in self._slow[rank]:
            time *= slow.factor(random)
        emulated = self._emulated[rank]
        if emulated is not None:
            emulated.delay(position, share)
            while self._pauses:
                time += self._pauses.pop()
        return time

    def speed(self, rank: int) -> float:
        return self._fastest / self._expected[rank]

    def arrived(self, sent: float) -> float:
        return self._time.now

    def carry(self, way: tuple[str, str], values: int, action: Action) -> None:
        time, sender, to = self._time, self._nodes[way[0]], self._nodes[way[1]]
        latency, sends = sender.at(time.now) if sender.faults else (sender.latency, sender.rate)
        lag, takes = to.at(time.now) if to.faults else (to.latency, to.rate)
        latency = max(latency, lag)
        size = values * self._bytes[way[0][:6]]
        if not self._scene.shared or not size:
            time.after(latency + size / min(sends, takes), action)
            return
        begins = max(time.now, sender.free_out)
        sent = sender.free_out = begins + size / sends

        def comes() -> None:
            """Its beginning has arrived; the rest follows as fast as both links allow."""
            free = to.free_in = max(time.now, to.free_in) + size / takes
            time.after(max(free, sent) + latency - time.now, action)

        if begins == time.now:
            comes()
        else:
            time.after(begins - time.now, comes)

    def serve(self, server: int, values: int, action: Action) -> None:
        time, service = self._time, self._scene.service_of(values)
        if not service:
            action()
            return
        begins = max(time.now, self._busy[server])
        self._busy[server] = begins + service
        time.after(begins + service - time.now, action)


def pace_of(scene: Scene) -> Callable[[Config, Timeline], ScenePace]:
    """The pace of trainings in this scene; ConfigError where it names what a config does not have."""

    def pace(config: Config, time: Timeline) -> ScenePace:
        scene.check(config)
        return ScenePace(config, scene, time)

    return pace
