"""[Sharding] Table V: final loss and accuracy on CIFAR-100 by its 100 fine labels."""

from paceline.reproduce.recipe import Recipe
from paceline.reproduce.sharding_methods import COLUMNS, SEEDS, claims, draw, methods, numbers, run_of
from paceline.reproduce.sharding_on_cifar import full_of
from paceline.reproduce.tasks import classes_in_classes

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
DEVIATIONS = {
    "training_accuracy": (0.007855, 0.003107),
    "validation_loss": (0.026051, 0.011633),
    "validation_accuracy": (0.002222, 0.001225),
}
"""The paper's, of random and of stratified shards."""

RECIPE = Recipe(
    number="Table V",
    shows="loss and accuracy on CIFAR-100, fine labels",
    small="Made-up data with 100 classes, 12 workers and 2 servers, 10 epochs, in virtual time.",
    rows=list(ROWS),
    columns=COLUMNS,
    run=run_of(ROWS, str(classes_in_classes.__file__), "fine", "fine", epochs=10),
    draw=draw,
    paper=PAPER,
    claims=claims(DEVIATIONS, "stratified", "distribution-aware, 200"),
    minutes=5,
    seeds=SEEDS,
    side_by_side=True,
    full=full_of(ROWS, "cifar100"),
    version=2,
)
