"""Which settings go together: one table of those that do not, each with what is said of it. `load` walks it once for every
config, and docs/settings.md prints it. What only one policy, codec, topology or optimizer does not go with stands in its
own file, as `rules`."""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from paceline.core import registry
from paceline.core.coding.codec import Codec, codecs_that
from paceline.core.coding.sparse_codec import SparseCodec
from paceline.core.errors import ConfigError
from paceline.core.extension import Rule, own_rules
from paceline.core.folders import PEERS
from paceline.core.settings.codec import FIRST_SHARE, can_warm_up
from paceline.core.settings.config import Config, ScheduleConfig
from paceline.core.steps.optimizers.sgd import Sgd
from paceline.core.sync.policy import policies_that

Rules = tuple[Rule, ...]


def _codecs(fit: Callable[[Codec], bool]) -> Callable[[Any, Any], str]:
    return lambda own, config: codecs_that(fit)


def _policies(fit: Callable[[Any], bool]) -> Callable[[Any, Any], str]:
    return lambda own, config: policies_that(fit)


def _keeps_all(codec: Codec) -> bool:
    return codec.keeps_all


def _needs_no_feedback(codec: Codec) -> bool:
    return codec.keeps_all and not codec.biased


def _leaves_out(codec: Codec) -> bool:
    return isinstance(codec, SparseCodec)


def _feedback(own: Any, config: Config) -> str:
    return "on" if config.codec.has_feedback else "off"


# the pool, the data and the slices
_START_WHEN = (
    Rule(
        lambda start_when, config: start_when is not None and start_when > config.workers,
        "start_when is {start_when}, but there are only {workers} workers. Lower it, or leave it out.",
    ),
)
_LEASE = (
    Rule(
        lambda lease, config: lease < 2 * config.heartbeat,
        "lease ({lease:g} s) must be at least twice the heartbeat ({heartbeat:g} s). Raise lease, or lower heartbeat.",
    ),
)
_SLOW = (
    Rule(
        lambda slow, config: bool(_strangers(slow, config.workers)),
        "slow: there is no worker {who}; {workers} workers count from 0. Name one of them, or 'all'.",
        {"who": lambda slow, config: _strangers(slow, config.workers)[0]},
    ),
)
_DATA = (
    Rule(
        lambda data, config: data.validation + data.test >= 1,
        "data.validation and data.test together leave no training data; make them smaller.",
    ),
    Rule(
        lambda data, config: data.shards is not None and data.shards < config.workers,
        "{workers} workers but only {data.shards} shards: every worker needs one. Set data.shards to {workers} or more, or "
        "workers to {data.shards}.",
    ),
    Rule(
        lambda data, config: bool(data.weights) and len(data.weights) != (data.shards or config.workers),
        "data.weights has {count} numbers for {shards} shards; give one for each shard.",
        {
            "count": lambda data, config: len(data.weights),
            "shards": lambda data, config: data.shards or config.workers,
        },
    ),
)
_PLAN = (
    Rule(
        lambda plan, config: plan.max_slice_bytes is not None and plan.slices != "memorywise",
        "plan.max_slice_bytes belongs to memorywise slices, not to {plan.slices} ones. Leave it out, or set "
        "plan.slices=memorywise.",
    ),
)


def _strangers(slow: Mapping[str, str], workers: int) -> list[str]:
    """Who is slow, but is not there."""
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


def _of_a_shape(key: str, shapes: tuple[str, ...]) -> Rule:
    """An option of a schedule that has none such."""
    default = ScheduleConfig.model_fields[key].default
    return Rule(
        lambda schedule, config: schedule.name not in shapes and getattr(schedule, key) != default,
        f"schedule: {key} belongs to {' and '.join(shapes)}, not to {{schedule.name}}: set schedule.name.",
    )


def _within_the_run(key: str, when: Callable[[ScheduleConfig], float | None]) -> Rule:
    """What happens after so many epochs must happen before the end."""
    return Rule(
        lambda schedule, config: (when(schedule) or 0) >= config.epochs,
        f"schedule.{key} ({{when:g}}) must be below epochs ({{epochs}}), or the run ends before it matters. Set it lower, or "
        "epochs higher.",
        {"when": lambda schedule, config: when(schedule)},
    )


def _starts_at_its_end(schedule: ScheduleConfig) -> bool:
    """Whether a warm-up begins with what it leads to, but for the workers."""
    return bool(schedule.warmup_epochs) and schedule.warmup_start in (None, 1)


_SCHEDULE = (
    *(_of_a_shape(key, shapes) for key, shapes in _SHAPES.items()),
    Rule(
        lambda schedule, config: schedule.name == "step" and schedule.every is None,
        "schedule: step needs schedule.every, the epochs between two reductions. Set it.",
    ),
    Rule(
        lambda schedule, config: schedule.name == "multistep" and not schedule.milestones,
        "schedule: multistep needs schedule.milestones, the epochs of the reductions, like [100, 150]. Set them.",
    ),
    Rule(
        lambda schedule, config: not all(one < other for one, other in pairwise((0.0, *schedule.milestones))),
        "schedule: milestones are {schedule.milestones}; expected epochs above 0 in ascending order.",
    ),
    Rule(  # 1: as runs before had it by default
        lambda schedule, config: not schedule.warmup_epochs and schedule.warmup_start not in (None, 1),
        "schedule: warmup_start belongs to a warm-up: set schedule.warmup_epochs above 0.",
    ),
    Rule(
        lambda schedule, config: _starts_at_its_end(schedule) and schedule.lr_scale in ("none", "inverse", "adascale"),
        "schedule: a warm-up from 1 changes nothing with lr_scale {schedule.lr_scale}: set schedule.warmup_start below 1.",
    ),
    _within_the_run("every", lambda schedule: None if schedule.every == 1 else schedule.every),  # 1: of however many
    _within_the_run("milestones", lambda schedule: max(schedule.milestones, default=None)),
    _within_the_run("warmup_epochs", lambda schedule: schedule.warmup_epochs),
    Rule(
        lambda schedule, config: schedule.epochs is not None and schedule.epochs > config.epochs,
        "schedule.epochs ({schedule.epochs:g}) is above epochs ({epochs}), so the {schedule.name}'s end is never reached; "
        "leave it out to end with the run.",
    ),
    Rule(
        lambda schedule, config: schedule.epochs is not None and schedule.epochs < config.epochs and not schedule.end,
        "the rate would be 0 from schedule.epochs ({schedule.epochs:g}) to epochs ({epochs}) and nothing learned: set "
        "schedule.end above 0, or leave schedule.epochs out.",
    ),
    Rule(
        lambda schedule, config: schedule.lr_scale == "adascale" and config.updates == "sparse",
        "schedule.lr_scale: adascale measures gradients; sparse updates are changes. Leave it out.",
    ),
)
_OPTIMIZER = (
    Rule(
        lambda optimizer, config: bool(config.codec.momentum) and not _is_plain(optimizer, config),
        "With codec.momentum ({codec.momentum:g}) the workers keep the momentum and the servers take plain steps; but "
        "optimizer.name is {optimizer.name}{momentum}. Use optimizer.name=sgd and optimizer.momentum=0.",
        {
            "momentum": lambda optimizer, config: (
                f" and optimizer.momentum {optimizer.momentum:g}" if isinstance(optimizer, Sgd) else ""
            )
        },
    ),
)


def _is_plain(optimizer: Any, config: Config) -> bool:
    """Whether the servers' steps are plain ones; with lr_scale: auto they leave the momentum out."""
    translated = config.schedule.lr_scale == "auto"
    return isinstance(optimizer, Sgd) and (translated or not optimizer.momentum)


# linear models over sparse rows
def _plain_options(config: Config) -> bool:
    options = config.optimizer.options
    return config.optimizer.name == "sgd" and not options.get("momentum") and not options.get("weight_decay")


_SVM = (
    Rule(
        lambda svm, config: svm.stopping is not None and not svm.kept,
        "svm: stopping goes by validation losses: set svm.validation above 0.",
    ),
    Rule(
        lambda svm, config: svm.average_last is not None and config.updates == "dense",
        "svm.average_last is for sparse updates. Leave it out.",
    ),
    Rule(
        lambda svm, config: (
            svm.average_from is not None and (config.updates == "dense" or svm.average_from >= config.epochs)
        ),
        "svm.average_from is {svm.average_from:g}, updates are {updates}, epochs {epochs}; it is for sparse updates and must "
        "be below epochs. Lower it or leave it out.",
    ),
)
_UPDATES = (
    Rule(
        lambda updates, config: updates == "sparse" and not _plain_options(config),
        "optimizer is {optimizer.name} {optimizer.options}, but sparse updates are plain SGD steps of the workers; set "
        "optimizer.name=sgd, optimizer.momentum=0 and optimizer.weight_decay=0 (svm.objective.lam regularises).",
    ),
    Rule(
        lambda updates, config: (
            updates == "sparse" and (config.plan.slices == "layerwise" or config.plan.max_slice_bytes is not None)
        ),
        "sparse updates need slices of one range each: leave plan.slices at memorywise or whole, and plan.max_slice_bytes "
        "out.",
    ),
    Rule(
        lambda updates, config: (
            updates == "sparse" and (config.clip.norm is not None or config.clip.quantile is not None)
        ),
        "clip does not go with sparse updates; leave it out.",
    ),
)

# codecs
_PULL = (
    Rule(
        lambda pull, config: not pull.keeps_all,
        "codec.pull is {codec.pull.name}, which leaves values out, but a weight can't be left out. Use {instead} there; "
        "codec.push takes any.",
        {"instead": _codecs(_keeps_all)},
    ),
)
_PUSH = (
    Rule(
        lambda push, config: config.updates == "sparse" and (push.biased or bool(config.codec.error_feedback)),
        "codec.push is {codec.push.name}, with error feedback {feedback}, but sparse updates are small already and keep no "
        "residual. Use {instead} and leave codec.error_feedback out.",
        {"feedback": _feedback, "instead": _codecs(_needs_no_feedback)},
    ),
    Rule(
        lambda push, config: config.schedule.lr_scale == "adascale" and not push.keeps_all,
        "schedule.lr_scale: adascale measures how much gradients differ, but codec.push is {codec.push.name}, which leaves "
        "most of them out. Use {instead}, or another lr_scale.",
        {"instead": _codecs(_keeps_all)},
    ),
    Rule(
        lambda push, config: bool(config.codec.momentum) and not (_leaves_out(push) and config.codec.has_feedback),
        "codec.momentum is {codec.momentum:g}, but codec.push is {codec.push.name}, with error feedback {feedback}. It "
        "corrects what waits in a residual until it is sent: use {instead} with error feedback, or leave codec.momentum out.",
        {"feedback": _feedback, "instead": _codecs(_leaves_out)},
    ),
    Rule(
        lambda push, config: bool(config.codec.warmup) and not can_warm_up(push),
        "codec.warmup_epochs is {codec.warmup:g}, but codec.push is {own!r}. What is sent must go by a share, and one below "
        f"{FIRST_SHARE:g}, where a warm-up begins: use {{instead}} with default options, or leave codec.warmup_epochs out.",
        {"instead": _codecs(can_warm_up)},
    ),
    Rule(
        lambda push, config: config.codec.warmup >= config.epochs,
        "codec.warmup_epochs ({codec.warmup:g}) must be below epochs ({epochs}), or the codec never comes to its own share. "
        "Set it lower; 0: no warm-up.",
    ),
)

# policies
_POLICY = (
    Rule(
        lambda policy, config: policy.served and not config.servers,
        "policy {policy.name} needs servers, but servers is 0. Set servers=1 or more, or take a policy that trains without "
        "them: {instead}.",
        {"instead": lambda policy, config: ", ".join(registry.names(PEERS))},
    ),
    Rule(
        lambda policy, config: not policy.served and bool(config.servers),
        "policy {policy.name} trains without servers, but servers is {servers}. Set servers=0.",
    ),
    Rule(
        lambda policy, config: policy.served and config.topology is not None,
        "topology is for policies without servers, not for {policy.name}. Leave it out.",
    ),
    Rule(
        lambda policy, config: config.overlap and not policy.overlaps,
        "overlap: true does not go with policy {policy.name}, whose workers need each reply before the next step. Use "
        "{instead}, or leave overlap off.",
        {"instead": _policies(lambda kind: kind.overlaps)},
    ),
    Rule(
        lambda policy, config: config.updates == "sparse" and not policy.sparse,
        "policy {policy.name} does not go with sparse updates. Use {instead}.",
        {"instead": _policies(lambda kind: kind.sparse)},
    ),
    Rule(
        lambda policy, config: config.schedule.lr_scale == "adascale" and not (policy.rounds or policy.gathers),
        "schedule.lr_scale: adascale needs a policy that averages several gradients, like bsp or kbuffered; {policy.name} "
        "folds each by itself. Use one, or another lr_scale.",
    ),
    Rule(
        lambda policy, config: policy.pushes == "differences" and not config.codec.push_codec.keeps_all,
        "codec.push is {codec.push.name}, which leaves values out, but workers of policy {policy.name} push differences of "
        "weights. Use {instead}, or a policy that pushes gradients, like bsp, ssp or asp.",
        {"instead": _codecs(_keeps_all)},
    ),
    Rule(
        lambda policy, config: policy.pushes == "weights" and not config.codec.push_codec.keeps_all,
        "codec.push is {codec.push.name}, which leaves values out, but workers of policy {policy.name} push their weights. "
        "Use {instead}, or a policy that pushes gradients, like bsp, ssp or asp.",
        {"instead": _codecs(_keeps_all)},
    ),
    Rule(
        lambda policy, config: policy.pushes == "weights" and config.codec.has_feedback,
        "codec.push is {codec.push.name} with error feedback, but workers of policy {policy.name} push their weights, to "
        "which what an earlier push left out must not be added. Set codec.error_feedback: false, or use {instead}.",
        {"instead": _codecs(_needs_no_feedback)},
    ),
)


def _without_servers(key: str, is_given: Callable[[Config], bool], instead: str, value: str | None = None) -> Rule:
    """A setting that means nothing, or too much, where there are no servers."""
    return Rule(
        lambda peers, config: is_given(config),
        f"{key} is {{{value or key}}}, which does not go with policy {{policy.name}}, that trains without servers. {instead}.",
    )


_PEERS = (
    Rule(
        lambda peers, config: not peers.may_send(config.codec.push_codec),
        "codec.push is {codec.push.name}, but what workers of policy {policy.name} send one another can't travel so. Use "
        "{instead}.",
        {"instead": lambda peers, config: codecs_that(peers.may_send)},
    ),
    Rule(
        lambda peers, config: peers.plain and not _steps_plainly(config),
        "optimizer is {optimizer.name} {optimizer.options}, but {policy.name} takes plain steps. Set optimizer.name=sgd, "
        "optimizer.momentum=0 and optimizer.weight_decay=0.",
    ),
    _without_servers("codec.error_feedback", lambda config: bool(config.codec.error_feedback), "Leave it out"),
    _without_servers(
        "codec.pull", lambda config: not config.codec.pull_codec.lossless, "Leave it out", "codec.pull.name"
    ),
    _without_servers("loop", lambda config: config.loop is not None, "Leave it out"),
    _without_servers("on_lost_worker", lambda config: config.on_lost_worker != "shrink", "Set on_lost_worker=shrink"),
)


def _steps_plainly(config: Config) -> bool:
    """Whether a worker without servers steps by the rate alone; with lr_scale: auto it keeps momentum and decay itself
    (core/steps/momentum.py)."""
    return config.optimizer.name == "sgd" if config.schedule.lr_scale == "auto" else _plain_options(config)


# a training loop of one's own, and what trains without a run
def _ours_alone(key: str) -> Rule:
    """What only Paceline's own training loop carries out."""
    default = Config.model_fields[key].default
    return Rule(
        lambda loop, config: loop is not None and getattr(config, key) != default,
        f"{key} is {{{key}}}, but a training loop of your own computes the gradients. Do it there, and leave {key} out.",
    )


_LOOP = tuple(_ours_alone(key) for key in ("accumulate", "precision", "compile", "overlap"))
_LOCAL = (
    Rule(
        lambda command, config: config.updates != "sparse",
        "Task {task} has updates: {updates}; `paceline local` trains linear models, which have updates: sparse, like task "
        "svm.",
    ),
    Rule(
        lambda command, config: bool(config.schedule.warmup_epochs),
        "schedule.warmup_epochs is set, but `paceline local` has no warm-up; leave it out.",
    ),
)
_SEARCH = (
    Rule(
        lambda command, config: config.updates != "sparse",
        "--engine local trains linear models, but task {task} has updates: {updates}. Leave --engine out.",
    ),
)

SETTINGS: Mapping[str, Rules] = {
    "start_when": _START_WHEN,
    "lease": _LEASE,
    "slow": _SLOW,
    "data": _DATA,
    "plan": _PLAN,
    "schedule": _SCHEDULE,
    "updates": _UPDATES,
    "svm": _SVM,
    "loop": _LOOP,
}
"""By the setting that they are told of; `own` is its value."""
CHOSEN: Mapping[str, Rules] = {
    "policy": _POLICY,
    "policy without servers": _PEERS,
    "optimizer": _OPTIMIZER,
    "codec.push": _PUSH,
    "codec.pull": _PULL,
}
"""By the extensions that settings name; `own` is the one that is chosen, built. It may have rules of its own beside."""
LOCAL, SEARCH = "paceline local", "paceline search --engine local"
COMMANDS: Mapping[str, Rules] = {LOCAL: _LOCAL, SEARCH: _SEARCH}
"""Of commands that take only some settings."""
TABLE: Mapping[str, Rules] = {**SETTINGS, **CHOSEN, **COMMANDS}


def check(config: Config, chosen: Mapping[str, Any]) -> None:
    """ConfigError tells all that does not go together in this config. `chosen`: the extensions that it names."""
    refuse(config, {**{subject: getattr(config, subject) for subject in SETTINGS}, **chosen})


def refuse(config: Config, subjects: Mapping[str, Any]) -> None:
    """ConfigError tells all that these subjects, with what each of them is, do not go with."""
    found = [rule.said(own, config) for subject, own in subjects.items() for rule in broken(subject, own, config)]
    if found:
        raise ConfigError("\n".join(found))


def broken(subject: str, own: Any, config: Config) -> Iterable[Rule]:
    """The rules of this subject that the config breaks, and those that an extension brings with it."""
    rules = (*TABLE.get(subject, ()), *own_rules(type(own)))
    return [rule for rule in rules if rule.condition(own, config)]
