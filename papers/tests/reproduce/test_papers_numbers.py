"""The papers' numbers, read from their texts a second time: a wrong digit in a recipe is found here. And wrong numbers, planted
among the finished runs, change what is said."""

import json
from collections.abc import Mapping, Sequence
from math import isinf
from pathlib import Path
from statistics import mean

import pytest

from paceline_papers.reproduce import page
from paceline_papers.reproduce.artefacts import known, wanted
from paceline_papers.reproduce.claims import Between, MoreSpread, Numbers
from paceline_papers.reproduce.making import RUNS, makings
from paceline_papers.reproduce.recipe import Recipe, Runs
from paceline_papers.reproduce.recipes.actors import fig_3
from paceline_papers.reproduce.recipes.sharding import fig_7
from paceline_papers.reproduce.rule import Verdict
from tests.support.tree import ROOT

METRICS = ("training_loss", "training_accuracy", "validation_loss", "validation_accuracy")
SHARDING: Mapping[str, Mapping[str, Sequence[float]]] = {
    "sharding/table-2": {
        "random": (0.165786, 0.001567, 0.920000, 0.001086, 0.442370, 0.006174, 0.935489, 0.000863),
        "stratified": (0.165751, 0.001312, 0.922397, 0.000736, 0.444076, 0.005401, 0.935396, 0.000284),
        "distribution-aware, 20": (0.165237, 0.002471, 0.921583, 0.004059, 0.445127, 0.004059, 0.935291, 0.000648),
        "distribution-aware, 30": (0.165166, 0.001270, 0.922218, 0.000128, 0.442075, 0.003431, 0.935885, 0.000550),
        "distribution-aware, 40": (0.165046, 0.000761, 0.921884, 0.000851, 0.441692, 0.011402, 0.935127, 0.001358),
    },
    "sharding/table-4": {
        "random": (0.352169, 0.004761, 0.811742, 0.003103, 1.216487, 0.010065, 0.805993, 0.004452),
        "stratified": (0.346032, 0.001903, 0.814008, 0.000766, 1.232794, 0.006096, 0.805841, 0.000728),
        "distribution-aware, 30": (0.349379, 0.003350, 0.812987, 0.002031, 1.219970, 0.009967, 0.806072, 0.000931),
        "distribution-aware, 40": (0.350087, 0.001738, 0.812330, 0.000535, 1.211612, 0.008745, 0.806237, 0.002374),
        "distribution-aware, 60": (0.347240, 0.001893, 0.812624, 0.001138, 1.209313, 0.021793, 0.805775, 0.003009),
    },
    "sharding/table-5": {
        "random": (0.512164, 0.009550, 0.744448, 0.007855, 1.841267, 0.026051, 0.704707, 0.002222),
        "stratified": (0.516125, 0.009296, 0.744203, 0.003107, 1.817435, 0.011633, 0.708432, 0.001225),
        "distribution-aware, 50": (0.513846, 0.004085, 0.746785, 0.000764, 1.835961, 0.019680, 0.707048, 0.004526),
        "distribution-aware, 100": (0.521913, 0.008164, 0.743808, 0.005842, 1.851682, 0.015945, 0.703488, 0.003561),
        "distribution-aware, 200": (0.510340, 0.006247, 0.746949, 0.001134, 1.839176, 0.013421, 0.708234, 0.002264),
    },
}
"""Mean and deviation of each metric, in the tables' order."""
TIMES_LESS = {
    ("sharding/table-2", "training_accuracy", "random", "stratified"): 1.47,
    ("sharding/table-2", "validation_accuracy", "random", "stratified"): 3.03,
    ("sharding/table-2", "training_accuracy", "random", "distribution-aware, 30"): 8.48,
    ("sharding/table-2", "validation_accuracy", "random", "distribution-aware, 30"): 1.57,
    ("sharding/table-4", "validation_loss", "random", "stratified"): 1.65,
    ("sharding/table-4", "validation_accuracy", "random", "stratified"): 6.11,
    ("sharding/table-5", "validation_loss", "random", "stratified"): 2.23,
    ("sharding/table-5", "validation_accuracy", "random", "stratified"): 1.81,
}
"""By which the text says that the latter method varies less; its 1.21 times in Table IV is not what the table has."""
SPARSE = {
    20: ((2, 1, 0.9352), (1, 1, 0.9345), (3, 1, 0.9361)),
    30: ((6, 2.83, 0.9351), (6, 1.17, 0.9361), (4, 1.25, 0.9364)),
    40: ((7, 1.57, 0.9370), (8, 1, 0.9345), (11, 1.56, 0.9330)),
}
"""Of [Sharding] Table III, by clusters and run: sparse neighbourhoods, their mean size, validation accuracy."""
METHODS = ("ENSEMBLE", "ASP", "SHAT-Root", "SHAT")
SHAT = {
    "ResNet-50": {
        2: (0.9319, 0.9332, 0.9384, 0.9399),
        4: (0.9112, 0.9315, 0.9329, 0.9382),
        8: (0.8910, 0.9182, 0.9293, 0.9311),
        16: (0.8491, 0.9019, 0.9113, 0.9311),
    },
    "VGG-16": {
        2: (0.9012, 0.9209, 0.9242, 0.9238),
        4: (0.8821, 0.9171, 0.9223, 0.9228),
        8: (0.8247, 0.9071, 0.9128, 0.9226),
        16: (0.7002, 0.8687, 0.9081, 0.9209),
    },
}
"""[SHAT] Table 2: by model and workers, in the order of `METHODS`."""
HOGWILD = {
    "hogwild/table-1": {"rate 0.01": (90.1, 22), "rate 0.005": (91.9, 29), "rate 0.001": (90.3, 34)},
    "hogwild/table-2": {
        "S = 1": (73, 30),
        "S = 2": (82, 29),
        "S = 8": (91, 30),
        "S = 16": (92.3, 30),
        "S = 32": (89, 31),
    },
}
ACTORS = {"centralised": (0.04, 18009), "tau = 0.1": (0.25, 28866), "tau = 1": (0.29, 769)}
SURVEY = {1: {"tree": 87, "lr": 87, "bayes": 56}, 2: {"tree": 73, "lr": 69, "bayes": 52}}
FORMS = ("paper", "program")


def by_column(rows: Mapping[str, Sequence[float]], columns: Sequence[str]) -> Numbers:
    return {row: dict(zip(columns, values, strict=True)) for row, values in rows.items()}


def of_actors(trainings: Sequence[str]) -> Numbers:
    rows = {f"{training}, {form}": ACTORS[training] for form in FORMS for training in trainings}
    return by_column(rows, ("error", "updates"))


PRINTED: Mapping[str, Numbers] = {
    **{name: by_column({row: each[::2] for row, each in rows.items()}, METRICS) for name, rows in SHARDING.items()},
    "sharding/table-3": by_column(
        {f"distribution-aware, {k}": [mean(each) for each in zip(*runs, strict=True)] for k, runs in SPARSE.items()},
        ("sparse", "size", "validation_accuracy"),
    ),
    "sharding/fig-8": {"distribution-aware, literal": {"seconds": 100}},
    "shat/table-2": {
        f"{method}, n = {count}": {model: SHAT[model][count][place] for model in SHAT}
        for place, method in enumerate(METHODS)
        for count in (2, 4, 8, 16)
    },
    **{name: by_column(rows, ("accuracy", "epochs")) for name, rows in HOGWILD.items()},
    "actors/table": of_actors(list(ACTORS)),
    **{f"actors/fig-{number}": of_actors(["tau = 0.1", "tau = 1"]) for number in (3, 4)},
    "survey/table": {
        f"experiment {number}, 2 executors": {f"{model}_accuracy": value for model, value in values.items()}
        for number, values in SURVEY.items()
    },
}
DEVIATIONS: Mapping[str, Numbers] = {
    name: by_column({row: each[1::2] for row, each in rows.items()}, METRICS) for name, rows in SHARDING.items()
}


def recipe_of(name: str) -> Recipe:
    return wanted(name)[0].recipe


@pytest.mark.parametrize("name", [each.name for each in known() if each.recipe.paper])
def test_a_recipe_has_its_papers_numbers(name: str) -> None:
    assert recipe_of(name).paper == PRINTED[name]


@pytest.mark.parametrize("name", [each.name for each in known() if each.recipe.deviations])
def test_a_recipe_has_its_papers_deviations(name: str) -> None:
    assert recipe_of(name).deviations == DEVIATIONS[name]


def test_no_number_was_read_for_nothing() -> None:
    assert {each.name for each in known() if each.recipe.paper} == set(PRINTED)
    assert {each.name for each in known() if each.recipe.deviations} == set(DEVIATIONS)


def test_the_ratios_of_deviations_are_those_of_the_tables_and_of_the_text() -> None:
    found = {
        (name, claim.column, claim.row, claim.other): claim.theirs
        for name in DEVIATIONS
        for claim in recipe_of(name).claims
        if isinstance(claim, MoreSpread)
    }

    for (name, column, row, other), ratio in found.items():
        assert ratio == pytest.approx(DEVIATIONS[name][row][column] / DEVIATIONS[name][other][column])
        assert ratio > 1, f"{name}, {column}: {row} does not vary more than {other}"
    for compared, times in TIMES_LESS.items():
        assert found[compared] == pytest.approx(times, abs=0.01), "the paper rounds some down"


def test_sentences_have_the_numbers_of_the_text() -> None:
    sparse = [claim for claim in recipe_of("sharding/table-3").claims if isinstance(claim, Between)]
    assert [(claim.low, claim.high) for claim in sparse] == [(1, 3), (4, 6), (7, 11)]

    quartiles = [claim.theirs for claim in recipe_of("sharding/fig-7").claims if isinstance(claim, Between)]
    assert quartiles == [208, 200, 215]
    assert (fig_7.LEAST, fig_7.LARGEST) == (175, 235)

    made = [claim.high for claim in recipe_of("sharding/fig-8").claims if isinstance(claim, Between)]
    assert made[:2] == [1, 1], "seconds, of stratified and round robin"
    assert fig_3.CENTRALISED == {"error": 0.04, "updates": 18009}, "the line of the actors' figures"


ROUNDED = [
    (each.name, claim)
    for each in known()
    for claim in each.recipe.claims
    if isinstance(claim, Between) and not isinf(claim.low) and claim.paper(each.recipe.paper) is not None
]


@pytest.mark.parametrize(("name", "claim"), ROUNDED, ids=[f"{name}: {claim.says}" for name, claim in ROUNDED])
def test_a_range_holds_the_papers_number(name: str, claim: Between) -> None:
    theirs = claim.paper(PRINTED.get(name, {}))

    assert theirs is not None
    assert claim.low <= theirs <= claim.high


def test_the_deviation_of_the_runs_stands_before_the_papers() -> None:
    recipe = recipe_of("sharding/table-2")
    figures = {(row, seed): dict.fromkeys(METRICS, 0.1 * seed) for row in recipe.rows for seed in range(3)}

    heads, _, *rows = page.table(Runs(recipe, 3, figures))
    assert heads.startswith("| | training loss | paper | deviation | paper | training accuracy | paper | deviation |")
    assert rows[3].split(" | ")[5:9] == ["0.1000 ± 0.2484", "0.9222", "0.100000", "0.000128"]
    alone = page.table(Runs(recipe, 1, figures))
    assert alone[2].startswith("| random | 0.0000 | 0.1658 |  | 0.001567 |"), "one run has no deviation"


def verdict_of(says: str, name: str, out: Path) -> Verdict:
    making = next(each for each in makings(out) if each.artefact.name == name)
    return next(claim.verdict(making.runs, making.recipe.paper) for claim in making.recipe.claims if claim.says == says)


@pytest.mark.parametrize(
    ("name", "row", "figure", "wrong", "says"),
    [
        (
            "sharding/table-2",
            "distribution-aware, 40",
            "training_loss",
            0.6,
            "distribution-aware, 40 has a lower training loss than random",
        ),
        (
            "sharding/table-2",
            "stratified",
            "validation_accuracy",
            0.9,
            "validation accuracy varies more between runs of random than of stratified",
        ),
        ("actors/fig-3", "tau = 2, paper", "error", 0.0, "paper: the error grows with tau"),
        ("hogwild/table-1", "rate 0.001", "epochs", 10, "a smaller rate takes more epochs"),
    ],
)
def test_one_wrong_number_among_the_finished_runs_changes_a_verdict(
    name: str, row: str, figure: str, wrong: float, says: str, tmp_path: Path
) -> None:
    stored = ROOT / "papers" / "docs" / "reproduction"
    about, *lines = (stored / "small" / name / RUNS).read_text().splitlines()
    runs = [json.loads(line) for line in lines]
    next(run for run in runs if run["row"] == row)["figures"][figure] = wrong
    file = tmp_path / "small" / name / RUNS
    file.parent.mkdir(parents=True)
    file.write_text("\n".join([about, *map(json.dumps, runs)]) + "\n")

    assert verdict_of(says, name, stored) is Verdict.AGREES
    assert verdict_of(says, name, tmp_path) is not Verdict.AGREES
