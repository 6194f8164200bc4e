"""[Sharding] Table II: final loss and accuracy on CIFAR-10, mean of its five runs, by sharding method."""

from paceline.reproduce.recipe import Recipe
from paceline.reproduce.sharding_methods import COLUMNS, SEEDS, claims, draw, methods, numbers, run_of
from paceline.reproduce.sharding_on_cifar import full_of
from paceline.reproduce.tasks import digits_with_test

ROWS = methods((20, 30, 40))
TASK = str(digits_with_test.__file__)
PAPER = numbers(
    list(ROWS),
    [
        (0.165786, 0.92, 0.44237, 0.935489),
        (0.165751, 0.922397, 0.444076, 0.935396),
        (0.165237, 0.921583, 0.445127, 0.935291),
        (0.165166, 0.922218, 0.442075, 0.935885),
        (0.165046, 0.921884, 0.441692, 0.935127),
    ],
)
DEVIATIONS = {"training_accuracy": (0.001086, 0.000736), "validation_accuracy": (0.000863, 0.000284)}
"""The paper's, of random and of stratified shards."""

RECIPE = Recipe(
    number="Table II",
    shows="loss and accuracy on CIFAR-10 by sharding method",
    small="The digits with 12 workers and 2 servers, 10 epochs, in virtual time.",
    rows=list(ROWS),
    columns=COLUMNS,
    run=run_of(ROWS, TASK, None, "bundled", epochs=10),
    draw=draw,
    paper=PAPER,
    claims=claims(DEVIATIONS, "distribution-aware, 30", "distribution-aware, 40"),
    minutes=2,
    seeds=SEEDS,
    side_by_side=True,
    full=full_of(ROWS, "cifar10"),
    version=3,
)
