"""lr: multinomial logistic regression, without regularization, MLlib's default. The libraries train by L-BFGS, Paceline by
Hogwild's steps."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from paceline_papers.baseline.model import Model


class Lr(Model):
    """The setting is the number of steps (maxIter). Both libraries scale features to a standard deviation of 1; a fitted step
    has a rate for each feature instead."""

    encoding = "onehot"
    variants: ClassVar = {"lr, 3 steps": 3, "lr, 20 steps": 20}
    tells_chances = True
    epochs: ClassVar = {3: 1, 20: 5}
    """After which Paceline's loss on 300,000 rows of both made-up tables is not above MLlib's, by MLlib's steps (measured)."""

    def mllib(self, setting: float) -> Any:
        from pyspark.ml.classification import LogisticRegression

        return LogisticRegression(family="multinomial", maxIter=int(setting))

    def mllib_numbers(self, fitted: Any) -> Sequence[float]:
        return [*self.mllib_weights(fitted).ravel(), *fitted.interceptVector.toArray()]

    def mllib_weights(self, fitted: Any) -> Any:
        return fitted.coefficientMatrix.toArray()

    def sklearn(self, setting: float, rows: int) -> Any:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        return make_pipeline(StandardScaler(with_mean=False), LogisticRegression(C=np.inf, max_iter=int(setting)))

    def sklearn_weights(self, fitted: Any) -> Any:
        return fitted[-1].coef_

    def paceline(self, setting: float, rows: int) -> Mapping[str, Any]:
        return {"epochs": self.epochs[int(setting)], "svm.objective.loss": "softmax", "svm.objective.lam": 0}
