"""tree: one decision tree."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from paceline_papers.baseline.encoding import MOST
from paceline_papers.baseline.model import Model

NUMBER = r"-?\d+(?:\.\d+)?(?:E-?\d+)?"


class Tree(Model):
    """The setting is the depth, MLlib's default. MLlib divides texts into two sets at each branch; scikit-learn takes indexes
    for amounts."""

    encoding = "index"
    variants: ClassVar = {"tree, depth 5": 5}

    def mllib(self, setting: float) -> Any:
        from pyspark.ml.classification import DecisionTreeClassifier

        return DecisionTreeClassifier(maxDepth=int(setting), maxBins=MOST + 28)

    def mllib_numbers(self, fitted: Any) -> Sequence[float]:
        _, branches = fitted.toDebugString.split("\n", 1)  # before it is a name that changes
        return [float(number) for number in re.findall(NUMBER, branches)]

    def sklearn(self, setting: float, rows: int) -> Any:
        from sklearn.tree import DecisionTreeClassifier

        return DecisionTreeClassifier(max_depth=int(setting), random_state=0)
