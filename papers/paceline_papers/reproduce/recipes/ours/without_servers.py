"""SGP, GoSGD, broadcast and dense `everyone` against BSP and ASP: what docs/choose/without-servers.md and
docs/choose/rates.md#accuracy-of-every-policy say of them. HE1 is [SHAT]'s cluster with one worker ten times slower."""

from itertools import product
from math import inf

from matplotlib.figure import Figure

from paceline_papers.reproduce.claims import Above, Fits, RunFigures
from paceline_papers.reproduce.recipe import Around, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.user_on_digits import AS_GOOD, COLUMNS, SMALL, WORKERS, by_workers, drawn, row

SERVERS = {"bsp": 1, "asp": 1, "everyone": 1, "sgp": 0, "gosgd": 0, "broadcast": 0}
"""Of each policy."""
CLUSTERS = {"HO": "", "HE1": "10x"}
ROWS = {row(policy, cluster): (policy, cluster) for policy, cluster in product(SERVERS, CLUSTERS)}


def run(around: Around, name: str, seed: int) -> Figures:
    policy, cluster = ROWS[name]
    return by_workers(around, {"name": policy}, seed, SERVERS[policy], CLUSTERS[cluster])


def draw(runs: Runs) -> Figure:
    return drawn(runs, SERVERS, CLUSTERS)


def mean_above(policy: str, cluster: str, found: RunFigures) -> list[float]:
    """Accuracy above BSP's, by seed: the mean over the numbers of workers."""
    columns = [
        (found.of(row(policy, cluster), f"accuracy-{n}"), found.of(row("bsp", cluster), f"accuracy-{n}"))
        for n in WORKERS
    ]
    return [sum(ours[seed] - bsp[seed] for ours, bsp in columns) / len(WORKERS) for seed in range(len(columns[0][0]))]


def as_good(policy: str, cluster: str) -> Fits:
    return Fits(
        f"{policy}, {cluster}: at most a point below bsp, in the mean over {', '.join(map(str, WORKERS))} workers",
        {
            Verdict.AGREES: "It steps at a rate that Paceline has translated for it.",
            Verdict.CANNOT: "The mean is about a point below, or more, and the seeds differ by as much.",
        },
        lambda found: mean_above(policy, cluster, found),
        -AS_GOOD,
        inf,
    )


RECIPE = Recipe(
    number="Without servers",
    shows="accuracy of sgp, gosgd, broadcast and everyone against bsp and asp",
    small=SMALL,
    rows=list(ROWS),
    columns=COLUMNS,
    run=run,
    draw=draw,
    claims=[
        *(as_good(*case) for case in product(("everyone", "sgp", "gosgd", "broadcast"), CLUSTERS)),
        *(
            Above(
                f"HE1, {count} workers: everyone ends below asp, since it steps only when the slowest has pushed",
                {Verdict.AGREES: "It makes about a tenth of the steps that it makes with equal workers."},
                f"accuracy-{count}",
                row("asp", "HE1"),
                row("everyone", "HE1"),
            )
            for count in WORKERS
        ),
        *(
            Above(
                f"{cluster}, {count} workers: gosgd's models are looser, so it ends below sgp",
                {
                    Verdict.AGREES: "A model meets another now and then, instead of one in each step.",
                    Verdict.CANNOT: "The mean of all models is scored, which hides how far four of them are apart.",
                },
                f"accuracy-{count}",
                row("sgp", cluster),
                row("gosgd", cluster),
            )
            for cluster, count in product(CLUSTERS, WORKERS)
        ),
        *(
            Above(
                f"HE1, {count} workers: {policy} waits for nothing, so it takes less time than sgp",
                {Verdict.AGREES: "With sgp all wait for the slow one, since each waits for the one that sends to it."},
                f"time-{count}",
                row("sgp", "HE1"),
                row(policy, "HE1"),
            )
            for policy, count in product(("gosgd", "broadcast"), WORKERS)
        ),
    ],
    minutes=5,
    seeds=8,
    side_by_side=True,
)
