"""Which linear model a number of classes and a loss need."""

from paceline.core.linear.model import Fit, LinearModel
from paceline.core.linear.objective import Objective
from paceline.core.linear.one_vs_rest import OneVsRest
from paceline.core.linear.softmax import Softmax
from paceline.core.values import Vector

AnyModel = LinearModel | OneVsRest | Softmax


def linear_model(
    weights: Vector, classes: int, objective: Objective, decays: Vector, tracks: bool = False, fit: Fit | None = None
) -> AnyModel:
    """One model for two classes; for more all classes together (softmax), or each against the rest."""
    if classes == 2:
        return LinearModel(weights, objective, decays, tracks, fit)
    kind = Softmax if objective.loss == "softmax" else OneVsRest
    return kind(weights, classes, objective, decays, tracks, fit)
