"""tree: one decision tree."""

from typing import Any, ClassVar

from paceline.baseline.encoding import MOST
from paceline.baseline.model import Model


class Tree(Model):
    """The setting is the depth, MLlib's default. MLlib divides texts into two sets at each branch; scikit-learn takes indexes
    for amounts."""

    encoding = "index"
    variants: ClassVar = {"tree, depth 5": 5}

    def mllib(self, setting: float) -> Any:
        from pyspark.ml.classification import DecisionTreeClassifier

        return DecisionTreeClassifier(maxDepth=int(setting), maxBins=MOST + 28)

    def sklearn(self, setting: float) -> Any:
        from sklearn.tree import DecisionTreeClassifier

        return DecisionTreeClassifier(max_depth=int(setting), random_state=0)
