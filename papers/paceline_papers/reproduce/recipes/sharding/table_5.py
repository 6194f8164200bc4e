"""[Sharding] Table V: final loss and accuracy on CIFAR-100 by its 100 fine labels."""

from paceline_papers.reproduce.recipe import Recipe
from paceline_papers.reproduce.sharding_methods import (
    COLUMNS,
    SEEDS,
    VALIDATION,
    Spread,
    claims,
    draw,
    methods,
    numbers,
    run_of,
)
from paceline_papers.reproduce.sharding_on_cifar import full_of
from paceline_papers.reproduce.tasks import classes_in_classes

ROWS = methods((50, 100, 200))
PAPER = numbers(
    list(ROWS),
    [
        (0.512164, 0.744448, 1.841267, 0.704707),
        (0.516125, 0.744203, 1.817435, 0.708432),
        (0.513846, 0.746785, 1.835961, 0.707048),
        (0.521913, 0.743808, 1.851682, 0.703488),
        (0.51034, 0.746949, 1.839176, 0.708234),
    ],
)
DEVIATIONS = numbers(
    list(ROWS),
    [
        (0.00955, 0.007855, 0.026051, 0.002222),
        (0.009296, 0.003107, 0.011633, 0.001225),
        (0.004085, 0.000764, 0.01968, 0.004526),
        (0.008164, 0.005842, 0.015945, 0.003561),
        (0.006247, 0.001134, 0.013421, 0.002264),
    ],
)
SPREADS: list[Spread] = [
    *((column, "random", "stratified") for column in ("training_accuracy", *VALIDATION)),
    *(("validation_loss", "random", aware) for aware in list(ROWS)[2:]),
]
"""The text has distribution-aware shards vary less than random ones in validation; in its table their accuracy varies more."""

RECIPE = Recipe(
    number="Table V",
    shows="loss and accuracy on CIFAR-100, fine labels",
    small="Made-up data with 100 classes, 12 workers and 2 servers, 10 epochs, in virtual time.",
    rows=list(ROWS),
    columns=COLUMNS,
    run=run_of(ROWS, str(classes_in_classes.__file__), "fine", "fine", epochs=10),
    draw=draw,
    paper=PAPER,
    deviations=DEVIATIONS,
    claims=claims(DEVIATIONS, SPREADS, "stratified", "distribution-aware, 200"),
    minutes=5,
    seeds=SEEDS,
    side_by_side=True,
    full=full_of(ROWS, "cifar100"),
    version=2,
)
