"""The results of a search as a picture and as one HTML page. Needs matplotlib."""

import warnings

import optuna
from matplotlib.figure import Figure
from optuna.visualization import matplotlib as plots

from paceline.base.html import Html, Section, Table, code, page, picture, table, text
from paceline.base.plot_style import Drawn, drawn, styled
from paceline_studies.search.grid import Grid, pairs
from paceline_studies.search.results import Results


def draw(study: optuna.Study, grid: Grid, results: Results) -> Drawn | None:
    """The score of each point, over each key that varies; None where there is nothing to see."""
    varied = [key for key, values in grid.values.items() if len(values) > 1 or key in grid.ranges]
    measure = results.measure
    scored = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if not varied or not all(measure in trial.user_attrs["figures"] for trial in scored) or not scored:
        return None
    with styled(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this part of Optuna is new, and that all points may have one value
        axes = plots.plot_slice(
            study,
            varied,
            target=lambda trial: trial.user_attrs["figures"][measure],
            target_name=measure.replace("_", " "),
        )
        figure: Figure = (axes if len(varied) == 1 else axes[0]).figure
        figure.suptitle("")
        axes.set_title("") if len(varied) == 1 else figure.axes[-1].remove()
        return drawn(figure)


def page_of(name: str, results: Results, slices: Drawn | None) -> str:
    """The whole file. `name`: of the search; `slices`: what `draw` gave."""
    header, cells = results.cells()
    best = results.best
    place = next((place for place, row in enumerate(results.rows) if row is best), None)
    points: list[Html] = [table(Table(header, cells, best=place)), text("* the best one", "faint")]
    points += [text(line, "warning") for line in results.errors] + [text(line) for line in results.notes]
    sections = [
        *([Section("Settings", [picture(slices.svg, "scores over each setting")])] if slices else []),
        Section("Points", points),
    ]
    top = [text(results.conclusion, "result")]
    if best is not None:
        sets = " ".join(f"--set {pair}" for pair in pairs(best["values"]))
        top += [text("Its settings, for paceline run:"), code(sets)]
    return page(f"Search {name}", top, sections)
