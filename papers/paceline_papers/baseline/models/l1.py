"""l1: multinomial logistic regression with L1, which makes weights 0 that the table does not need. [Survey] has none."""

from collections.abc import Mapping
from typing import Any, ClassVar

from paceline_papers.baseline.models.lr import Lr

STEPS, EPOCHS, RATE = 20, 5, 0.3
"""Of both libraries, of FTRL, and its rate (measured on both made-up tables)."""


class L1(Lr):
    """The setting is the strength: it counts against the mean loss, times the sum of the weights' sizes. Features are not
    scaled, since that would change what a weight costs. Paceline's servers step by FTRL."""

    of_survey = False
    variants: ClassVar = {"lr, L1 0.0001": 1e-4, "lr, L1 0.001": 1e-3}

    def mllib(self, setting: float) -> Any:
        from pyspark.ml.classification import LogisticRegression

        return LogisticRegression(
            family="multinomial", maxIter=STEPS, regParam=setting, elasticNetParam=1.0, standardization=False
        )

    def sklearn(self, setting: float, rows: int) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(l1_ratio=1, C=1 / (setting * rows), solver="saga", max_iter=STEPS, random_state=0)

    def sklearn_weights(self, fitted: Any) -> Any:
        return fitted.coef_

    def paceline(self, setting: float, rows: int) -> Mapping[str, Any]:
        return {
            "epochs": EPOCHS,
            "optimizer": {"name": "ftrl", "lr": RATE, "l1": setting * rows * EPOCHS},
            "schedule": {"name": "constant", "lr_scale": "none"},
            "svm.steps": "plain",
            "svm.objective.loss": "softmax",
            "svm.objective.lam": 0,
            "svm.average_last": "null",
        }
