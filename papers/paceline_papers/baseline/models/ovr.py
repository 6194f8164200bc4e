"""ovr: logistic regression of each class against all others (one against rest). [Survey] has none."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from paceline_papers.baseline.models.lr import Lr


class Ovr(Lr):
    """As many models of two classes as there are classes; the one that is surest answers. The setting is as in `lr`."""

    of_survey = False
    variants: ClassVar = {"ovr, 20 steps": 20}
    tells_chances = False

    def mllib(self, setting: float) -> Any:
        from pyspark.ml.classification import LogisticRegression, OneVsRest

        return OneVsRest(classifier=LogisticRegression(family="binomial", maxIter=int(setting)))

    def mllib_numbers(self, fitted: Any) -> Sequence[float]:
        return [*self.mllib_weights(fitted).ravel(), *(each.intercept for each in fitted.models)]

    def mllib_weights(self, fitted: Any) -> Any:
        return np.array([each.coefficients.toArray() for each in fitted.models])

    def sklearn(self, setting: float, rows: int) -> Any:
        from sklearn.multiclass import OneVsRestClassifier

        return OneVsRestClassifier(super().sklearn(setting, rows))

    def sklearn_weights(self, fitted: Any) -> Any:
        return np.concatenate([super(Ovr, self).sklearn_weights(each) for each in fitted.estimators_])

    def paceline(self, setting: float, rows: int) -> Mapping[str, Any]:
        return {**super().paceline(setting, rows), "svm.objective.loss": "logistic"}
