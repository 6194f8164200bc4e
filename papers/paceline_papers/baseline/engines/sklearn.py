"""sklearn: scikit-learn in this process, on the same split and with features made in the same way."""

import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from paceline_papers.baseline.encoding import encoding, labels
from paceline_papers.baseline.engine import Engine, Found, Point
from paceline_papers.baseline.scores import not_zero
from paceline_papers.baseline.split import Split


class Sklearn(Engine):
    """One process; the libraries below may use several threads."""

    def check(self) -> None:
        import sklearn  # noqa: F401 or the error says what to install

    def train(self, split: Split, points: Sequence[Point], logs: Path) -> Iterator[tuple[Point, Found]]:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.metrics import confusion_matrix, log_loss

        own, other = labels(split)
        for name in dict.fromkeys(point.encoding for point in points):
            start = time.perf_counter()
            train, test = encoding(name).arrays(split)
            preparing = time.perf_counter() - start
            for point in (point for point in points if point.encoding == name):
                estimator = point.model.sklearn(point.setting, split.train_rows)
                start, cpu = time.perf_counter(), time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)  # as few steps as [Survey] has
                    estimator.fit(train, own)
                training, used = time.perf_counter() - start, time.process_time() - cpu
                start = time.perf_counter()
                answers = estimator.predict(test)
                testing = time.perf_counter() - start
                classes = range(len(split.classes))
                loss = None
                if point.model.tells_chances:
                    loss = float(log_loss(other, estimator.predict_proba(test), labels=estimator.classes_))
                yield (
                    point,
                    {
                        "preparing": preparing,
                        "training": training,
                        "testing": testing,
                        "cpu": used,
                        "confusion": confusion_matrix(other, answers, labels=list(classes)).tolist(),
                        "log_loss": loss,
                        "weights": not_zero(point.model.sklearn_weights(estimator)),
                    },
                )
