"""What [Actors]' recipes have in common: XOR in virtual time, the best of three rates, and the forms in which decentralised
training can be understood."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from paceline.core.settings.config import Options
from paceline_papers.reproduce.actors_virtual import ASP, LENGTH, Experiment, Setting, Trained
from paceline_papers.reproduce.recipe import Figures

WORKERS, EXAMPLES = 25, 2000
"""The paper's: data shards, and examples of each."""
DELAY = 1.0
"""Mean time that a message is under way (steps)."""
RATES, CENTRAL_RATES = (0.2, 0.5, 0.8), (0.3, 0.5, 0.7)
"""The paper says that there are three; these are its authors' program's."""
DEVIATION = 0.2
"""Of the first weights, as in that program."""


@dataclass(frozen=True, slots=True)
class Form:
    """How decentralised training and its error are understood."""

    told: str
    own: str
    is_programs: bool = False
    """Whether it is as in the authors' program where that is not what the paper says."""

    def error(self, run: Trained) -> float:
        """What the best rate is chosen by."""
        return run.published if self.is_programs else run.error


FORMS: Mapping[str, Form] = {
    "paper": Form("as the paper describes it, the sender takes its whole gradient", "gradient"),
    "program": Form("as the authors' program does it", "gradient", is_programs=True),
}
SHOWN = ("paper", "program")
"""The forms that are compared with the paper's numbers."""


def setting_of(
    seed: int, workers: int = WORKERS, examples: int = EXAMPLES, delay: float = DELAY, own_first: bool = False
) -> Setting:
    """Data, first weights (`own_first`: of each worker others) and schedule of a seed."""
    draw = np.random.default_rng(seed)
    corners = draw.integers(0, 4, (workers, examples))
    first = draw.normal(scale=DEVIATION, size=(workers, LENGTH)).astype(np.float32)
    return Setting(corners, list(first) if own_first else [first[0]] * workers, delay, seed)


def broadcast(tau: float, own: str) -> Options:
    """The policy, full form."""
    return Options(name="broadcast", tau=tau, own=own)


def best(form: str, tau: float | None, seed: int, workers: int = WORKERS, examples: int = EXAMPLES) -> Figures:
    """Error and updates at the best of the three rates [Actors 3.1, the cross-validator]. `tau`: None for centralised."""
    how = FORMS[form]
    setting = setting_of(seed, workers, examples, own_first=how.is_programs)

    def train(rate: float) -> Trained:
        policy = ASP if tau is None else broadcast(tau, how.own)
        return Experiment(setting, rate, policy, output_only=how.is_programs).run()

    run = min((train(rate) for rate in (CENTRAL_RATES if tau is None else RATES)), key=how.error)
    return {"error": how.error(run), "updates": run.updates}
