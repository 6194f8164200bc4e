"""LIBLINEAR or Vowpal Wabbit on rows from a file: prints {"seconds": of training, "accuracy": on the test rows}."""

import argparse
import json
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy.sparse import csr_array


def liblinear(train: Any, signs: Any, test: Any, passes: int) -> tuple[float, Any]:
    """Its default solver, the one that scikit-learn's LinearSVC calls, from arrays in memory; it counts no passes."""
    from liblinear.liblinearutil import predict  # type: ignore[import-not-found]
    from liblinear.liblinearutil import train as fit
    from scipy.sparse import csr_matrix

    start = perf_counter()
    model = fit(signs, csr_matrix(train), "-s 1 -q")
    seconds = perf_counter() - start
    return seconds, np.array(predict([], csr_matrix(test), model, "-q")[0])


def vowpal_wabbit(train: Any, signs: Any, test: Any, passes: int) -> tuple[float, Any]:
    """Its default steps with the hinge loss; it reads text, so parsing is a part of its time."""
    from vowpalwabbit import Workspace  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        rows, others, model, said = (Path(folder, name) for name in ("train.vw", "test.vw", "model", "predictions"))
        rows.write_text("".join(lines(train, signs)))
        others.write_text("".join(lines(test, np.ones(test.shape[0]))))
        cache = f"--cache_file {folder}/cache --passes {passes} --holdout_off" if passes > 1 else ""
        start = perf_counter()
        Workspace(f"--quiet --loss_function hinge -d {rows} -f {model} {cache}").finish()
        seconds = perf_counter() - start
        Workspace(f"--quiet -t -i {model} -d {others} -p {said}").finish()
        return seconds, np.loadtxt(said)


def lines(rows: Any, signs: Any) -> list[str]:
    """Vowpal Wabbit's text: 'label |f index:value ...'."""
    words = [f"{index}:{value:.9g}" for index, value in zip(rows.indices.tolist(), rows.data.tolist(), strict=True)]
    ends = rows.indptr.tolist()
    return [f"{sign:+.0f} |f {' '.join(words[a:b])}\n" for sign, a, b in zip(signs, ends[:-1], ends[1:], strict=True)]


def read(arrays: Any, part: str) -> Any:
    """The rows of one part as a scipy.sparse.csr_array."""
    values, indices, ends = (arrays[part + name] for name in ("values", "indices", "indptr"))
    return csr_array((values, indices, ends), (len(ends) - 1, int(arrays["width"])))


def main() -> None:
    """Reads, trains, scores, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool", choices=["liblinear", "vowpal_wabbit"])
    parser.add_argument("rows", help="npz file: indptr, indices, values, labels of the training rows; width; test_...")
    parser.add_argument("passes", type=int)
    told = parser.parse_args()
    with np.load(told.rows) as arrays:
        train, test = (read(arrays, part) for part in ("", "test_"))
        signs, truth = (np.where(arrays[part + "labels"] > 0, 1.0, -1.0) for part in ("", "test_"))
    fit = liblinear if told.tool == "liblinear" else vowpal_wabbit
    seconds, predictions = fit(train, signs, test, told.passes)
    print(json.dumps({"seconds": seconds, "accuracy": float(np.mean((predictions > 0) == (truth > 0)))}))


if __name__ == "__main__":
    main()
