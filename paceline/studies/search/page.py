"""The results of a search as one HTML page."""

from paceline.base.html.page import Html, Section, Table, code, page, picture, table, text
from paceline.base.plot_style import Drawn
from paceline.core.settings.config import Config
from paceline.studies.search.grid import pairs, told
from paceline.studies.search.pictures import draw_curves
from paceline.studies.search.results import Results, Row
from paceline.studies.search.search_folder import SearchFolder

MOST_CURVES = 6


def page_of(folder: SearchFolder, results: Results, config: Config, drawn: Drawn | None) -> str:
    """The whole file. `drawn`: the picture of the grid, where there is one."""
    header, cells = results.cells()
    best = next((place for place, row in enumerate(results.rows) if row is results.best), None)
    points: list[Html] = [table(Table(header, cells, best=best)), text("* the best one", "faint")]
    points += [text(f"Point {row.number} failed: {row.error}", "warning") for row in results.rows if row.failed]
    points += [text(line) for line in filter(None, [results.cost])]
    sections = [
        *([Section("The grid", [picture(drawn.svg, "scores of the grid")])] if drawn else []),
        Section("Points", [*points, *(text(each, "warning") for each in results.warnings())]),
        *_curves(folder, results),
    ]
    what = f"{len(results.rows)} points of {config.task}, policy {config.policy.name}, in {folder.path}"
    return page(f"Search {folder.path.name}", [text(what, "faint"), *_best(results)], sections)


def _best(results: Results) -> list[Html]:
    best = results.best
    if best is None:
        return [text("No point has a score.", "warning")]
    score, test = best.mean(results.measure), best.mean(results.tested)
    tested = f"; on the test data it is {test:.4f}" if results.split != "test" and test is not None else ""
    said = f"The best is point {best.number} ({told(best.values)}): {results.measure.replace('_', ' ')} {score:.4f}{tested}."
    kind = "warning" if results.split == "test" and not results.folds else ""
    sets = " ".join(f"--set {pair}" for pair in pairs(best.values))
    return [text(said, "result"), text(results.how_chosen, kind), text("Its settings, for paceline run:"), code(sets)]


def _curves(folder: SearchFolder, results: Results) -> list[Section]:
    """Of the best points, how they came there."""
    curves = {f"point {row.number}": _curve(folder, results, row) for row in results.ranked[:MOST_CURVES]}
    found = {name: curve for name, curve in curves.items() if len(curve[0]) > 1}
    if not found:
        return []
    label = results.measure.replace("_", " ")
    many = f"The best {len(found)} of {len(results.rows)} points." if len(found) < len(results.rows) else ""
    return [Section("Curves", [picture(draw_curves(found, label), f"{label} over epochs", many)])]


def _curve(folder: SearchFolder, results: Results, row: Row) -> tuple[list[float], list[float]]:
    """Epochs and scores of the point's only run; none where it has several."""
    scores = folder.run(f"point-{row.number}").last_status().get("scores", [])
    known = [each for each in scores if results.measure in each["metrics"] and each["epoch"]]
    return [each["epoch"] for each in known], [each["metrics"][results.measure] for each in known]
