"""[Survey] DSSP, performance: BSP, ASP, SSP and DSSP with networks with and without fully connected layers, on workers that are
equal, of two kinds, or slow for a while. The paper has words only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from math import inf
from statistics import mean
from typing import Any

from matplotlib.figure import Figure

from paceline_papers.reproduce.claims import Above, Fits, RunFigures
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.survey_on_digits import WORKERS, config_of, measured

PARADIGMS: Mapping[str, Mapping[str, Any]] = {
    "BSP": {"name": "bsp"},
    "ASP": {"name": "asp"},
    "SSP": {"name": "ssp", "bound": 3},
    "DSSP": {"name": "dssp", "lower": 3, "upper": 15},
}
"""With the bounds of DSSP's paper; SSP has its lower one."""
NETS = {"fully connected": "connected", "convolutional": "convolutional"}
EPOCHS = 30
HORIZON = 200.0
"""Until when the accuracy over time counts; ASP with equal workers takes about 185 (steps of an equal worker)."""


@dataclass(frozen=True, slots=True)
class Workers:
    """How fast they are."""

    slow: Mapping[str, str] = field(default_factory=dict)
    spell: int = 1


ENVIRONMENTS = {
    "equal": Workers(),
    "mixed": Workers({str(rank): "2x" for rank in range(WORKERS // 2, WORKERS)}),
    "transient": Workers({"all": "3x@1%"}, spell=10),
}
"""All alike; half of them of a slower kind; each of them at times slow for ten steps."""


def row(net: str, environment: str, paradigm: str) -> str:
    return f"{net}, {environment}: {paradigm}"


ROWS = {row(*parts): parts for parts in product(NETS, ENVIRONMENTS, PARADIGMS)}


def run(around: Around, name: str, seed: int) -> Figures:
    net, environment, paradigm = ROWS[name]
    workers = ENVIRONMENTS[environment]
    config = config_of(PARADIGMS[paradigm], NETS[net], seed, EPOCHS, slow=workers.slow)
    found = measured(around, config, spell=workers.spell)
    scores, half = found["scores"], found["scores"][EPOCHS // 2 :]
    return {
        **found,
        "by_time": over_time(found["times"], scores),
        "falls": mean(max(0.0, before - after) for before, after in pairwise(half)),
    }


def over_time(times: Sequence[float], scores: Sequence[float]) -> float:
    """The mean accuracy from the start to HORIZON, 0 before the first score; the last score holds on."""
    ends = [min(time, HORIZON) for time in [*times[1:], inf]]
    spans = [max(0.0, end - time) for time, end in zip(times, ends, strict=True)]
    return sum(score * span for score, span in zip(scores, spans, strict=True)) / HORIZON


def draw(runs: Runs) -> Figure:
    shown = [(net, environment) for net, environment in product(NETS, ENVIRONMENTS) if environment != "transient"]
    panels, places = {}, {}
    for net, environment in shown:
        rows = {paradigm: row(net, environment, paradigm) for paradigm in PARADIGMS}
        title = f"{net}, {environment}"
        panels[title] = {name: list(zip(*runs.of(each, "scores"), strict=True)) for name, each in rows.items()}
        places[title] = {
            name: [mean(times) for times in zip(*runs.of(each, "times"), strict=True)] for name, each in rows.items()
        }
    return lines(panels, places, "time (steps of an equal worker)", "test accuracy", marks=False)


def steadier(environment: str, other: str) -> Callable[[RunFigures], list[float]]:
    """How much more another paradigm's accuracy falls between epochs than DSSP's, mean of both networks."""

    def figure(found: RunFigures) -> list[float]:
        each = [found.of(row(net, environment, name), "falls") for net, name in product(NETS, (other, "DSSP"))]
        return [(theirs - ours + its - own) / 2 for theirs, ours, its, own in zip(*each, strict=True)]

    return figure


WHY: Mapping[str, Mapping[Verdict, str]] = {
    "by_time, equal": {
        Verdict.CANNOT: "Equal workers are seldom four clocks apart, so SSP and DSSP hardly differ from ASP; BSP waits, and "
        "its gradients are fresh.",
    },
    "by_time": {
        Verdict.AGREES: "It waits less, and pushes that are a few clocks older do little harm.",
        Verdict.DOES_NOT: "ASP never waits, and older pushes do little harm to a network this small.",
        Verdict.CANNOT: "The seeds differ as much as the paradigms do.",
    },
    "highest": {
        Verdict.CANNOT: "After 30 epochs all of them know the digits, and a few of 270 test images decide.",
    },
    "falls": {
        Verdict.CANNOT: "Late in the run the accuracy falls by a few test images now and then, under all of them.",
    },
    "waiting": {
        Verdict.AGREES: "It waits for nobody up to three clocks, and grants put off what comes after them.",
        Verdict.CANNOT: "Both let a worker be some clocks ahead; how often it comes to the bound depends on the seed.",
    },
    "ahead": {
        Verdict.AGREES: "Grants end at the upper bound; under ASP nothing ends a lead.",
    },
}
"""By figure, and by environment where that matters."""


def above(says: str, column: str, net: str, environment: str, upper: str, lower: str) -> Above:
    why = WHY.get(f"{column}, {environment}", WHY[column])
    return Above(
        f"{net}, {environment}: {says}", why, column, row(net, environment, upper), row(net, environment, lower)
    )


CONNECTED, CONVOLUTIONAL = NETS

RECIPE = Recipe(
    number="DSSP, performance",
    shows="BSP, ASP, SSP and DSSP by network and kind of workers, with waiting times",
    small="The digits with two convolutional networks, one with fully connected layers; 8 workers, 30 epochs, in virtual time.",
    rows=list(ROWS),
    columns={
        "by_time": Column(f"accuracy, mean over the time to {HORIZON:g}"),
        "highest": Column("highest accuracy"),
        "falls": Column("mean fall from epoch to epoch"),
        "waiting": Column("share of time waiting", ".3f"),
        "ahead": Column("most clocks ahead", ".0f"),
    },
    run=run,
    draw=draw,
    claims=[
        *(
            above(f"DSSP converges faster than {other}", "by_time", CONNECTED, environment, "DSSP", other)
            for environment, other in [*product(("equal", "transient"), ("BSP", "ASP", "SSP")), ("mixed", "ASP")]
        ),
        *(
            above(f"DSSP has a higher accuracy than {other}", "highest", CONNECTED, "equal", "DSSP", other)
            for other in ("ASP", "SSP")
        ),
        above("BSP reaches the highest accuracy, given time", "highest", CONNECTED, "equal", "BSP", "DSSP"),
        above("DSSP has a distinctly better accuracy than BSP", "highest", CONVOLUTIONAL, "equal", "DSSP", "BSP"),
        above("DSSP has a slightly better accuracy than SSP", "highest", CONVOLUTIONAL, "equal", "DSSP", "SSP"),
        *(
            Fits(
                f"{environment}: DSSP is more stable than {other}", WHY["falls"], steadier(environment, other), 0.0, inf
            )
            for environment, other in product(("equal", "mixed"), ("BSP", "ASP", "SSP"))
        ),
        *(
            above(f"DSSP converges {how} than {other}", column, net, "mixed", "DSSP", other)
            for net, (how, column), other in product(
                NETS, (("much faster", "by_time"), ("to a higher accuracy", "highest")), ("BSP", "SSP")
            )
        ),
        *(
            above(f"DSSP waits less than {other}", "waiting", CONNECTED, environment, other, "DSSP")
            for environment, other in product(ENVIRONMENTS, ("BSP", "SSP"))
        ),
        *(
            above("DSSP limits the delays, unlike ASP", "ahead", CONNECTED, environment, "ASP", "DSSP")
            for environment in ("mixed", "transient")
        ),
    ],
    minutes=5,
    side_by_side=True,
)
