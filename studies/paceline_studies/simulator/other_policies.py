"""What a run that was measured would have taken under other policies, by its own figures."""

from pydantic import ValidationError

from paceline.core.chief.worker_time import WorkerTime, middle
from paceline.core.errors import ConfigError
from paceline.core.explain.evidence import Evidence
from paceline.core.policies.policy import from_shorthand, is_served
from paceline.core.settings.config import Config
from paceline.launch.status.predictions import Predicted
from paceline_studies.simulator.scene import Scene
from paceline_studies.simulator.timing import timed

OTHERS = ("bsp", "ssp:3", "backup:1", "asp")
"""From the tightest to the loosest."""
_MOST = 50_000
"""Pushes that are simulated at most; of longer runs the first epochs."""


def other_policies(evidence: Evidence, examples: int, epochs: float, seconds: float) -> list[Predicted]:
    """What these epochs would have taken under other policies, quickest first. Each worker's step, exchange and a push's work
    at a server are as measured; by the present policy, which is simulated too, the simulator's times are scaled to the run's.
    Empty where the run can't be simulated: without servers, or without the figures of all workers. `examples`: of the training
    data; `epochs`, `seconds`: that the run has trained for."""
    config = evidence.config
    if len(evidence.workers) != config.workers or not is_served(config.policy) or not evidence.busiest.pushes:
        return []
    steps = max(1, examples // max(1, config.worker_batch))
    whole = max(1, min(round(epochs), _MOST // steps))
    same = config.model_copy(update={"epochs": whole, "slow": {}, "faults": ()})
    scene, values = scene_of(evidence), max(1, sum(server.slice_bytes for server in evidence.servers) // 4)
    try:
        scale = seconds / timed(same, scene, values, examples).seconds
    except ConfigError:
        return []
    found = [
        Predicted(name, scale * timed(other, scene, values, examples).seconds)
        for name in OTHERS
        if (other := _under(same, name)) is not None
    ]
    return sorted(found, key=lambda each: each.seconds)


def scene_of(evidence: Evidence) -> Scene:
    """The run's workers, links and servers as they were measured. The links carry no bytes' time: it is in what an exchange has
    taken."""
    steps = [worker.each("compute", "data") for worker in evidence.workers]
    usual, service = middle(steps), evidence.busiest.service
    return Scene(
        step=usual,
        speeds=",".join(f"{step / usual:.6f}" for step in steps),
        link="1000Gbit,0ms",
        links={worker.name: f"1000Gbit,{_latency(worker, service):.6f}ms" for worker in evidence.workers},
        shared=False,
        service=service,
        service_per_million=0,
    )


def _latency(worker: WorkerTime, service: float) -> float:
    """Of one way (milliseconds)."""
    return 500 * max(0.0, worker.each("exchange") - service)


def _under(config: Config, policy: str) -> Config | None:
    """The same run under another policy; None where it is the present one, or is refused."""
    wanted = from_shorthand(policy)
    if wanted == config.policy.model_dump():
        return None
    try:
        return Config.model_validate(config.model_dump(mode="json") | {"policy": wanted})
    except ValidationError:
        return None
