"""[Actors] section 3.2, its one table: mean squared error and parameter updates received, centralised and decentralised."""

from itertools import product

import matplotlib as mpl
from matplotlib.figure import Figure

from paceline.base.plot_style import INK, STYLE, colour_of, marker_of
from paceline_papers.reproduce.claims import Above, Between
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.xor_runs import FORMS, SHOWN, best

TAUS = {"centralised": None, "tau = 0.1": 0.1, "tau = 1": 1.0}
PUBLISHED = {"centralised": (0.04, 18009), "tau = 0.1": (0.25, 28866), "tau = 1": (0.29, 769)}
ROWS = {f"{training}, {form}": (form, tau) for form, (training, tau) in product(SHOWN, TAUS.items())}

WHY = {
    "order": {
        Verdict.AGREES: "Only output layers are shared in this form, so each worker's hidden layer learns alone.",
        Verdict.CANNOT: "Trained as described, all or nearly all seeds solve XOR either way.",
        Verdict.NO_EFFECT: "Trained as described, all seeds solve XOR either way.",
    },
    "grows": {
        Verdict.AGREES: "What has not been sent when the one epoch ends is never learned.",
        Verdict.CANNOT: "One seed that does not solve XOR decides the mean.",
    },
    "fewer": {Verdict.AGREES: "A larger sum takes longer to gather, and much of it cancels out."},
    "central": {Verdict.AGREES: "Nine values for each of 2,000 pushes and for the first weights."},
    "error": {
        Verdict.AGREES: "The authors' program has a formula of the error that differs from the one in the text.",
        Verdict.CANNOT: "The mean rounds to nearly the paper's number; the seeds differ more than the rounding.",
        Verdict.DOES_NOT: "The paper's numbers come from its program's formula and its one run, whose seed is not known.",
    },
    "updates": {
        Verdict.DOES_NOT: "How many values pass tau depends on the first weights and on the order in which messages arrive.",
    },
}
"""By kind of sentence."""


def run(around: Around, name: str, seed: int) -> Figures:
    return best(*ROWS[name], seed)


def draw(runs: Runs) -> Figure:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 4.0), layout="constrained")
        axes = figure.subplots()
        for number, form in enumerate(SHOWN):
            for training in TAUS:
                row = f"{training}, {form}"
                label = FORMS[form].told if training == "centralised" else None
                axes.plot(
                    runs.of(row, "updates"),
                    runs.of(row, "error"),
                    marker_of(number),
                    color=colour_of(number),
                    label=label,
                )
        for training, (error, updates) in PUBLISHED.items():
            axes.plot([updates], [error], "*", color=INK, markersize=11)
            axes.annotate(f"[Actors], {training}", (updates, error), textcoords="offset points", xytext=(6, 6))
        axes.set_xscale("log")
        axes.set_xlabel("parameter values received by a data shard")
        axes.set_ylabel("error")
        figure.legend(loc="outside upper left", frameon=False, fontsize=9)
        return figure


def _claims(form: str) -> list[Above | Between]:
    rows = {training: f"{training}, {form}" for training in TAUS}
    central, tenth, one = rows.values()
    return [
        Above(
            f"{form}: decentralised (tau 0.1) has the larger error",
            WHY["order"],
            "error",
            tenth,
            central,
        ),
        Above(f"{form}: tau 1 has a larger error than tau 0.1", WHY["grows"], "error", one, tenth),
        Above(
            f"{form}: tau 0.1 needs more updates than tau 1",
            WHY["fewer"],
            "updates",
            tenth,
            one,
        ),
        Between(f"{form}: centralised error .04", WHY["error"], "error", central, 0.035, 0.045),
        Between(f"{form}: centralised updates", WHY["central"], "updates", central, 18008.5, 18009.5),
        Between(f"{form}: error .25 at tau 0.1", WHY["error"], "error", tenth, 0.245, 0.255),
        Between(f"{form}: updates at tau 0.1", WHY["updates"], "updates", tenth, 28865.5, 28866.5),
        Between(f"{form}: error .29 at tau 1", WHY["error"], "error", one, 0.285, 0.295),
        Between(f"{form}: updates at tau 1", WHY["updates"], "updates", one, 768.5, 769.5),
    ]


RECIPE = Recipe(
    number="section 3.2, table",
    shows="error and updates, centralised and decentralised",
    small="XOR with 25 data shards of 2,000 examples, in virtual time. This is the paper's size.",
    rows=list(ROWS),
    columns={"error": Column("error", ".3f"), "updates": Column("updates", ",.0f")},
    run=run,
    draw=draw,
    paper={
        f"{training}, {form}": {"error": error, "updates": updates}
        for form, (training, (error, updates)) in product(SHOWN, PUBLISHED.items())
    },
    claims=[claim for form in SHOWN for claim in _claims(form)],
    same_runs_as="actors/fig-3",
    minutes=5,
    side_by_side=True,
)
