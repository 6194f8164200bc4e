"""What workers that come and go cost: the examples a second in the model, as a share of what the seconds of present workers
allow, for each policy, in virtual time. Run: python -m benchmarks.churn"""

import argparse
import time

from paceline.core.policies.policy import from_shorthand
from paceline.core.settings.config import Config, Options
from paceline_studies.simulator.scene import Scene
from paceline_studies.simulator.timing import timed

POLICIES = ("asp", "ssp:3", "easgd:16", "bsp", "local_sgd:4", "local_sgd:16")
_BATCH = 32


def goodput(policy: str, workers: int, scene: Scene, steps: int, servers: int = 1, seed: int = 0) -> float:
    """Returns the share (ratio) for `steps` mini-batches of each worker, had nobody been away."""
    config = Config(
        workers=workers,
        servers=servers,
        policy=Options(**from_shorthand(policy)),
        epochs=1,
        batch="worker",
        batch_size=_BATCH,
        seed=seed,
    )
    found = timed(config, scene, 100_000, steps * _BATCH * workers)
    present = sum(each.compute + each.push + each.wait + each.pull for each in found.workers)
    return (found.examples - found.dropped) / (present / scene.step * _BATCH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=256)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--away", default="1/30s:30s", help="how long each lives on average, and is away then")
    parser.add_argument("--step", type=float, default=0.2, help="mean time of a mini-batch (seconds)")
    parser.add_argument("--steps", type=int, default=1000, help="of each worker, had nobody been away")
    parser.add_argument("--policy", action="append", help="only this one (may be repeated)")
    asked = parser.parse_args()
    scene = Scene(step=asked.step, away=asked.away)

    print(f"{asked.workers} workers, away {asked.away}, {asked.step:g} s a mini-batch, virtual time")
    for policy in asked.policy or POLICIES:
        began = time.monotonic()
        share = goodput(policy, asked.workers, scene, asked.steps, asked.servers)
        print(f"{policy:14} {share:5.2f}   ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
