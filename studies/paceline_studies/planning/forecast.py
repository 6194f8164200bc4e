"""What each way to run would give: a part of its training in virtual time, and what its network and cores allow."""

import statistics

from paceline.core.policies.policy import build_policy
from paceline.core.slice.plan import Shapes
from paceline.launch.this_machine.capacity import too_many
from paceline_studies.planning.choices import Choice
from paceline_studies.planning.figures import Figures, batch_of
from paceline_studies.planning.rows import Row, Site
from paceline_studies.planning.sizes import plan_report
from paceline_studies.simulator.scene import Scene
from paceline_studies.simulator.timing import timed

PUSHES = 200
"""Of each worker, that are played in virtual time."""
FULL = 0.9
"""What share of the time something is busy that counts as full (ratio)."""


def forecast(choice: Choice, figures: Figures, shapes: Shapes, place: Site) -> Row:
    """Plays a part of this training in virtual time."""
    config, policy = choice.config, build_policy(choice.config.policy)
    batch, is_dense = batch_of(config), config.updates == "dense"
    step = figures.step(batch)
    values = figures.values if is_dense else max(1, round(figures.sent / 4))
    scene = Scene(
        step=step.seconds + figures.exchange / policy.most_steps,
        speeds=place.speeds,
        link=place.link,
        service=figures.fixed_service,
        service_per_million=(figures.service - figures.fixed_service) / max(1, values) * 1e6,
    )
    pushes = min(
        PUSHES * config.workers, max(1, figures.examples_of(config) * config.epochs // (batch * policy.most_steps))
    )
    at_once = {} if is_dense else {"batch": "worker", "batch_size": batch}
    played = config.model_copy(update={"epochs": 1, "stopping": None, "budget": "total"} | at_once)
    tensors = shapes if is_dense else None
    found = timed(played, scene, values, pushes * batch * policy.most_steps, config.seed, tensors)
    served = figures.served(config.servers) if config.servers else 0.0
    rate, full = found.examples / found.seconds, ""
    a_push = batch * policy.most_steps / rate
    traffic = plan_report(config, shapes, place.bandwidth)["traffic"]
    ceiling = None
    if place.cores is None and config.servers and is_dense:
        ceiling = traffic["steps_per_second"] * batch * policy.most_steps
        full = "links" if rate > FULL * ceiling else ""
    if config.servers and served / config.servers / a_push > FULL:
        full = "servers"
    if place.cores is not None:
        most = place.cores / (step.cpu * policy.most_steps + served) * batch * policy.most_steps if step.cpu else rate
        rate, full = (most, "cores") if most < rate else (rate, full)
    seconds = config.epochs * figures.examples_of(config) / rate
    lacks = "" if place.cores is None else _lacks(choice, figures, place)
    cost = None if place.prices is None else place.prices.of(config.workers, config.server_processes, seconds)
    return Row(
        choice,
        rate * (1 - found.dropped / found.examples),
        ceiling,
        found.staleness.mean,
        found.staleness.max,
        statistics.fmean(each.wait for each in found.workers) / found.seconds,
        seconds,
        full,
        cost,
        lacks,
    )


def _lacks(choice: Choice, figures: Figures, place: Site) -> str:
    """Why one machine can't run it."""
    assert place.cores is not None
    if (found := too_many(choice.config, place.cores, place.free)) is not None:
        return found
    need = choice.workers * (figures.worker_memory or 0)
    return f"{choice.workers} workers need {need / 2**30:.1f} GiB of memory" if need > place.free else ""
