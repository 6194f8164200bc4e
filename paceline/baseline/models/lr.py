"""lr: multinomial logistic regression by L-BFGS, without regularization, MLlib's default."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from paceline.baseline.model import Model


class Lr(Model):
    """The setting is the number of steps (maxIter). Both libraries scale features to a standard deviation of 1."""

    encoding = "onehot"
    variants: ClassVar = {"lr, 3 steps": 3, "lr, 20 steps": 20}
    tells_chances = True

    def mllib(self, setting: float) -> Any:
        from pyspark.ml.classification import LogisticRegression

        return LogisticRegression(family="multinomial", maxIter=int(setting))

    def mllib_numbers(self, fitted: Any) -> Sequence[float]:
        return [*fitted.coefficientMatrix.toArray().ravel(), *fitted.interceptVector.toArray()]

    def sklearn(self, setting: float) -> Any:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        return make_pipeline(StandardScaler(with_mean=False), LogisticRegression(C=np.inf, max_iter=int(setting)))
