"""Suggests settings to try when a run does not learn, given its present ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.errors import ConfigError
from paceline.core.large_numbers import scaled
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.setting_rules.check_rules import check
from paceline.core.settings.config import Config

_ABSURD = 30.0
"""Factor over the usual rate beyond which a tenth of the rate would not help."""
_C, LAM = 1.0, 1e-5
"""A linear model's default cost of errors, and the default pull on its weights."""
_TIMID = 0.01
"""Fraction of the usual rate below which a rate may be too low."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Settings to try, the best one first."""

    text: str
    """In words, without a full stop."""
    settings: tuple[str, ...] = ()
    """The first advice as 'key=value', as after --set; empty where no setting helps."""


def lower_rate(config: Config, large: str = "", limited: bool = False) -> Advice:
    """Advice against steps that are too long. `large`: columns of large numbers in the inputs, which no rate helps with;
    `limited`: a limit on gradients would also help."""
    if is_fitted(config):
        return _of_objective(config, 0.1)
    if large and not _is_absurd(config):
        return Advice(scaled(large))
    rate = build_optimizer(config.optimizer).lr
    lower = _usual(config) if _is_absurd(config) else rate / 10
    first = f"optimizer.lr={lower:.3g}"
    instead = _instead(config) or (", or clip.norm=1" if limited and _may_clip(config) else "")
    inputs = "" if config.updates == "sparse" else f", or {scaled(large)}"
    return Advice(f"{first} (it is {rate:g}){instead}{inputs}", (first,))


def other_rate(config: Config, has_moved: bool, large: str = "") -> Advice:
    """Advice when nothing is learned: a lower rate, or a higher one if a very low one has hardly changed the loss. With a
    linear model's fitted steps: another cost of errors. `large`: as in `lower_rate`."""
    if is_fitted(config):
        return _dearer(config)
    rate, usual = build_optimizer(config.optimizer).lr, _usual(config)
    if large or has_moved or rate >= _TIMID * usual:
        return lower_rate(config, large)
    first = f"optimizer.lr={usual:.3g}"
    return Advice(f"{first} (it is {rate:g})", (first,))


def finite_gradients(config: Config, large: str = "") -> Advice:
    """Advice against losses and gradients that are not finite. `large`: as in `lower_rate`."""
    found = lower_rate(config, large, limited=True)
    if config.updates == "sparse" or large or _is_absurd(config):
        return found
    return Advice(f"{found.text}, and look for log(0), a root of 0 or a division by 0 in the loss", found.settings)


def same_bits(config: Config) -> Advice:
    """Advice where a run in lock-step has lost its bits to several deaths at once."""
    again = "the run again from its beginning, if you need the same bits"
    if config.on_lost_worker == "wait":
        return Advice(again)
    return Advice(f"{again}, with on_lost_worker=wait", ("on_lost_worker=wait",))


def other_labels() -> Advice:
    """Advice where the data have one class."""
    return Advice("data with examples of another class, or the column of the labels")


def other_mix() -> Advice:
    """Advice where a policy's formula has no effect."""
    first = "policy.alpha=0.5"
    return Advice(f"{first}, another policy.reading, or another number of workers", (first,))


def other_cap(config: Config, workers: Sequence[str], others: int) -> Advice:
    """Advice where these workers' pushes are above push_norm_cap most of the time, and those of that many others are not."""
    if others > len(workers):
        own = "its own data and machine are" if len(workers) == 1 else "their own data and machines are"
        return Advice(f"a look at {' and '.join(workers)}: other workers' pushes are below the cap, so {own} odd")
    cap = config.push_norm_cap or 0.0
    first = f"push_norm_cap={10 * cap:.3g}"
    return Advice(
        f"{first} (it is {cap:g}) if the run learns too slowly, or a lower optimizer.lr if it diverges", (first,)
    )


def fewer_drops(config: Config) -> Advice:
    """Advice for a worker whose pushes are all too old for the policy."""
    if config.updates == "dense" and takes(config, batch="speed"):
        first = "batch=speed"
        return Advice(f"{first} (a slower worker takes fewer examples), or a looser policy like asp", (first,))
    return Advice("a looser policy: paceline set RUN policy=asp")


def takes(config: Config, **settings: Any) -> bool:
    """Whether a run of this config could have these settings instead of others, and would not be refused."""
    changed = config.model_copy(update=settings)
    try:
        check(changed, {})
    except ConfigError:
        return False
    return changed != config


def strength(config: Config) -> tuple[str, float]:
    """The setting that controls a linear model's regularisation, and its value."""
    objective = config.svm.objective
    return ("svm.objective.lam", objective.lam) if objective.c is None else ("svm.objective.c", objective.c)


def is_fitted(config: Config) -> bool:
    """Whether a linear model takes fitted steps, whose rate needs no tuning."""
    return config.updates == "sparse" and config.svm.steps == "fitted"


def _of_objective(config: Config, factor: float) -> Advice:
    """Advice to multiply the cost of errors, by C or by the inverse of lam; the default cost if the present one is far off."""
    key, value = strength(config)
    usual, times = (_C, factor) if key.endswith(".c") else (LAM, 1 / factor)
    is_far = value > _ABSURD * usual if times < 1 else value < usual / _ABSURD
    other = usual if is_far else times * value
    first = f"{key}={other:.3g}"
    return Advice(f"{first} (it is {value:g})", (first,))


def _dearer(config: Config) -> Advice:
    """Advice against a model that always names one class: raise the cost of errors if it is low, or that of rare classes."""
    key, value = strength(config)
    epochs = f"epochs={2 * config.epochs}"
    more = _of_objective(config, 10) if value else Advice(f"{epochs} (it is {config.epochs})", (epochs,))
    is_cheap = value < _C if key.endswith(".c") else value > LAM
    if is_cheap or config.svm.class_weights is not None:
        return more
    first = "svm.class_weights=balanced"
    return Advice(f"{first} (errors in rare classes cost more), or {more.text}", (first,))


def _is_absurd(config: Config) -> bool:
    """Whether the rate is so high that a tenth of it would not help."""
    return build_optimizer(config.optimizer).lr > _ABSURD * _usual(config)


def _usual(config: Config) -> float:
    return build_optimizer(config.optimizer).usual_rate


def _may_clip(config: Config) -> bool:
    return config.updates == "dense" and config.clip.norm is None and config.clip.quantile is None


def _instead(config: Config) -> str:
    """Further advice if rate and momentum are used unscaled although several workers push."""
    scale = config.schedule.lr_scale
    if scale == "auto" or config.workers == 1 or config.updates == "sparse":
        return ""
    return f", or schedule.lr_scale=auto (it is {scale}; auto fits rate and momentum to the policy and its workers)"
