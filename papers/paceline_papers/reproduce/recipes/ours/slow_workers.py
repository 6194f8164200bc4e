"""K-buffered, DANA and backup against ASP and BSP, with equal workers and with a slow one: what docs/choose/policies.md says of
them. The clusters are [SHAT]'s (section 4.3)."""

from itertools import product
from math import inf
from typing import Any

from matplotlib.figure import Figure

from paceline_papers.reproduce.claims import Above, Apart
from paceline_papers.reproduce.recipe import Around, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.user_on_digits import AS_GOOD, COLUMNS, SMALL, WORKERS, by_workers, drawn, row

POLICIES: dict[str, dict[str, Any]] = {
    "BSP": {"name": "bsp"},
    "backup": {"name": "backup", "backups": 1},
    "ASP": {"name": "asp"},
    "K-buffered": {"name": "kbuffered"},
    "DANA": {"name": "dana"},
}
CLUSTERS = {"HO": "", "HE0": "2x", "HE1": "10x", "HE2": "100x"}
MIDDLE = 8
ROWS = {row(policy, cluster): (policy, cluster) for policy, cluster in product(POLICIES, CLUSTERS)}


def run(around: Around, name: str, seed: int) -> Figures:
    policy, cluster = ROWS[name]
    return by_workers(around, POLICIES[policy], seed, slow=CLUSTERS[cluster])


def draw(runs: Runs) -> Figure:
    return drawn(runs, POLICIES, CLUSTERS)


def as_good(policy: str, cluster: str) -> Apart:
    return Apart(
        f"{policy}, {cluster}, {MIDDLE} workers: at most a point below BSP",
        {Verdict.AGREES: "Rate and momentum are translated, so that a step means what it does in one process."},
        f"accuracy-{MIDDLE}",
        row(policy, cluster),
        row("BSP", cluster),
        low=-AS_GOOD,
        high=inf,
    )


RECIPE = Recipe(
    number="Slow workers",
    shows="accuracy and time of K-buffered, DANA and backup against ASP and BSP",
    small=SMALL,
    rows=list(ROWS),
    columns=COLUMNS,
    run=run,
    draw=draw,
    claims=[
        *(as_good(policy, cluster) for policy, cluster in product(("backup", "K-buffered", "DANA"), CLUSTERS)),
        *(
            Above(
                f"{cluster}, {count} workers: {policy} takes less time than BSP",
                {Verdict.AGREES: "It waits for no slow worker, and BSP does in each round."},
                f"time-{count}",
                row("BSP", cluster),
                row(policy, cluster),
            )
            for policy, cluster, count in product(("backup", "K-buffered"), ("HE1", "HE2"), WORKERS)
        ),
        *(
            Above(
                f"HE2, {count} workers: without the slow worker's data backup ends below BSP",
                {
                    Verdict.CANNOT: "The other workers' examples are about enough for this data set.",
                    Verdict.DOES_NOT: "The other workers' examples are enough for this data set, and it sees them more often.",
                },
                f"accuracy-{count}",
                row("BSP", "HE2"),
                row("backup", "HE2"),
            )
            for count in WORKERS
        ),
        *(
            Above(
                f"{cluster}, {MIDDLE} workers: K-buffered ends above ASP, whose steps are noisier",
                {Verdict.CANNOT: "At ASP's translated rate a single push is small, so its noise hardly matters."},
                f"accuracy-{MIDDLE}",
                row("K-buffered", cluster),
                row("ASP", cluster),
            )
            for cluster in CLUSTERS
        ),
        *(
            Apart(
                f"{cluster}, {MIDDLE} workers: DANA ends where ASP does, whose workers keep their momentum, too",
                {Verdict.AGREES: "With Paceline's translation of momentum both take the same steps."},
                f"accuracy-{MIDDLE}",
                row("DANA", cluster),
                row("ASP", cluster),
                low=0.0,
                high=0.0,
            )
            for cluster in CLUSTERS
        ),
        Apart(
            f"BSP ends with one 10 times slower, {MIDDLE} workers, where it does with equal ones",
            {Verdict.AGREES: "A round has the same gradients, however long it takes."},
            f"accuracy-{MIDDLE}",
            row("BSP", "HE1"),
            row("BSP", "HO"),
            low=0.0,
            high=0.0,
        ),
    ],
    minutes=5,
    seeds=8,
    side_by_side=True,
)
