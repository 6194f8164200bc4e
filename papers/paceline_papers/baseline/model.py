"""A model of MLlib's and the same of scikit-learn's."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from paceline.core.registry import find

MODELS = "paceline_papers.baseline.models"


class Model(ABC):
    """One kind; one file each."""

    encoding: ClassVar[str]
    """What its features are if nobody says otherwise."""
    variants: ClassVar[Mapping[str, float]]
    """Its one setting, by the name of the row; those of [Survey] where that has the model."""
    of_survey: ClassVar[bool] = True
    """Whether [Survey] has it; others are trained only where they are asked for."""
    takes_negative: ClassVar[bool] = True
    """Whether features may be below 0."""
    tells_chances: ClassVar[bool] = False
    """Whether a log loss of its probabilities means something."""

    @abstractmethod
    def mllib(self, setting: float) -> Any:
        """An estimator of pyspark.ml, for columns `features` and `label`."""

    @abstractmethod
    def mllib_numbers(self, fitted: Any) -> Sequence[float]:
        """All numbers of a fitted model of MLlib's."""

    def mllib_weights(self, fitted: Any) -> Any:
        """Of a linear model of MLlib's, without intercepts; None: it is none."""
        return None

    @abstractmethod
    def sklearn(self, setting: float, rows: int) -> Any:
        """An estimator of scikit-learn's. `rows`: of the training part."""

    def sklearn_weights(self, fitted: Any) -> Any:
        """As `mllib_weights`."""
        return None

    def paceline(self, setting: float, rows: int) -> Mapping[str, Any] | None:
        """Settings of a run of Paceline's on sparse rows; None: it has no such model. `rows`: as of `sklearn`."""
        return None


def model(name: str) -> Model:
    """ConfigError: there is none of this name."""
    return find(MODELS, Model, name)()
