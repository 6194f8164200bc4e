"""[Sharding] Table V: final loss and accuracy on CIFAR-100 by its 100 fine labels."""

from paceline_papers.reproduce.sharding_methods import VALIDATION, Spread
from paceline_papers.reproduce.sharding_tables import table
from paceline_papers.reproduce.tasks import classes_in_classes

CLUSTERS = (50, 100, 200)
AWARE = [f"distribution-aware, {count}" for count in CLUSTERS]
SPREADS: list[Spread] = [
    *((column, "random", "stratified") for column in ("training_accuracy", *VALIDATION)),
    *(("validation_loss", "random", aware) for aware in AWARE),
]
"""The text has distribution-aware shards vary less than random ones in validation; in its table their accuracy varies more."""

RECIPE = table(
    number="Table V",
    shows="loss and accuracy on CIFAR-100, fine labels",
    small="Made-up data with 100 classes, 12 workers and 2 servers, 10 epochs, in virtual time.",
    clusters=CLUSTERS,
    task=str(classes_in_classes.__file__),
    model="fine",
    data="fine",
    full="cifar100",
    means=[
        (0.512164, 0.744448, 1.841267, 0.704707),
        (0.516125, 0.744203, 1.817435, 0.708432),
        (0.513846, 0.746785, 1.835961, 0.707048),
        (0.521913, 0.743808, 1.851682, 0.703488),
        (0.51034, 0.746949, 1.839176, 0.708234),
    ],
    deviations=[
        (0.00955, 0.007855, 0.026051, 0.002222),
        (0.009296, 0.003107, 0.011633, 0.001225),
        (0.004085, 0.000764, 0.01968, 0.004526),
        (0.008164, 0.005842, 0.015945, 0.003561),
        (0.006247, 0.001134, 0.013421, 0.002264),
    ],
    spreads=SPREADS,
    most_accurate="stratified",
    least_loss="distribution-aware, 200",
    minutes=5,
    version=2,
)
