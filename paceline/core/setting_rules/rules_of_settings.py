"""Settings that conflict with every policy, codec and optimizer; and settings that some commands refuse."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from paceline.core.extension import SettingsRule
from paceline.core.fault import faults_of, strangers
from paceline.core.optimizers.builtin.sgd import is_sgd
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.settings.config import Config, DivergenceConfig, ScheduleConfig
from paceline.core.settings.stopping import StoppingConfig

Rules = tuple[SettingsRule, ...]


# the pool, the data and the slices
_START_WHEN = (
    SettingsRule(
        lambda start_when, config: start_when is not None and start_when > config.workers,
        "start_when is {start_when}, but there are only {workers} workers. Lower it, or leave it out.",
    ),
)
_LEASE = (
    SettingsRule(
        lambda lease, config: lease < 2 * config.heartbeat,
        "lease ({lease:g} s) must be at least twice the heartbeat ({heartbeat:g} s). Raise lease, or lower heartbeat.",
    ),
)
_SLOW = (
    SettingsRule(
        lambda slow, config: bool(_strangers(slow, config.workers)),
        "slow: there is no worker {who}; {workers} workers count from 0. Name one of them, or 'all'.",
        {"who": lambda slow, config: _strangers(slow, config.workers)[0]},
    ),
)
_FAULTS = (
    SettingsRule(
        lambda faults, config: bool(_unknown(config)),
        "faults: there is no {who} in a run of {workers} workers and {servers} servers, which count from 0. Name a process "
        "that the run has.",
        {"who": lambda faults, config: _unknown(config)[0]},
    ),
    SettingsRule(
        lambda faults, config: not config.servers and bool(_links(config)),
        "faults: {link} is emulated between a worker and servers, but servers is 0. Set servers=1 or more, or leave it out.",
        {"link": lambda faults, config: _links(config)[0]},
    ),
)
_DATA = (
    SettingsRule(
        lambda data, config: data.validation + data.test >= 1,
        "data.validation and data.test together leave no training data; make them smaller.",
    ),
    SettingsRule(
        lambda data, config: data.shards is not None and data.shards < config.workers,
        "The run has {workers} workers but only {data.shards} shards: every worker needs one. Set data.shards to "
        "{workers} or more, or workers to {data.shards}.",
    ),
    SettingsRule(
        lambda data, config: bool(data.weights) and len(data.weights) != (data.shards or config.workers),
        "data.weights has {count} numbers for {shards} shards; give one for each shard.",
        {
            "count": lambda data, config: len(data.weights),
            "shards": lambda data, config: data.shards or config.workers,
        },
    ),
    SettingsRule(
        lambda data, config: data.shards_at is not None and data.source != "files",
        "data.shards_at is {data.shards_at}, from where workers fetch their shards themselves, but data.source is "
        "{data.source}. Set data.source=files, or leave data.shards_at out.",
    ),
)
_PLAN = (
    SettingsRule(
        lambda plan, config: plan.max_slice_bytes is not None and plan.slices != "memorywise",
        "plan.max_slice_bytes belongs to memorywise slices, not to {plan.slices} ones. Leave it out, or set "
        "plan.slices=memorywise.",
    ),
)


def _unknown(config: Config) -> list[str]:
    """Processes that are to fail, and that the run does not have."""
    return strangers(config.faults, config.server_processes, config.workers)


def _links(config: Config) -> list[str]:
    """Faults that happen on a worker's way to servers."""
    return [fault.text for fault in faults_of(config.faults) if not fault.signals]


def _strangers(slow: Mapping[str, str], workers: int) -> list[str]:
    """Slow workers that the run does not have."""
    return [who for who in slow if who != "all" and int(who) >= workers]


# the learning rate
_SHAPES = {
    "every": ("step",),
    "milestones": ("multistep",),
    "gamma": ("step", "multistep"),
    "power": ("polynomial",),
    "end": ("cosine", "polynomial"),
    "epochs": ("cosine", "polynomial"),
}
"""Which schedules an option of a schedule belongs to."""


def _of_a_shape(key: str, shapes: tuple[str, ...]) -> SettingsRule:
    """An option that the chosen schedule does not have."""
    default = ScheduleConfig.model_fields[key].default
    return SettingsRule(
        lambda schedule, config: schedule.name not in shapes and getattr(schedule, key) != default,
        f"schedule: {key} belongs to {' and '.join(shapes)}, not to {{schedule.name}}: set schedule.name.",
    )


def _within_the_run(key: str, when: Callable[[ScheduleConfig], float | None]) -> SettingsRule:
    """An event after a number of epochs must come before the last one."""
    return SettingsRule(
        lambda schedule, config: (when(schedule) or 0) >= config.epochs,
        f"schedule.{key} ({{when:g}}) must be below epochs ({{epochs}}), or the run ends before it matters. Set it lower, or "
        "epochs higher.",
        {"when": lambda schedule, config: when(schedule)},
    )


def _starts_at_its_end(schedule: ScheduleConfig) -> bool:
    """Whether a warm-up starts at its final value, apart from the number of workers."""
    return bool(schedule.warmup_epochs) and schedule.warmup_start in (None, 1)


_SCHEDULE = (
    *(_of_a_shape(key, shapes) for key, shapes in _SHAPES.items()),
    SettingsRule(
        lambda schedule, config: schedule.name == "step" and schedule.every is None,
        "schedule: step needs schedule.every, the epochs between two reductions. Set it.",
    ),
    SettingsRule(
        lambda schedule, config: schedule.name == "multistep" and not schedule.milestones,
        "schedule: multistep needs schedule.milestones, the epochs of the reductions, like [100, 150]. Set them.",
    ),
    SettingsRule(
        lambda schedule, config: not all(one < other for one, other in pairwise((0.0, *schedule.milestones))),
        "schedule: milestones are {schedule.milestones}; expected epochs above 0 in ascending order.",
    ),
    SettingsRule(  # 1: the default of earlier releases
        lambda schedule, config: not schedule.warmup_epochs and schedule.warmup_start not in (None, 1),
        "schedule: warmup_start belongs to a warm-up: set schedule.warmup_epochs above 0.",
    ),
    SettingsRule(
        lambda schedule, config: _starts_at_its_end(schedule) and schedule.lr_scale in ("none", "inverse", "adascale"),
        "schedule: a warm-up from 1 changes nothing with lr_scale {schedule.lr_scale}: set schedule.warmup_start below 1.",
    ),
    _within_the_run("every", lambda schedule: None if schedule.every == 1 else schedule.every),  # 1: always allowed
    _within_the_run("milestones", lambda schedule: max(schedule.milestones, default=None)),
    _within_the_run("warmup_epochs", lambda schedule: schedule.warmup_epochs),
    SettingsRule(
        lambda schedule, config: schedule.epochs is not None and schedule.epochs > config.epochs,
        "schedule.epochs ({schedule.epochs:g}) is above epochs ({epochs}), so the {schedule.name}'s end is never reached; "
        "leave it out to end with the run.",
    ),
    SettingsRule(
        lambda schedule, config: schedule.epochs is not None and schedule.epochs < config.epochs and not schedule.end,
        "the rate would be 0 from schedule.epochs ({schedule.epochs:g}) to epochs ({epochs}) and nothing learned: set "
        "schedule.end above 0, or leave schedule.epochs out.",
    ),
    SettingsRule(
        lambda schedule, config: schedule.lr_scale == "adascale" and config.updates == "sparse",
        "schedule.lr_scale: adascale measures gradients; sparse updates are changes. Leave it out.",
    ),
)


_CLIP = (
    SettingsRule(
        lambda clip, config: clip.of == "mean" and (clip.norm is None or clip.quantile is not None),
        "clip.of is mean, whose one limit is clip.norm. Set clip.norm, and leave clip.quantile out.",
    ),
    SettingsRule(
        lambda clip, config: clip.of == "mean" and config.servers > 1 and config.plan.slices != "whole",
        "clip.of is mean, and the norm of a mean is known only where all of it is, but {servers} servers hold slices of the "
        "model. Set plan.slices=whole, or servers=1.",
    ),
)


# linear models over sparse rows
def is_plain(config: Config) -> bool:
    """Whether the optimizer is SGD without momentum and decay."""
    options = config.optimizer.options
    return is_sgd(config.optimizer) and not options.get("momentum") and not options.get("weight_decay")


def steps_sparsely(config: Config) -> bool:
    """Whether the servers step with the optimizer on sparse gradients."""
    return build_optimizer(config.optimizer).sparse


def goes_back(config: Config) -> bool:
    """Whether settings say how the run goes back when it diverges (divergence)."""
    return config.divergence.rollbacks > 0 and config.divergence != DivergenceConfig()


def _has_parts(options: Mapping[str, Any]) -> bool:
    return bool(options.get("groups") or options.get("maximize"))


def _is_of_another_rule(stopping: StoppingConfig | None, rule: str, *names: str) -> bool:
    """Whether settings that only this rule has were given with another one."""
    usual = StoppingConfig()
    return (
        stopping is not None
        and stopping.rule != rule
        and any(getattr(stopping, name) != getattr(usual, name) for name in names)
    )


_STOPPING = (
    SettingsRule(
        lambda stopping, config: stopping is not None and (stopping.rule == "target") != (stopping.target is not None),
        "stopping.target goes with stopping.rule: target, and rule is {own.rule}. Set both, or leave target out.",
    ),
    SettingsRule(
        lambda stopping, config: _is_of_another_rule(stopping, "delta", "delta"),
        "stopping.delta goes with stopping.rule: delta, and rule is {own.rule}. Set both, or leave delta out.",
    ),
    SettingsRule(
        lambda stopping, config: _is_of_another_rule(stopping, "window", "patience", "min_delta"),
        "stopping.patience and stopping.min_delta go with stopping.rule: window, and rule is {own.rule}. Leave them out, or "
        "take that rule.",
    ),
)
_SVM = (
    SettingsRule(
        lambda svm, config: svm.stopping is not None and config.updates == "dense",
        "svm.stopping is for linear models (updates: sparse), and task {task} has updates: dense, so it would be ignored. "
        "Set stopping instead, like stopping.patience=5.",
    ),
    SettingsRule(
        lambda svm, config: svm.stopping is not None and not svm.held_out,
        "svm: stopping needs validation losses: set svm.validation above 0.",
    ),
    SettingsRule(
        lambda svm, config: svm.average_last is not None and config.updates == "dense",
        "svm.average_last is for sparse updates. Leave it out.",
    ),
    SettingsRule(
        lambda svm, config: (
            svm.average_from is not None and (config.updates == "dense" or svm.average_from >= config.epochs)
        ),
        "svm.average_from is {svm.average_from:g}, updates are {updates}, epochs {epochs}; it is for sparse updates and must "
        "be below epochs. Lower it or leave it out.",
    ),
)
_UPDATES = (
    SettingsRule(
        lambda updates, config: updates == "sparse" and _has_parts(config.optimizer.options),
        "sparse updates are plain SGD steps of the workers, all at one rate: leave out optimizer.groups and "
        "optimizer.maximize.",
    ),
    SettingsRule(
        lambda updates, config: updates == "sparse" and not is_plain(config) and not steps_sparsely(config),
        "optimizer is {optimizer.name} {optimizer.options}, but sparse updates are plain SGD steps of the workers; set "
        "optimizer.name=sgd, optimizer.momentum=0 and optimizer.weight_decay=0 (svm.objective.lam regularises), or take "
        "optimizer.name=ftrl.",
    ),
    SettingsRule(
        lambda updates, config: (
            updates == "sparse" and (config.plan.slices == "layerwise" or config.plan.max_slice_bytes is not None)
        ),
        "sparse updates need slices of one range each: leave plan.slices at memorywise or whole, and plan.max_slice_bytes "
        "out.",
    ),
    SettingsRule(
        lambda updates, config: (
            updates == "sparse" and (config.clip.norm is not None or config.clip.quantile is not None)
        ),
        "clip does not go with sparse updates; leave it out.",
    ),
    SettingsRule(
        lambda updates, config: updates == "sparse" and goes_back(config),
        "divergence is set, but a run with sparse updates never goes back: its steps are fitted. Leave it out.",
    ),
)


# a user's script, and training without a run
def _script_alone(key: str) -> SettingsRule:
    """Settings for what a script does itself."""
    default = Config.model_fields[key].default
    return SettingsRule(
        lambda data, config: data.source == "script" and getattr(config, key) != default,
        f"{key} is {{{key}}}, which is for tasks; your own script or model is trained as it is. Do it there, and leave {key} "
        "out.",
    )


_SCRIPT = (
    *(_script_alone(key) for key in ("accumulate", "precision", "compile", "overlap", "model")),
    SettingsRule(
        lambda data, config: data.source == "script" and config.updates == "sparse",
        "updates is sparse, but what is trained is a model of torch. Leave updates out.",
    ),
    SettingsRule(
        lambda data, config: data.source == "script" and config.batch == "speed",
        "batch is speed, but a DataLoader draws its mini-batches ahead. Set batch=global, or worker.",
    ),
    SettingsRule(
        lambda data, config: data.source != "script" and config.evaluate_every == 0,
        "evaluate_every is 0, so nobody would keep the model; set it to 1 or more.",
    ),
    SettingsRule(
        lambda data, config: data.source != "script" and config.scored_by == "worker",
        "scored_by is worker, but only a script's worker can score. Leave scored_by out.",
    ),
    SettingsRule(
        lambda data, config: data.source != "script" and bool(config.arguments),
        "arguments are for a script (paceline launch); leave them out.",
    ),
)
_LOCAL = (
    SettingsRule(
        lambda command, config: config.updates != "sparse",
        "Task {task} has updates: {updates}; `paceline local` trains linear models, which have updates: sparse, like task "
        "svm.",
    ),
    SettingsRule(
        lambda command, config: bool(config.schedule.warmup_epochs),
        "schedule.warmup_epochs is set, but `paceline local` has no warm-up; leave it out.",
    ),
    SettingsRule(
        lambda command, config: config.updates == "sparse" and steps_sparsely(config),
        "optimizer {optimizer.name} steps on servers, and `paceline local` has none. Set optimizer.name=sgd, or take "
        "`paceline run`.",
    ),
    SettingsRule(
        lambda command, config: config.stopping is not None,
        "stopping looks at the scores of a run, and `paceline local` has none; set svm.stopping instead.",
    ),
    SettingsRule(
        lambda command, config: config.push_norm_cap is not None,
        "push_norm_cap is {push_norm_cap:g}; servers keep it, and `paceline local` has none. Leave it out.",
    ),
    SettingsRule(
        lambda command, config: bool(config.loggers),
        "loggers follow a run, and `paceline local` is none. Leave them out, or take `paceline run`.",
    ),
    SettingsRule(
        lambda command, config: config.models_at is not None,
        "models_at is for a run with servers, and `paceline local` has none. Leave it out, or take `paceline run`.",
    ),
    SettingsRule(
        lambda command, config: config.checkpoint.at is not None,
        "checkpoint.at is for a run with servers, and `paceline local` has none. Leave it out, or take `paceline run`.",
    ),
)
_SEARCH = (
    SettingsRule(
        lambda command, config: config.updates != "sparse",
        "--engine local trains linear models, but task {task} has updates: {updates}. Leave --engine out.",
    ),
)

SETTINGS: Mapping[str, Rules] = {
    "start_when": _START_WHEN,
    "lease": _LEASE,
    "slow": _SLOW,
    "faults": _FAULTS,
    "data": (*_DATA, *_SCRIPT),
    "plan": _PLAN,
    "schedule": _SCHEDULE,
    "clip": _CLIP,
    "updates": _UPDATES,
    "stopping": _STOPPING,
    "svm": _SVM,
}
"""Rules by the setting that they concern; `own` is its value."""
LOCAL, SEARCH = "paceline local", "paceline search --engine local"
COMMANDS: Mapping[str, Rules] = {LOCAL: _LOCAL, SEARCH: _SEARCH}
"""Rules of commands that accept only some settings."""
