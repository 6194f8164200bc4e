"""[Sharding]'s Tables II, IV and V: the same runs and sentences, with other data and numbers."""

from collections.abc import Sequence

from paceline_papers.reproduce.recipe import Recipe
from paceline_papers.reproduce.sharding_methods import COLUMNS, SEEDS, Spread, claims, draw, methods, numbers, run_of
from paceline_papers.reproduce.sharding_on_cifar import full_of

EPOCHS = 10
"""Of the small size."""


def table(
    *,
    number: str,
    shows: str,
    small: str,
    clusters: Sequence[int],
    task: str,
    model: str | None,
    data: str,
    full: str,
    means: Sequence[Sequence[float]],
    deviations: Sequence[Sequence[float]],
    spreads: Sequence[Spread],
    most_accurate: str,
    least_loss: str,
    minutes: float,
    version: int,
) -> Recipe:
    """Returns the recipe. `clusters`: of the distribution-aware rows, which follow random and stratified. `task`, `model` and
    `data` are of the small size; `full` is the task of the paper's. `means` and `deviations` are the paper's, by row and
    column. `spreads`: which deviations its text compares; `most_accurate`, `least_loss`: the rows that it calls best."""
    rows = methods(clusters)
    names = list(rows)
    theirs = numbers(names, deviations)
    return Recipe(
        number=number,
        shows=shows,
        small=small,
        rows=names,
        columns=COLUMNS,
        run=run_of(rows, task, model, data, EPOCHS),
        draw=draw,
        paper=numbers(names, means),
        deviations=theirs,
        claims=claims(theirs, spreads, most_accurate, least_loss),
        minutes=minutes,
        seeds=SEEDS,
        side_by_side=True,
        full=full_of(rows, full),
        version=version,
    )
