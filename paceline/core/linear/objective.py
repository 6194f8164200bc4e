"""What a linear model over sparse rows is trained to make small."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from paceline.core.values import Vector


class Objective(BaseModel):
    """The loss of a sample with label y (-1 or +1) and margin z = x.w, and a pull of its features' weights towards zero
    [Hogwild; Niu et al. 2011]. A sample's gradient has values at its own features k only: slope(y, z) * x_k +
    decay_k * w_k. Its samples are summed over a batch, each at the weights before it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    loss: Literal["hinge", "logistic", "squared_hinge", "softmax"] = Field(
        "hinge",
        description="max(0, 1 - y z), log(1 + exp(-y z)), the square of the first, or -log of a class's softmax, "
        "all classes in one.",
    )
    c: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="LinearSVC's C, what errors cost; default: lam and reg count instead.",
    )
    lam: float = Field(1e-5, ge=0, allow_inf_nan=False, description="Strength of the pull towards zero; 0: none.")
    reg: Literal["support", "hogwild"] = Field(
        "support",
        description="How lam acts: by every sample (support), or shared by the samples that have the feature "
        "(hogwild).",
    )
    reduce: Literal["sum", "mean"] = Field("sum", description="What a batch's gradient is of its samples'.")

    def decays(self, counts: Callable[[], npt.NDArray[np.int64]]) -> Vector:
        """How strongly a sample pulls each of its features: one value for all features, or one for each (D,).
        `counts`: tells how many training samples have each feature (D,); asked only where that matters."""
        if self.c is not None:
            return (1 / (self.c * np.maximum(counts(), 1))).astype(np.float32)
        if self.reg == "support":
            return np.array([self.lam], np.float32)
        return (self.lam / np.maximum(counts(), 1)).astype(np.float32)

    def over(self, examples: float) -> "Objective":
        """The same with the lam that `c` gives for this number of training examples, or for the sum of their weights."""
        return self if self.c is None else self.model_copy(update={"lam": 1 / (self.c * (examples or 1))})

    def losses(self, labels: npt.NDArray[Any], margins: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Each sample's loss, without the pull."""
        agreement = labels.astype(np.float64) * margins
        if self.loss in ("logistic", "softmax"):
            found: npt.NDArray[np.float64] = np.logaddexp(0.0, -agreement)
            return found
        short: npt.NDArray[np.float64] = np.maximum(0.0, 1.0 - agreement)
        return short if self.loss == "hinge" else short**2

    def losses_of_classes(self, labels: Vector, margins: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The same of class numbers (N,) and margins (classes, N): each class against the rest, added up, or softmax."""
        wide = margins.astype(np.float64)
        if self.loss == "softmax":
            most = wide.max(axis=0)
            total: npt.NDArray[np.float64] = most + np.log(np.exp(wide - most).sum(axis=0))
            return total - wide[labels.astype(np.int64), np.arange(len(labels))]
        signs = np.where(labels == np.arange(len(wide))[:, None], 1, -1)
        found: npt.NDArray[np.float64] = self.losses(signs, wide).sum(axis=0)
        return found
