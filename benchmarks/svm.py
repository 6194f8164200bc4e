"""Time to equal test accuracy of sparse linear models: Paceline on one machine, over gRPC and on the lane, scikit-learn,
LIBLINEAR, Vowpal Wabbit and an RPC per batch, in one interleaved run on made rows that are like RCV1's (targets 10 to 12); what
pushes and pulls cost. Run: python -m benchmarks.svm"""

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from benchmarks.environments import NoEnvironment, python_of
from benchmarks.harness import REPOSITORY
from benchmarks.kernels import Row, show
from benchmarks.peers import paceline_svm, rpc_per_batch_svm
from benchmarks.peers.svm_team import Job, Team, Training, deal
from benchmarks.svm_push import print_push_costs, push_costs
from paceline.core.linear.model import Examples, margins
from paceline.core.values import Vector
from paceline.data.dataset import Dataset, Labelled
from paceline.data.svmlight import read_svmlight
from paceline.worker.linear.hogwild import LocalSettings, train
from paceline_papers.rcv1_like import TRAIN_ROWS, rcv1_like

ACCURACY = 0.923
"""What [Hogwild] reports for RCV1."""
PASSES: tuple[float, ...] = (1, 2, 3, 5, 10, 20)
"""A contender takes the first number of these with which it is accurate enough."""
PARTS_OF_PASSES = (0.25, 0.5, *PASSES)
"""The same of those who may stop in the middle of a pass."""
IN_FLIGHT = 32
"""Batches behind all pushes that are on their way: more overshoot."""
PARTS = ("time", "shapes", "push")
"""What is measured."""
TURN = 0.2
"""A contender trains again and again until so much training time of its turn is over (seconds)."""
PATIENCE = 300.0
"""A contender of another environment that takes longer has failed (seconds)."""
REAL: dict[str, tuple[str, str | None]] = {
    "rcv1-vw": ("rcv1_small.libsvm", "rcv1_small_test.libsvm"),
    "a9a": ("a9a", "a9a.t"),
    "agaricus": ("agaricus_127d_train.libsvm", None),
}
"""Real data by the names of their folders: the files to train and test on; without the latter a fifth is kept back."""


class Fit(NamedTuple):
    """What came of one training."""

    seconds: float
    accuracy: float
    """On the test rows."""


class Contender(NamedTuple):
    """Somebody who trains."""

    name: str
    fit: Callable[[float], Fit]
    """Trains with this many passes over the data, from arrays in memory."""
    passes: tuple[float, ...] = PASSES


class Measured(NamedTuple):
    """What a contender needs to be accurate enough."""

    name: str
    passes: float
    fits: list[Fit]
    failure: str = ""

    @property
    def seconds(self) -> float:
        """Of the middle one."""
        return median(fit.seconds for fit in self.fits)

    @property
    def best(self) -> float:
        """Of the fastest one."""
        return min(fit.seconds for fit in self.fits)

    @property
    def accuracy(self) -> float:
        """Of the middle one."""
        return median(fit.accuracy for fit in self.fits)


class Shape(NamedTuple):
    """What training over gRPC costs with this many workers and servers."""

    job: Job
    examples_per_second: float
    cpu: float
    """Milliseconds of all processes for 1,000 examples."""
    pushed: float
    pulled: float
    """Bytes for each example that was trained on."""


def contenders(data: Dataset, folder: Path, others: bool = True) -> list[Contender]:
    """All who train in one process. `folder`: for files of those in another environment, who are left out without `others`."""
    from sklearn.linear_model import SGDClassifier
    from sklearn.svm import LinearSVC

    found = [
        Contender("paceline local, 1 thread", lambda passes: local(data, LocalSettings(epochs=int(passes)))),
        Contender(
            "paceline local, 2 threads", lambda passes: local(data, LocalSettings(epochs=int(passes), threads=2))
        ),
        Contender("SGDClassifier", lambda passes: sklearn(data, SGDClassifier(max_iter=int(passes), tol=None))),
        Contender("LinearSVC", lambda passes: sklearn(data, LinearSVC()), (1,)),
    ]
    if others:
        rows = folder / "rows.npz"
        np.savez(rows, width=data.train.features.shape[1], **_arrays("", data.train), **_arrays("test_", _test(data)))
        found += [
            Contender("LIBLINEAR", lambda _: elsewhere("liblinear", rows, 1), (1,)),
            Contender("Vowpal Wabbit with parsing", lambda passes: elsewhere("vowpal_wabbit", rows, int(passes))),
        ]
    return found


@contextmanager
def teams(data: Dataset, folder: Path, workers: int = 2) -> Iterator[list[Contender]]:
    """All who train in separate processes, which end with the context. They may also stop in the middle of the first
    pass. `folder`: for the workers' shards."""
    deal(data.train, workers, folder / "shards")
    with ExitStack() as stack:

        def fit(job: Job, side: Any) -> Callable[[float], Fit]:
            team = stack.enter_context(Team(job, side.serve, side.work))
            return lambda passes: _fit_of(data, team.train(passes))

        summed = Job(folder / "shards", workers, batches=IN_FLIGHT // workers)
        single = replace(summed, batches=1, overlap=False, pull="wanted")
        hogwild = fit(summed, paceline_svm)
        yield [
            Contender("paceline gRPC", hogwild, PARTS_OF_PASSES),
            Contender("paceline lane", fit(replace(summed, transport="lane"), paceline_svm), PARTS_OF_PASSES),
            Contender("paceline gRPC, whole passes", hogwild),
            Contender("paceline gRPC, lock-step", fit(replace(summed, policy="bsp"), paceline_svm), PARTS_OF_PASSES),
            Contender(
                "paceline gRPC, asynchronous as published",
                fit(replace(summed, policy="everyone:overwrite"), paceline_svm),
                PARTS_OF_PASSES,
            ),
            Contender("paceline gRPC, a batch a push", fit(single, paceline_svm), PARTS_OF_PASSES),
            Contender(
                "paceline lane, a batch a push", fit(replace(single, transport="lane"), paceline_svm), PARTS_OF_PASSES
            ),
            Contender("an RPC per batch", fit(single, rpc_per_batch_svm), PARTS_OF_PASSES),
        ]


def local(data: Dataset, settings: LocalSettings) -> Fit:
    """Paceline's threads in one process, from the same arrays that scikit-learn gets."""
    start = perf_counter()
    weights = train(Examples.of(data.train.features, data.train.labels), settings).weights
    return Fit(perf_counter() - start, accuracy_of(data, weights))


def sklearn(data: Dataset, model: Any) -> Fit:
    """A classifier of scikit-learn."""
    start = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged is what few passes are about
        model.fit(data.train.features, data.train.labels)
    seconds = perf_counter() - start
    return Fit(seconds, float(model.score(_test(data).features, _test(data).labels)))


def elsewhere(tool: str, rows: Path, passes: int) -> Fit:
    """A program of the environment `svm`. NoEnvironment where it can't run."""
    script = Path(__file__).parent / "peers" / "sparse_svm.py"
    command = [str(python_of("svm", REPOSITORY / ".bench")), str(script), tool, str(rows), str(passes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise NoEnvironment(f"{tool} does not run: {(done.stderr.strip() or 'it said nothing').splitlines()[-1]}")
    return Fit(**json.loads(done.stdout.splitlines()[-1]))


def measure(entries: list[Contender], rounds: int, accuracy: float = ACCURACY) -> list[Measured]:
    """Everybody in turn, round after round, with as few passes as are enough; those who can't, with the reason."""
    found = [_enough(entry, accuracy) for entry in entries]
    for _ in range(rounds):
        for entry, result in zip(entries, found, strict=True):
            spent = TURN if result.failure else 0.0
            while spent < TURN:
                result.fits.append(entry.fit(result.passes))
                spent += result.fits[-1].seconds
    return found


def rows(found: list[Measured]) -> list[Row]:
    """Ratios of those who were measured: of medians, and of the fastest, which is what a quiet machine would show."""
    by_name = {result.name: result for result in found if result.fits}
    wanted = [
        ("12 local, 1 thread / SGDClassifier", "paceline local, 1 thread", "SGDClassifier", 1.0, 0.6),
        ("12 local, 2 threads / SGDClassifier", "paceline local, 2 threads", "SGDClassifier", 1.0, 0.6),
        ("   local, 1 thread / LinearSVC", "paceline local, 1 thread", "LinearSVC", None, None),
        ("10 gRPC, 2 workers / LinearSVC", "paceline gRPC", "LinearSVC", 0.6, 0.25),
        ("   the same with whole passes", "paceline gRPC, whole passes", "LinearSVC", None, None),
        ("10 lane, 2 workers / LinearSVC", "paceline lane", "LinearSVC", 0.6, 0.25),
        ("11 gRPC, 2 workers / an RPC per batch", "paceline gRPC", "an RPC per batch", 0.2, 0.06),
        ("   the same / a batch a push", "paceline gRPC", "paceline gRPC, a batch a push", None, None),
        ("11 lane, 2 workers / an RPC per batch", "paceline lane", "an RPC per batch", 0.2, 0.06),
        ("   lane / gRPC", "paceline lane", "paceline gRPC", None, None),
        (
            "   the same, a batch a push",
            "paceline lane, a batch a push",
            "paceline gRPC, a batch a push",
            None,
            None,
        ),
    ]
    ratios = []
    for measure, above, below, must, goal in wanted:
        if {above, below} <= by_name.keys():
            ours, theirs = by_name[above], by_name[below]
            ratios += [
                Row(measure, ours.seconds / theirs.seconds, must, goal),
                Row("   of the fastest", ours.best / theirs.best, None, None),
            ]
    return ratios


def shapes(
    data: Dataset, folder: Path, workers: Sequence[int] = (1, 2, 4), servers: Sequence[int] = (1, 2)
) -> Iterator[Shape]:
    """One team after the other: each trains a pass to get warm, then three times one pass."""
    for count in workers:
        deal(data.train, count, folder / f"shards-{count}")
    for count, number, pull in product(workers, servers, ("changed", "wanted")):
        job = Job(folder / f"shards-{count}", count, number, min(16, IN_FLIGHT // count), True, pull)
        with Team(job, paceline_svm.serve, paceline_svm.work) as team:
            team.train(1)
            yield _shape(job, [team.train(1) for _ in range(3)], len(data.train))


def _shape(job: Job, trainings: Sequence[Training], examples: int) -> Shape:
    middle = {name: median(getattr(one, name) for one in trainings) for name in ("seconds", "cpu", "received", "sent")}
    return Shape(
        job,
        examples / middle["seconds"],
        1e6 * middle["cpu"] / examples,
        middle["received"] / examples,
        middle["sent"] / examples,
    )


def real(folder: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """The test accuracy of each contender on real data: name and accuracies, one data set after the other."""
    from sklearn.linear_model import SGDClassifier
    from sklearn.svm import LinearSVC

    settings = LocalSettings(epochs=20, mean_from=19)
    for name, (first, second) in REAL.items():
        if not (folder / name / first).is_file():
            print(f"{folder / name / first} does not exist: left out", file=sys.stderr)
            continue
        read = read_svmlight(folder / name / first, folder / name / second if second else None, dense=False)
        data = read if second else _parted(read.train)
        yield (
            name,
            {
                "local": local(data, settings).accuracy,
                "SGDClassifier": median(sklearn(data, SGDClassifier(random_state=seed)).accuracy for seed in range(5)),
                "LinearSVC": sklearn(data, LinearSVC()).accuracy,
            },
        )


def _enough(entry: Contender, accuracy: float) -> Measured:
    """With the fewest passes that are enough, and no fits yet: this one only loads code and memory."""
    best = 0.0
    for passes in entry.passes:
        try:
            fit = entry.fit(passes)
        except (NoEnvironment, subprocess.TimeoutExpired) as error:
            return Measured(entry.name, passes, [], str(error))
        best = max(best, fit.accuracy)
        if fit.accuracy >= accuracy:
            return Measured(entry.name, passes, [])
    return Measured(entry.name, entry.passes[-1], [], f"came to {best:.4f} at most")


def _fit_of(data: Dataset, training: Training) -> Fit:
    return Fit(training.seconds, accuracy_of(data, training.weights))


def accuracy_of(data: Dataset, weights: Vector) -> float:
    """Of weights (D,) on the test rows."""
    test = Examples.of(_test(data).features, _test(data).labels)
    return float(np.mean((margins(test, weights) > 0) == (test.labels > 0)))


def _test(data: Dataset) -> Labelled:
    assert data.test is not None
    return data.test


def _arrays(prefix: str, part: Labelled) -> dict[str, Any]:
    found = {"indptr": part.features.indptr, "indices": part.features.indices, "values": part.features.data}
    return {prefix + name: array for name, array in (*found.items(), ("labels", part.labels))}


def _parted(rows: Labelled) -> Dataset:
    """A fifth of the rows, drawn with a fixed seed, for the test."""
    order = np.random.default_rng(0).permutation(len(rows))
    test, rest = np.sort(order[: len(rows) // 5]), np.sort(order[len(rows) // 5 :])
    return Dataset(*(Labelled(rows.features[part], rows.labels[part]) for part in (rest, test)))


def main() -> None:
    """Prints the figures of one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=TRAIN_ROWS, help="training rows of the made data")
    parser.add_argument("--test", type=int, default=TRAIN_ROWS, help="test rows of the made data")
    parser.add_argument("--accuracy", type=float, default=ACCURACY, help="test accuracy that all must reach")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--own", action="store_true", help="only contenders that need no separate environment")
    parser.add_argument("--contender", action="append", default=[], help="only this one; may be given again")
    parser.add_argument("--only", action="append", choices=PARTS, help="one part of the run; may be given again")
    parser.add_argument("--data", type=Path, help="a folder with rcv1-vw, a9a and agaricus: accuracy on these instead")
    told = parser.parse_args()
    if told.data:
        for name, accuracies in real(told.data):
            print(f"{name:10}" + "".join(f"  {who} {accuracy:.4f}" for who, accuracy in accuracies.items()))
        return
    parts = told.only or PARTS
    data = rcv1_like(told.rows, told.test) if {"time", "shapes"} & set(parts) else None
    with tempfile.TemporaryDirectory() as folder:
        if data is not None:
            size, found = len(data.train), data.train.features
            print(f"{size:,} x {found.shape[1]:,}, {found.nnz / size:.0f} a row")
        if data is not None and "time" in parts:
            with teams(data, Path(folder)) as distributed:
                entries = [*contenders(data, Path(folder), not told.own), *distributed]
                entries = [entry for entry in entries if not told.contender or entry.name in told.contender]
                _print_times(measure(entries, told.rounds, told.accuracy), told.accuracy, told.test)
        if data is not None and "shapes" in parts:
            _print_shapes(shapes(data, Path(folder)))
    if "push" in parts:
        print_push_costs(push_costs())


def _print_times(found: list[Measured], accuracy: float, tests: int) -> None:
    print(
        f"{f'seconds to {accuracy:.1%} of {tests:,} test rows':44}{'median':>9}{'min':>9}{'accuracy':>10}{'passes':>8}"
    )
    for result in found:
        figures = (
            f"{result.seconds:9.4f}{result.best:9.4f}{result.accuracy:10.4f}{result.passes:8g}" if result.fits else ""
        )
        print(f"{result.name:44}{figures or '  ' + result.failure}")
    show(rows(found), width=9)


def _print_shapes(found: Iterable[Shape]) -> None:
    columns = ("samples/s", "CPU ms/1000", "pushed B", "pulled B")
    print(f"{'over gRPC, in flight, bytes a sample':44}" + "".join(f"{column:>13}" for column in columns))
    for shape in found:
        job = shape.job
        name = f"{job.workers} workers, {job.servers} servers, K {job.batches}, pull {job.pull}"
        figures = (shape.examples_per_second, shape.cpu, shape.pushed, shape.pulled)
        print(f"{name:44}" + "".join(f"{figure:13,.0f}" for figure in figures))


if __name__ == "__main__":
    main()
