"""bayes: multinomial naive Bayes."""

from collections.abc import Sequence
from typing import Any, ClassVar

from paceline_papers.baseline.model import Model


class Bayes(Model):
    """The setting is the smoothing: that many of each feature are added to those of each class."""

    encoding = "index"
    takes_negative = False
    variants: ClassVar = {"bayes, smoothing 1": 1.0, "bayes, smoothing 500": 500.0}

    def mllib(self, setting: float) -> Any:
        from pyspark.ml.classification import NaiveBayes

        return NaiveBayes(modelType="multinomial", smoothing=setting)

    def mllib_numbers(self, fitted: Any) -> Sequence[float]:
        return [*fitted.pi.toArray(), *fitted.theta.toArray().ravel()]

    def sklearn(self, setting: float, rows: int) -> Any:
        from sklearn.naive_bayes import MultinomialNB

        return MultinomialNB(alpha=setting)
