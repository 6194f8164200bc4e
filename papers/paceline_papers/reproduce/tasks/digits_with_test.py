"""The digits with test examples that are the same in every run."""

from paceline.extend import Dataset
from paceline.tasks.builtin import digits
from paceline.tasks.builtin.digits import SETTINGS, model, prepare
from paceline_papers.reproduce.tasks.with_test import with_test

__all__ = ["SETTINGS", "data", "model", "prepare"]


def data(path: str) -> Dataset:
    """As the task digits has them: 1,527 to train on, 270 to test."""
    return with_test(digits.data(path).train)
