"""[Actors]' table and figures, 25 data shards on XOR: python -m experiments.actors [--help]"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

from experiments.actors_pictures import Line, against_tau
from experiments.actors_virtual import LENGTH, Centralised, Decentralised, Setting, Trained
from experiments.options import among
from paceline.core.errors import UsageError
from paceline.core.settings.config import Options
from paceline.load_settings import exits

PUBLISHED: dict[float | None, tuple[float, int]] = {None: (0.04, 18009), 0.1: (0.25, 28866), 1.0: (0.29, 769)}
"""[Actors] 3.2: error and updates by tau; None: centralised."""
RATES, CENTRAL_RATES = (0.2, 0.5, 0.8), (0.3, 0.5, 0.7)
"""The paper says that there are three; these are its authors' program's."""
DEVIATION = 0.2
"""Of the first weights, as in that program."""
Spread = tuple[float, float]
"""Mean and standard deviation over the seeds."""
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Form:
    """How decentralised training and its error are understood."""

    told: str
    own: str
    is_programs: bool = False
    """Whether it is as the authors' program has it where that is not what the paper says."""

    def error(self, run: Trained) -> float:
        """What the best rate is chosen by."""
        return run.published if self.is_programs else run.error


FORMS = {
    "paper": Form("as the paper describes it, the sender takes its whole gradient", "gradient"),
    "message": Form("the sender takes what it sends, as Strom has it", "message"),
    "program": Form("as the authors' program does it", "gradient", is_programs=True),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: it is the same whenever it is repeated."""

    form: str
    tau: float | None
    """None: centralised."""
    rate: float
    seed: int


class Study:
    """Runs of one size; those in the folder's file are not repeated."""

    def __init__(self, out: Path, workers: int, examples: int, delay: float, seeds: int) -> None:
        self.workers = workers
        self.examples = examples
        self.delay = delay
        self.seeds = range(seeds)
        self._file = out / f"runs-{workers}-{examples}-{delay:g}.jsonl"
        self._known = dict[Cell, Trained]()
        out.mkdir(parents=True, exist_ok=True)
        for line in self._file.read_text().splitlines() if self._file.exists() else ():
            found = json.loads(line)
            self._known[Cell(**found["cell"])] = Trained(**found["run"])

    def kept(self, form: str, tau: float | None) -> list[tuple[float, Trained]]:
        """For each seed the best of the three rates, and what it gave."""
        error, rates = FORMS[form].error, CENTRAL_RATES if tau is None else RATES
        shared = "paper" if tau is None else form  # centralised runs don't depend on the form
        return [
            min(((rate, self._run(Cell(shared, tau, rate, seed))) for rate in rates), key=lambda found: error(found[1]))
            for seed in self.seeds
        ]

    def _run(self, cell: Cell) -> Trained:
        if cell not in self._known:
            self._known[cell] = self._train(cell)
            with self._file.open("a") as file:
                file.write(json.dumps({"cell": asdict(cell), "run": asdict(self._known[cell])}) + "\n")
        return self._known[cell]

    def _train(self, cell: Cell) -> Trained:
        form = FORMS[cell.form]
        setting = setting_of(cell.seed, self.workers, self.examples, self.delay, form.is_programs)
        if cell.tau is None:
            return Centralised(setting, cell.rate).run()
        return Decentralised(setting, cell.rate, broadcast(cell.tau, form.own), output_only=form.is_programs).run()


def setting_of(seed: int, workers: int, examples: int, delay: float, own_first: bool) -> Setting:
    """Data, first weights (`own_first`: of each worker others) and schedule of a seed."""
    draw = np.random.default_rng(seed)
    corners = draw.integers(0, 4, (workers, examples))
    first = draw.normal(scale=DEVIATION, size=(workers, LENGTH)).astype(np.float32)
    return Setting(corners, list(first) if own_first else [first[0]] * workers, delay, seed)


def broadcast(tau: float, own: str) -> Options:
    """The policy, full form."""
    return Options(name="broadcast", tau=tau, own=own)


def main(
    out: Annotated[Path, typer.Option(help="Folder of runs and figure; what is finished is kept.")] = Path(
        "runs/actors"
    ),
    forms: Annotated[str, typer.Option(help=f"Which of {', '.join(FORMS)}, with commas.")] = ",".join(FORMS),
    taus: Annotated[str, typer.Option(help="FIRST:LAST:STEP, or numbers with commas.")] = "0.1:2:0.1",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each cell, with seeds 0, 1, ...")] = 5,
    workers: Annotated[int, typer.Option(min=1, help="Data shards.")] = 25,
    examples: Annotated[int, typer.Option(min=1, help="Examples of each data shard.")] = 2000,
    delay: Annotated[float, typer.Option(min=0, help="Mean time that a message is under way (steps).")] = 1.0,
    processes: Annotated[
        int, typer.Option(min=0, help="Trains with so many real workers instead, and in virtual time beside it.")
    ] = 0,
) -> None:
    """Prints a Markdown table for each form, a line as soon as its runs are done, then what fits it, and draws the figure."""
    chosen, every = among(forms, FORMS, "--forms"), _taus(taus)
    if processes:
        from experiments.actors_processes import compare  # here: it loads torch

        compare(out, processes, examples, [broadcast(tau, FORMS["paper"].own) for tau in every], delay)
        return
    study = Study(out, workers, examples, delay, seeds)
    print(
        f"XOR, 2-2-1, {workers} data shards of {examples:,} examples, one epoch, delay {delay:g}, seeds 0 to {seeds - 1}"
    )
    lines = {form: table(study, form, every) for form in chosen}
    (out / "actors.png").write_bytes(against_tau(lines, PUBLISHED))


def table(study: Study, form: str, taus: Sequence[float]) -> Line:
    """Prints a form's lines, and what fits them."""
    print(f"\n{form}: {FORMS[form].told}\n")
    print(
        "| training | error | sd | error of the mean model | by the program's formula | updates | sd | rates kept "
        "| [Actors]: error | updates |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    central = row(study, form, None)
    rows = [row(study, form, tau) for tau in taus]
    line = Line((central[0][0], central[1][0]), taus, [error for error, _ in rows], [updates for _, updates in rows])
    print("\n" + "\n".join(fits(line)))
    return line


def row(study: Study, form: str, tau: float | None) -> tuple[Spread, Spread]:
    """Prints one line; returns the error that the form goes by, and the updates."""
    kept = study.kept(form, tau)
    runs = [run for _, run in kept]
    error, updates = spread(run.error for run in runs), spread(run.updates for run in runs)
    published = spread(run.published for run in runs)
    rates = ", ".join(f"{rate:g} x{count}" for rate, count in sorted(Counter(rate for rate, _ in kept).items()))
    name = "centralised" if tau is None else f"tau {tau:g}"
    theirs = "{:g} | {:,}".format(*PUBLISHED[tau]) if tau in PUBLISHED else "|"
    print(
        f"| {name} | {error[0]:.3f} | {error[1]:.3f} | {mean(run.of_mean for run in runs):.3f} | {published[0]:.3f} "
        f"| {updates[0]:,.0f} | {updates[1]:,.0f} | {rates} | {theirs} |",
        flush=True,
    )
    return (published if FORMS[form].is_programs else error), updates


def spread(values: Iterable[float]) -> Spread:
    """Mean and standard deviation (n - 1; 0 of a single one)."""
    found = list(values)
    return mean(found), stdev(found) if len(found) > 1 else 0.0


def fits(line: Line) -> list[str]:
    """The paper's claims, error linear in tau and updates exponential in it, and a power of tau beside the latter. Least
    squares over the means; R^2 of the updates' fits is that of their logarithms."""
    sent = [
        (tau, error, count)
        for tau, (error, _), (count, _) in zip(line.taus, line.errors, line.updates, strict=True)
        if count > 0
    ]
    if len(sent) < 3:
        return ["Too few values of tau for a fit."]
    tau, error, count = (np.array(column) for column in zip(*sent, strict=True))
    slope, start, straight = _straight(tau, error)
    decay, log_first, exponential = _straight(tau, np.log(count))
    power, log_one, by_power = _straight(np.log(tau), np.log(count))
    return [
        f"error = {start:.3f} {slope:+.4f} tau (R^2 {straight:.3f})",
        f"updates = {np.exp(log_first):,.0f} exp({decay:.2f} tau) (R^2 {exponential:.3f}), "
        f"or {np.exp(log_one):,.0f} tau^{power:.2f} (R^2 {by_power:.3f})",
    ]


def _straight(x: Values, y: Values) -> tuple[float, float, float]:
    """Slope, value at 0 and R^2 of the straight line."""
    slope, start = np.polyfit(x, y, 1)
    total = np.sum((y - y.mean()) ** 2)
    rest = np.sum((y - start - slope * x) ** 2)
    return float(slope), float(start), float(1 - rest / total) if total else 1.0


def _taus(given: str) -> list[float]:
    """FIRST:LAST:STEP, or numbers with commas. UsageError: what can't be read, or is not above 0."""
    try:
        if ":" in given:
            first, last, step = map(float, given.split(":"))
            found = [round(first + place * step, 9) for place in range(round((last - first) / step) + 1)]
        else:
            found = [float(number) for number in given.split(",")]
    except (ValueError, ZeroDivisionError) as error:
        raise UsageError(
            f"--taus: got {given!r}; expected FIRST:LAST:STEP like 0.1:2:0.1, or numbers like 0.1,1."
        ) from error
    if not found or not all(0 < tau < float("inf") for tau in found):
        raise UsageError(f"--taus: got {given!r}; expected at least one, all above 0.")
    return found


if __name__ == "__main__":
    with exits("actors"):
        typer.run(main)
