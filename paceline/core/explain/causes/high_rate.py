"""A learning rate that is too high."""

from typing import ClassVar

from paceline.core.chief.advice import Advice
from paceline.core.chief.warnings import RunWarning
from paceline.core.explain.cause import Cause, Finding
from paceline.core.explain.evidence import Evidence
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.settings.config import Config

_RATE = "optimizer.lr="


class HighRate(Cause):
    """Evidence: the run's own warnings (paceline.core.chief.warnings) that stand and advise a lower rate: steps without a
    finite gradient, a loss that explodes or has risen, a model that has learned nothing, a run that went back."""

    is_warned: ClassVar[bool] = True

    def look(self, evidence: Evidence) -> Finding | None:
        for warning in evidence.warnings:
            if not warning.passed and _lowers(warning, evidence.config):
                said = f"the rate is too high: {warning.said}"
                return Finding(1.0, said, Advice(warning.advice, tuple(warning.settings)))
        return None


def _lowers(warning: RunWarning, config: Config) -> bool:
    """Whether it advises a lower rate than the present one."""
    first = next(iter(warning.settings), "")
    return first.startswith(_RATE) and float(first.removeprefix(_RATE)) < build_optimizer(config.optimizer).lr
