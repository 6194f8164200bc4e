"""What [SHAT]'s recipes have in common at full size: its presets, with the workers, methods and clusters of its tables."""

from collections.abc import Mapping
from typing import Any

from paceline.results.result import Result
from paceline.tasks.builtin import cifar10
from paceline_papers.reproduce.real_runs import by_epoch, trained
from paceline_papers.reproduce.recipe import Around
from paceline_studies.simulator.training import Curve

PRESETS = {"ResNet-50": "shat", "VGG-16": "shat-vgg16"}
SERVERS = 4
"""Of its section 4.4; Table 2 and Figs. 4 and 5 don't say."""
NEEDS = f"CIFAR-10: {cifar10.WHERE} with --data."
TRAINS = "{} on CIFAR-10 with the paper's settings, 250 epochs, 4 servers, real processes."


def run_of(
    around: Around, model: str, method: str, policy: Mapping[str, Any], workers: int, seed: int, slow: str = ""
) -> Result:
    """One run of a model by a method. `slow`: what the last worker is slower by, like 10x. Tables and figures share it."""
    steps = {} if policy["name"] == "asp" else {"local_step": "optimizer"}
    settings = {"workers": workers, "servers": SERVERS, "policy": {**policy, **steps}, "seed": seed}
    if slow:
        settings["slow"] = {str(workers - 1): slow}
    name = f"{model} {method} n{workers} {slow and f'slow {slow}'} seed{seed}"
    return trained(around, name, PRESETS[model], settings)


def curve_of(result: Result) -> Curve:
    """Its test accuracy after each epoch; the times are seconds."""
    return Curve(
        by_epoch(result, lambda score: score.seconds), by_epoch(result, lambda score: score.metrics["test_accuracy"])
    )
