"""F1 of the linear tasks without settings, compared with scikit-learn's LinearSVC:
python -m paceline_papers.experiments.linear [--help]"""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

import paceline
from paceline.core.errors import PacelineError
from paceline.core.policies.policy import from_shorthand
from paceline.data.svmlight import read_svmlight
from paceline.extend import Dataset, Labelled
from paceline.launch.linear_without_servers import train_here
from paceline.launch.settings.read_config import read_config
from paceline.processes.exits import exits
from paceline.settings.flags import Flags
from paceline_papers.experiments.options import among
from paceline_papers.rcv1_like import write_svmlight

REAL = {
    "a9a": ("a9a/a9a", "a9a/a9a.t"),
    "rcv1-vw": ("rcv1-vw/rcv1_small.libsvm", "rcv1-vw/rcv1_small_test.libsvm"),
    "agaricus": ("agaricus/agaricus_127d_train.libsvm", None),
}
"""Files of training and test rows in the folder that is given; where there is no test file every seventh row is one."""
EVERY = 7


def words(seed: int = 0) -> Dataset:
    """Unit rows of about 30 of 20,000 words, one row in twenty on a topic that prefers some of them."""
    rng = np.random.default_rng(seed)
    rows, width, length = 12_000, 20_000, 40
    labels = (rng.random(rows) < 0.05).astype(np.int64)
    common = np.arange(1, width + 1.0) ** -1.05
    leaning = common * np.exp(np.random.default_rng([seed, 1]).normal(0, 2.5, width))
    chosen = rng.choice(width, (rows, length), p=common / common.sum())
    special = rng.choice(width, (rows, length), p=leaning / leaning.sum())
    found = np.where(labels[:, None].astype(bool) & (rng.random((rows, length)) < 0.5), special, chosen)
    return _cut(_unit(found, width), labels)


def scales(seed: int = 1) -> Dataset:
    """20 features from thousandths to thousands, one row in ten positive, 2 % of the labels wrong."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(12_000, 20)) * (rng.random((12_000, 20)) < 0.7)
    labels = _planted(features, rng, 0.1, 0.02)
    return _cut(_sparse(features * 10 ** rng.uniform(-3, 3, 20)), labels)


def rare(seed: int = 2) -> Dataset:
    """40 features, one row in thirty positive, 1 % of the labels wrong."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(24_000, 40)) * (rng.random((24_000, 40)) < 0.5)
    return _cut(_sparse(features), _planted(features, rng, 0.033, 0.01))


GENERATED = {"words": words, "scales": scales, "rare": rare}


def linear_svc(data: Dataset) -> float:
    """Its F1 on the test rows."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import f1_score
    from sklearn.svm import LinearSVC

    assert data.test is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = LinearSVC().fit(data.train.features, data.train.labels)
    return float(f1_score(data.test.labels, fitted.predict(data.test.features)))


def main(
    data: Annotated[
        Path | None, typer.Option(help="Folder with a9a, rcv1-vw and agaricus; without it they are left out.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for data and runs; finished runs are kept.")] = Path("runs/linear"),
    sets: Annotated[str, typer.Option(help="Which sets, with commas.")] = ",".join([*REAL, *GENERATED]),
    workers: Annotated[str, typer.Option(help="Numbers of workers, with commas; 0: local only.")] = "1,2,4",
    policies: Annotated[str, typer.Option(help="Policies, with commas.")] = "asp,bsp",
) -> None:
    """Prints one line of a Markdown table for each set: F1 of the positive class on the test rows."""
    chosen = among(sets, [*REAL, *GENERATED], "--sets")
    ways = [(count, policy) for policy in policies.split(",") for count in map(int, workers.split(",")) if count]
    for _, policy in ways:
        from_shorthand(policy)
    heads = ["local", *(f"{policy}, {count}" for count, policy in ways)]
    print("| set | rows | positive | LinearSVC | " + " | ".join(heads) + " | largest difference |")
    print("|---" * (5 + len(heads)) + "|", flush=True)
    for name in chosen:
        if name in REAL and data is None:
            continue
        given = _real(data, name) if name in REAL and data is not None else GENERATED[name]()
        print(_line(name, given, out, ways), flush=True)


def _line(name: str, data: Dataset, out: Path, ways: list[tuple[int, str]]) -> str:
    path = written(data, out / "data", name)
    expected = linear_svc(data)
    found = list(_trained(path, out, name, ways))
    largest = max((value - expected for value in found), key=abs)
    labels = data.train.labels
    return (
        f"| {name} | {len(labels):,} | {labels.mean():.3f} | {expected:.4f} | "
        + " | ".join(f"{value:.4f}" for value in found)
        + f" | {largest:+.4f} |"
    )


def _trained(path: Path, out: Path, name: str, ways: list[tuple[int, str]]) -> Iterator[float]:
    """F1 of each way to train it."""
    yield train_here(read_config("svm", Flags(data=str(path))), 1, False, out / "local" / name).metrics["test_f1"]
    for count, policy in ways:
        folder = out / f"{name}-{policy.replace(':', '-')}-{count}"
        result = paceline.train("svm", workers=count, servers=2, policy=policy, data=path, folder=folder, show=None)
        if "test_f1" not in result.metrics:
            raise PacelineError(f"{folder} was not scored. See {folder / 'logs'}.")
        yield result.metrics["test_f1"]


def written(data: Dataset, folder: Path, name: str) -> Path:
    """The training rows as LIBSVM text, and the test rows in a second file."""
    folder.mkdir(parents=True, exist_ok=True)
    assert data.test is not None
    write_svmlight(data.test, folder / f"{name}.t")
    write_svmlight(data.train, folder / name)
    return folder / name


def _real(folder: Path, name: str) -> Dataset:
    train, test = REAL[name]
    found = read_svmlight(folder / train, folder / test if test else None, dense=False)
    return found if found.test is not None else _cut(found.train.features, found.train.labels, EVERY)


def _cut(features: Any, labels: npt.NDArray[np.int64], every: int = 2) -> Dataset:
    """One of this number of rows tests."""
    tests = np.arange(len(labels)) % every == 0
    return Dataset(Labelled(features[~tests], labels[~tests]), Labelled(features[tests], labels[tests]))


def _planted(features: npt.NDArray[Any], rng: np.random.Generator, share: float, noise: float) -> npt.NDArray[np.int64]:
    """1 for this share of the rows, by a plane; then some labels, as many of each class, are turned round."""
    margins = features @ rng.normal(size=features.shape[1])
    labels = (margins > np.quantile(margins, 1 - share)).astype(np.int64)
    turned = rng.random(len(labels)) < noise * np.where(labels == 1, 1, share)
    return labels ^ turned.astype(np.int64)


def _sparse(features: npt.NDArray[Any]) -> Any:
    from scipy.sparse import csr_array

    found = csr_array(features.astype(np.float32))
    return csr_array((found.data, found.indices.astype(np.int32), found.indptr.astype(np.int32)), found.shape)


def _unit(chosen: npt.NDArray[np.int64], width: int) -> Any:
    """Rows of these words, rare ones weighing more, each of length 1."""
    from scipy.sparse import csr_array

    rows, length = chosen.shape
    keys = np.unique(np.repeat(np.arange(rows), length) * width + chosen.ravel())
    owner, indices = np.divmod(keys, width)
    values = np.log(rows / (1 + np.bincount(indices, minlength=width)))[indices]
    values /= np.sqrt(np.bincount(owner, values**2, rows))[owner]
    starts = np.searchsorted(owner, np.arange(rows + 1))
    shape = (rows, width)
    return csr_array((values.astype(np.float32), indices.astype(np.int32), starts.astype(np.int32)), shape)


if __name__ == "__main__":
    with exits("linear"):
        typer.run(main)
