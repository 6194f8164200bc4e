"""What is compared of real workers and simulated ones."""

import pytest

from paceline.core.settings.config import Config
from paceline_papers.reproduce.processes import Stepped, Worked
from paceline_papers.reproduce.recipe import Runs
from paceline_papers.reproduce.recipes.ours.simulator import RECIPE, ROWS, STEP, apart, slow_of
from paceline_papers.reproduce.simulated import StepTimes, real_of, scene_of, simulated_of
from paceline_studies.simulator.timing import timed


def worked(*steps: Stepped) -> Worked:
    return Worked(len(steps), sum(step.lasted for step in steps), 0.0, None, list(steps))


def test_waiting_is_what_is_left_of_a_step() -> None:
    """Also where a server has counted it to the exchange: the last step's 0.9 s."""
    steps = [Stepped(0.11, 0.1, 0.0, 2)] * 9 + [Stepped(1.0, 0.1, 0.0, 4)]

    told = real_of([worked(*steps)])

    assert told.step == pytest.approx(0.199)
    assert told.staleness == pytest.approx(2.2)
    assert told.waited == pytest.approx(0.099 - 0.01)


def test_a_scene_has_the_workers_own_times_without_their_pauses() -> None:
    config = Config(workers=2, slow={"all": "2x", "1": "10x"}, nominal_step=STEP)
    equal, slow = (worked(*[Stepped(0.03 + pause, 0.02 + pause, 0.0, 0)] * 5) for pause in (STEP, 10 * STEP))

    scene = scene_of(config, [equal, slow])

    assert scene.step == pytest.approx(0.02)
    assert scene.jitter == pytest.approx(0, abs=1e-6)
    assert scene.link == "100Gbit,5.000000ms"


def test_a_simulation_is_told_as_a_real_run_is() -> None:
    config = Config(workers=2, servers=1, policy={"name": "bsp"}, slow=slow_of("HE1", 2), nominal_step=STEP, epochs=1)
    scene = scene_of(config, [worked(*[Stepped(0.02 + STEP, 0.01 + STEP, 0.0, 0)] * 5)])

    told = simulated_of(timed(config, scene, values=100, examples=320))

    assert told == StepTimes(pytest.approx(10 * STEP + 0.02, rel=0.01), 0.0, pytest.approx(9 * STEP / 2, rel=0.01))


def test_the_largest_difference_is_told() -> None:
    same = dict.fromkeys(("step", "staleness", "waited"), 10.0)
    equal = same | {f"simulated-{name}": value for name, value in same.items()}
    known = {(row, seed): dict(equal) for row in ROWS for seed in (0, 1)}
    known["8 workers, HE1: bsp", 1] |= {"simulated-step": 12.0, "simulated-waited": 7.0}
    runs = Runs(RECIPE, 2, known)

    assert apart(runs, "bsp", "step") == pytest.approx([0, 20])
    assert apart(runs, "bsp", "waited") == pytest.approx([0, 30])
    assert apart(runs, "bsp", "staleness") == apart(runs, "asp", "step") == [0, 0]
