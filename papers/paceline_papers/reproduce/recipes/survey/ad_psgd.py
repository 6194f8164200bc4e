"""[Survey] AD-PSGD, comparison to other algorithms: AllReduce-SGD, D-PSGD, AD-PSGD and ASGD by epoch and by time, on fast and
slow networks, with a slow worker and with a slow link. The paper has words only."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import inf, nan
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from paceline_papers.reproduce.claims import Above, Apart, Claim, Fits, Numbers, RunFigures, slope
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.survey_on_digits import DIGITS, REACHED, TASKS, WORKERS, config_of, measured
from paceline_studies.simulator.links import Links

ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "AllReduce": {"name": "allreduce"},
    "D-PSGD": {"name": "dpsgd"},
    "AD-PSGD": {"name": "adpsgd"},
    "ASGD": {"name": "asp"},
}
PERIOD = "ASGD, period 4"
SERVED: Mapping[str, Mapping[str, Any]] = {"ASGD": ALGORITHMS["ASGD"], PERIOD: {"name": "downpour", "push_every": 4}}
OTHERS = ("AllReduce", "D-PSGD", "ASGD")
NETS = {"VGG": "connected", "ResNet": "convolutional"}
"""What stands for the paper's: much and little communication for a step."""
EPOCHS = 30
WARM_UP = {"ResNet": 3.0}
"""Epochs in which the rate rises to that of all workers. AllReduce ends low for one of five seeds; without them for two."""
SPEED = 500_000.0
"""Of a fast link: it takes the larger network in .07, the smaller one in .01 of a step (values in a step's time)."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """How fast its links and its workers are."""

    speed: float = SPEED
    slow: Mapping[str, str] = field(default_factory=dict)
    slower: Mapping[str, float] = field(default_factory=dict)


FAST, SLOW, HE1, HE2, LINK = "fast network", "slow network", "worker 10 x slower", "worker 100 x slower", "slow link"
LAST = WORKERS - 1
CLUSTERS = {
    FAST: Cluster(),
    SLOW: Cluster(SPEED / 10),
    HE1: Cluster(slow={str(LAST): "10x"}),
    HE2: Cluster(slow={str(LAST): "100x"}),
    LINK: Cluster(slower={f"worker-{LAST}": 20.0}),
}
COUNTS = (2, 4, 8, 16)
SIMILAR = 0.01
"""Largest difference of accuracies that is called similar."""
ROBUST = WORKERS / (WORKERS - 1) * 1.05
"""What is called robust: one slow worker of eight costs at most its share of the speed, and a twentieth."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row's runs."""

    algorithm: str
    net: str = "VGG"
    cluster: str = FAST
    workers: int = WORKERS

    @property
    def name(self) -> str:
        count = "" if self.workers == WORKERS else f", n = {self.workers}"
        return f"{self.net}, {self.cluster}: {self.algorithm}{count}"


BIG = "more data"
ROWS = {
    row.name: row
    for row in [
        *(Row(name, net, cluster) for net, cluster, name in product(NETS, (FAST, SLOW), ALGORITHMS)),
        *(Row(PERIOD, net, SLOW) for net in NETS),
        *(Row(name, "VGG", cluster) for cluster, name in product((HE1, HE2, LINK), ALGORITHMS)),
        *(Row("AD-PSGD", "ResNet", FAST, count) for count in COUNTS if count != WORKERS),
        *(Row(name, BIG) for name in ("AllReduce", "D-PSGD", "AD-PSGD")),
    ]
}


def run(around: Around, name: str, seed: int) -> Figures:
    row = ROWS[name]
    cluster = CLUSTERS[row.cluster]
    config = config_of(
        {**ALGORITHMS, **SERVED}[row.algorithm],
        "fine" if row.net == BIG else NETS[row.net],
        seed,
        EPOCHS,
        served=row.algorithm in SERVED,
        workers=row.workers,
        slow=cluster.slow,
        task=TASKS / "classes_in_classes.py" if row.net == BIG else DIGITS,
        data="fine" if row.net == BIG else "bundled",
        warm_up=WARM_UP.get(row.net, 0.0),
    )
    return measured(around, config, Links(cluster.speed, cluster.slower))


def draw(runs: Runs) -> Figure:
    shown = {cluster: {name: Row(name, "VGG", cluster).name for name in ALGORITHMS} for cluster in (FAST, SLOW, HE1)}
    panels = {
        cluster: {name: list(zip(*runs.of(row, "scores"), strict=True)) for name, row in rows.items()}
        for cluster, rows in shown.items()
    }
    places = {
        cluster: {name: list(np.mean(runs.of(row, "times"), axis=0)) for name, row in rows.items()}
        for cluster, rows in shown.items()
    }
    return lines(panels, places, "time (steps of an equal worker)", "test accuracy", log=True, marks=False)


AGREES, CANNOT = Verdict.AGREES, Verdict.CANNOT
SEEDS = "The seeds differ as much as the algorithms do."
LIKE = {
    AGREES: "All of them take the same steps on the mean of all workers' gradients or models.",
    CANNOT: "The mean of eight models is scored, which is ahead early on though each of them is behind; the seeds differ.",
    Verdict.DOES_NOT: "It is ahead: the mean of eight models is scored, which is smoother than AllReduce's one model.",
}
WORSE = {
    AGREES: "Each of its gradients is seven versions old.",
    CANNOT: "AllReduce's one large mini-batch takes rough steps at this rate, so its seeds differ most.",
}
KEPT = {AGREES: "The averaged models meet as the run ends.", CANNOT: WORSE[CANNOT]}
BIGGER = {
    AGREES: "With more steps an epoch the differences are small: they show because a seed trains all on the same examples.",
    CANNOT: SEEDS,
}
SOONER = {
    "AllReduce": {AGREES: "All wait for all in each of 14 hops.", CANNOT: WORSE[CANNOT]},
    "D-PSGD": {
        AGREES: "A worker sends its model to two neighbours and waits for both of theirs; AD-PSGD has one partner a step.",
        CANNOT: "Equal workers hardly wait for their neighbours, and messages travel during the gradient under both.",
    },
    "ASGD": {AGREES: "All workers share the server's link, and its gradients are stale.", CANNOT: SEEDS},
}
BEST = {AGREES: "Nobody waits but for one answer, which travels while the gradient is computed."}
LINEAR = {AGREES: "Messages travel while the gradient is computed; only those to the chief delay a step."}
SMALL_TASK = {
    Verdict.DOES_NOT: "On data this small more workers mean fewer steps of each until the end, and models that agree less.",
}
ROBUST_WHY = {
    AGREES: "All others go on; only who has drawn the slow one as a partner waits.",
    CANNOT: "The mean is within it, but scores of whole epochs make the time coarse.",
}
ORDERS = {
    AGREES: "In lock-step all go at the slow worker's pace.",
    CANNOT: "Ten times slower makes about ten times, which is where an order of magnitude begins.",
}
SUFFERS = {
    AGREES: "All wait for what travels over the slow link; of AD-PSGD's workers only its neighbours do, at times."
}
ONE_LINK = {
    AGREES: "All of ASGD's values go through the server's one link.",
    CANNOT: "Its model is small: even on the slow network the server's link is not yet full.",
}
PERIODS = {AGREES: "At the same rate, sums of four gradients that are seven pushes old diverge."}


@dataclass(frozen=True, kw_only=True)
class LowerBound(Fits):
    """A figure that is too small where a row never came to the accuracy, since the end of its run then stands for its time. So
    it is no evidence against the sentence."""

    late: str
    """That row."""

    def verdict(self, found: RunFigures, numbers: Numbers) -> Verdict:
        verdict = super().verdict(found, numbers)
        is_least = inf in found.of(self.late, "reached")
        return Verdict.CANNOT if is_least and verdict is Verdict.DOES_NOT else verdict


def later(upper: Row, lower: Row) -> Callable[[RunFigures], list[float]]:
    """How much longer one row takes than another, by seed: at least, where the former never gets there."""

    def figure(found: RunFigures) -> list[float]:
        pairs = zip(found.of(upper.name, "time"), found.of(lower.name, "reached"), strict=True)
        return [one - other for one, other in pairs]

    return figure


def ratio(upper: Row, lower: Row, column: str = "time") -> Callable[[RunFigures], list[float]]:
    """How many times as long one row takes as another, by seed: at least, where the former never gets there, or with "reached"
    infinitely; NaN where the latter does not."""

    def figure(found: RunFigures) -> list[float]:
        pairs = zip(found.of(upper.name, column), found.of(lower.name, "reached"), strict=True)
        return [one / other if other < inf else nan for one, other in pairs]

    return figure


def grows(row: Row) -> Callable[[RunFigures], list[float]]:
    """How much more its time grows from the fast network to this row's cluster than AD-PSGD's does (ratio)."""
    its = ratio(row, Row(row.algorithm, row.net))
    ours = ratio(Row("AD-PSGD", row.net, row.cluster), Row("AD-PSGD", row.net), "reached")
    return lambda found: [one - other for one, other in zip(its(found), ours(found), strict=True)]


def lead(net: str, cluster: str) -> Callable[[RunFigures], list[float]]:
    """How far AD-PSGD's speed-up is above the best of the others."""

    def figure(found: RunFigures) -> list[float]:
        ours, *others = (found.of(Row(name, net, cluster).name, "speed-up") for name in ("AD-PSGD", *OTHERS))
        return [one - max(each) for one, *each in zip(ours, *others, strict=True)]

    return figure


def gains(found: RunFigures) -> list[float]:
    """Of the speed-up over the number of workers."""
    columns = zip(*(found.of(Row("AD-PSGD", "ResNet", FAST, count).name, "speed-up") for count in COUNTS), strict=True)
    return [slope(COUNTS, column) for column in columns]


def like(says: str, why: Mapping[Verdict, str], column: str, row: Row, other: Row, most: float = SIMILAR) -> Apart:
    return Apart(says, why, column, row.name, other.name, low=-SIMILAR, high=most)


def by_epoch(net: str) -> Iterator[Claim]:
    """Comparison, epochs."""
    for name in ("D-PSGD", "AD-PSGD"):
        says = f"{net}: {name} converges like AllReduce by epoch"
        yield like(says, LIKE, "mean", Row(name, net), Row("AllReduce", net))
    for name in ("AllReduce", "D-PSGD", "AD-PSGD"):
        says = f"{net}: ASGD converges worse than {name} by epoch"
        yield Above(says, WORSE, "mean", Row(name, net).name, Row("ASGD", net).name)
    says = f"{net}: AD-PSGD does not sacrifice accuracy"
    yield like(says, KEPT, "last", Row("AD-PSGD", net), Row("AllReduce", net), inf)


def convergence(found: RunFigures) -> list[float]:
    """The slope of how many times sooner than two workers, twice over, n of them come to the accuracy."""
    columns = (found.of(Row("AD-PSGD", "ResNet", FAST, count).name, "reached") for count in COUNTS)
    every = zip(*columns, strict=True)
    return [slope(COUNTS, [COUNTS[0] * times[0] / time if time < inf else nan for time in times]) for times in every]


def by_time(net: str, cluster: str) -> Iterator[Claim]:
    """Comparison, run time."""
    ours = Row("AD-PSGD", net, cluster)
    for name in OTHERS:
        says = f"{net}, {cluster}: AD-PSGD converges faster than {name} by time"
        other = Row(name, net, cluster)
        yield LowerBound(says, SOONER[name], later(other, ours), 0.0, inf, late=other.name)
    yield Fits(f"{net}, {cluster}: AD-PSGD has the best speed-up", BEST, lead(net, cluster), 0.0, inf)


def robust(cluster: str) -> Fits:
    """AD-PSGD's time against that on the fast network."""
    ours = ratio(Row("AD-PSGD", "VGG", cluster), Row("AD-PSGD"), "reached")
    return Fits(f"{cluster}: AD-PSGD's convergence is robust", ROBUST_WHY, ours, -inf, ROBUST)


def suffers(which: str, why: Mapping[Verdict, str], row: Row) -> LowerBound:
    """It takes longer in this cluster, by more than AD-PSGD does."""
    return LowerBound(f"{which} suffers more than AD-PSGD", why, grows(row), 0.0, inf, late=row.name)


RECIPE = Recipe(
    number="AD-PSGD, comparison",
    shows="AllReduce, D-PSGD, AD-PSGD and ASGD by epoch, by time, with a slow worker or link",
    small="The digits with two convolutional networks, with (VGG) and without (ResNet) a large fully connected layer; made-up "
    "data of 100 classes instead of ImageNet. 8 workers, 30 epochs (ResNet: 3 of them warm-up), in virtual time with links "
    "of a known speed.",
    rows=list(ROWS),
    columns={
        "mean": Column("accuracy, mean over the epochs"),
        "last": Column("after the last epoch"),
        "reached": Column(f"time to accuracy {REACHED:g}", ".0f"),
        "speed-up": Column("speed-up", ".2f"),
        "waiting": Column("waiting for others", ".3f"),
    },
    run=run,
    draw=draw,
    claims=[
        *(claim for net in NETS for claim in by_epoch(net)),
        like(
            "more data: AD-PSGD converges like AllReduce by epoch",
            BIGGER,
            "mean",
            Row("AD-PSGD", BIG),
            Row("AllReduce", BIG),
        ),
        Above(
            "more data: AD-PSGD converges better than D-PSGD by epoch",
            BIGGER,
            "mean",
            Row("AD-PSGD", BIG).name,
            Row("D-PSGD", BIG).name,
        ),
        *(claim for net, cluster in product(NETS, (FAST, SLOW)) for claim in by_time(net, cluster)),
        Fits("n workers make n times as many steps in the same time: slope of the speed-up", LINEAR, gains, 0.9, 1.1),
        Fits("n workers converge n times faster: slope of that speed-up", SMALL_TASK, convergence, 0.9, 1.1),
        robust(HE2),
        *(
            LowerBound(
                f"{cluster}: AD-PSGD is faster than {name} by orders of magnitude",
                ORDERS,
                ratio(Row(name, "VGG", cluster), Row("AD-PSGD", "VGG", cluster)),
                10.0,
                inf,
                late=Row(name, "VGG", cluster).name,
            )
            for cluster, name in product((HE1, HE2), ("AllReduce", "D-PSGD"))
        ),
        robust(LINK),
        *(suffers(f"slow link: {name}", SUFFERS, Row(name, "VGG", LINK)) for name in ("AllReduce", "D-PSGD")),
        *(suffers(f"{net}, slow network: ASGD", ONE_LINK, Row("ASGD", net, SLOW)) for net in NETS),
        *(
            LowerBound(
                f"{net}, slow network: ASGD with a larger period is slower than AD-PSGD",
                PERIODS,
                later(Row(PERIOD, net, SLOW), Row("AD-PSGD", net, SLOW)),
                0.0,
                inf,
                late=Row(PERIOD, net, SLOW).name,
            )
            for net in NETS
        ),
    ],
    minutes=9,
    side_by_side=True,
    version=4,
)
