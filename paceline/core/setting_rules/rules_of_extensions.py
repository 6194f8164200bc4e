"""Settings that conflict with the chosen policy, codecs or optimizer: general rules, based on what an extension declares.
A rule that concerns a single extension is in that extension's file, as `rules`."""

from collections.abc import Callable, Mapping
from typing import Any

from paceline.core import registry
from paceline.core.codecs.codec import Codec, codecs_that
from paceline.core.codecs.sparse_codec import SparseCodec
from paceline.core.extension import SettingsRule
from paceline.core.folders import PEERS
from paceline.core.optimizers.builtin.sgd import Sgd, is_sgd, steps_as_sgd
from paceline.core.policies.policy import policies_that
from paceline.core.setting_rules.rules_of_settings import Rules, goes_back, is_plain
from paceline.core.settings.codec import FIRST_SHARE, can_warm_up
from paceline.core.settings.config import Config


def _keeps_all(codec: Codec) -> bool:
    return codec.keeps_all


def _needs_no_feedback(codec: Codec) -> bool:
    return codec.keeps_all and not codec.biased


def _leaves_out(codec: Codec) -> bool:
    return isinstance(codec, SparseCodec)


def _feedback(own: Any, config: Config) -> str:
    return "on" if config.codec.has_feedback else "off"


# the optimizer
_OPTIMIZER = (
    SettingsRule(
        lambda optimizer, config: bool(config.codec.momentum) and not _steps_plainly(optimizer, config),
        "With codec.momentum ({codec.momentum:g}) the workers keep the momentum and the servers take plain steps; but "
        "optimizer.name is {optimizer.name}{momentum}. Use optimizer.name=sgd and optimizer.momentum=0.",
        {
            "momentum": lambda optimizer, config: (
                f" and optimizer.momentum {optimizer.momentum:g}" if isinstance(optimizer, Sgd) else ""
            )
        },
    ),
)


def _steps_plainly(optimizer: Any, config: Config) -> bool:
    """Whether the servers' steps are plain ones; with lr_scale: auto they leave the momentum out."""
    translated = config.schedule.lr_scale == "auto"
    return steps_as_sgd(optimizer) and (translated or not any(one.momentum for one in optimizer.members))


def _averages(config: Config) -> bool:
    """Whether pushes hold tensors that are no weights, like BatchNorm's running statistics."""
    return bool(config.optimizer.options.get("averaged"))


_OWN = "in a script pass buffers='own' to paceline.wrap, which leaves each worker its own"
"""What to do where running statistics don't go with something."""

# codecs
_PULL = (
    SettingsRule(
        lambda pull, config: not pull.keeps_all,
        "codec.pull is {codec.pull.name}, which leaves values out, but a weight can't be left out. Use {instead} there; "
        "codec.push takes any.",
        instead=lambda: codecs_that(_keeps_all),
    ),
)
_PUSH = (
    SettingsRule(
        lambda push, config: config.updates == "sparse" and (push.biased or bool(config.codec.error_feedback)),
        "codec.push is {codec.push.name}, with error feedback {feedback}, but sparse updates are small already and keep no "
        "residual. Use {instead} and leave codec.error_feedback out.",
        {"feedback": _feedback},
        instead=lambda: codecs_that(_needs_no_feedback),
    ),
    SettingsRule(
        lambda push, config: config.schedule.lr_scale == "adascale" and not push.keeps_all,
        "schedule.lr_scale: adascale measures how much gradients differ, but codec.push is {codec.push.name}, which leaves "
        "most of them out. Use {instead}, or another lr_scale.",
        instead=lambda: codecs_that(_keeps_all),
    ),
    SettingsRule(
        lambda push, config: bool(config.codec.momentum) and not (_leaves_out(push) and config.codec.has_feedback),
        "codec.momentum is {codec.momentum:g}, but codec.push is {codec.push.name}, with error feedback {feedback}. It "
        "corrects what waits in a residual until it is sent: use {instead} with error feedback, or leave codec.momentum out.",
        {"feedback": _feedback},
        instead=lambda: codecs_that(_leaves_out),
    ),
    SettingsRule(
        lambda push, config: bool(config.codec.warmup) and not can_warm_up(push),
        "codec.warmup_epochs is {codec.warmup:g}, but codec.push is {own!r}. What is sent must be a share, and one below "
        f"{FIRST_SHARE:g}, where a warm-up begins: use {{instead}} with default options, or leave codec.warmup_epochs out.",
        instead=lambda: codecs_that(can_warm_up),
    ),
    SettingsRule(
        lambda push, config: config.codec.warmup >= config.epochs,
        "codec.warmup_epochs ({codec.warmup:g}) must be below epochs ({epochs}), or the codec never comes to its own share. "
        "Set it lower; 0: no warm-up.",
    ),
)

# policies
_POLICY = (
    SettingsRule(
        lambda policy, config: policy.served and not config.servers,
        "policy {policy.name} needs servers, but servers is 0. Set servers=1 or more, or take a policy that trains without "
        "them: {instead}.",
        instead=lambda: ", ".join(registry.names(PEERS)),
    ),
    SettingsRule(
        lambda policy, config: not policy.served and bool(config.servers),
        "policy {policy.name} trains without servers, but servers is {servers}. Set servers=0.",
    ),
    SettingsRule(
        lambda policy, config: policy.served and config.topology is not None,
        "topology is for policies without servers, not for {policy.name}. Leave it out.",
    ),
    SettingsRule(
        lambda policy, config: config.overlap and not policy.overlaps,
        "overlap: true does not go with policy {policy.name}, whose workers need each reply before the next step. Use "
        "{instead}, or leave overlap off.",
        instead=lambda: policies_that(lambda kind: kind.overlaps),
    ),
    SettingsRule(
        lambda policy, config: config.updates == "sparse" and not policy.sparse,
        "policy {policy.name} does not go with sparse updates. Use {instead}.",
        instead=lambda: policies_that(lambda kind: kind.sparse),
    ),
    SettingsRule(
        lambda policy, config: (
            config.schedule.lr_scale == "adascale"
            and config.updates == "dense"  # with others it goes with no policy
            and not policy.has_sum
        ),
        "schedule.lr_scale: adascale needs a policy that averages several gradients, like bsp or kbuffered; {policy.name} "
        "folds each by itself. Use one, or another lr_scale.",
    ),
    SettingsRule(
        lambda policy, config: config.clip.of == "mean" and not policy.steps_on_mean,
        "clip.of is mean, but steps of policy {policy.name} are not on the mean of all workers. Leave clip.of out, or use "
        "{instead} or allreduce.",
        instead=lambda: policies_that(lambda kind: kind.lock_step and kind.pushes == "gradients"),
    ),
    SettingsRule(
        lambda policy, config: policy.pushes == "differences" and not config.codec.push_codec.keeps_all,
        "codec.push is {codec.push.name}, which leaves values out, but workers of policy {policy.name} push differences of "
        "weights. Use {instead}, or a policy that pushes gradients, like bsp, ssp or asp.",
        instead=lambda: codecs_that(_keeps_all),
    ),
    SettingsRule(
        lambda policy, config: policy.pushes == "weights" and not config.codec.push_codec.keeps_all,
        "codec.push is {codec.push.name}, which leaves values out, but workers of policy {policy.name} push their weights. "
        "Use {instead}, or a policy that pushes gradients, like bsp, ssp or asp.",
        instead=lambda: codecs_that(_keeps_all),
    ),
    SettingsRule(
        lambda policy, config: policy.pushes == "weights" and config.codec.has_feedback,
        "codec.push is {codec.push.name} with error feedback, but workers of policy {policy.name} push their weights, to "
        "which what an earlier push left out must not be added. Set codec.error_feedback: false, or use {instead}.",
        instead=lambda: codecs_that(_needs_no_feedback),
    ),
    SettingsRule(
        lambda policy, config: policy.pushes == "weights" and config.push_norm_cap is not None,
        "push_norm_cap is {push_norm_cap:g}, but workers of policy {policy.name} push their weights, and weights that are "
        "scaled down are another model. Use {instead}, or leave push_norm_cap out.",
        instead=lambda: policies_that(lambda kind: kind.pushes != "weights"),
    ),
)


def _without_servers(
    key: str, is_given: Callable[[Config], bool], instead: str, value: str | None = None
) -> SettingsRule:
    """A setting that has no meaning, or goes too far, without servers."""
    return SettingsRule(
        lambda peers, config: is_given(config),
        f"{key} is {{{value or key}}}, which does not go with policy {{policy.name}}, that trains without servers. {instead}.",
    )


_PEERS = (
    SettingsRule(
        lambda peers, config: not peers.may_send(config.codec.push_codec),
        "codec.push is {codec.push.name}, but what workers of policy {policy.name} send one another can't travel so. Use "
        "{instead}.",
        {"instead": lambda peers, config: codecs_that(peers.may_send)},
    ),
    SettingsRule(
        lambda peers, config: peers.plain and not _peers_step_plainly(config),
        "optimizer is {optimizer.name} {optimizer.options}, but {policy.name} takes plain steps. Set optimizer.name=sgd, "
        "optimizer.momentum=0 and optimizer.weight_decay=0.",
    ),
    SettingsRule(
        lambda peers, config: peers.plain and bool(config.optimizer.options.get("groups")),
        "optimizer.groups are set, but {policy.name} takes plain steps, all at one rate. Leave optimizer.groups out, or take "
        "another policy, like allreduce.",
    ),
    SettingsRule(
        lambda peers, config: peers.plain and _averages(config),
        "The model has running statistics (BatchNorm), and workers of {policy.name} would step them at the learning rate. Take "
        f"another policy, like allreduce, or {_OWN}.",
    ),
    _without_servers("codec.error_feedback", lambda config: bool(config.codec.error_feedback), "Leave it out"),
    _without_servers(
        "codec.pull", lambda config: not config.codec.pull_codec.lossless, "Leave it out", "codec.pull.name"
    ),
    _without_servers("push_norm_cap", lambda config: config.push_norm_cap is not None, "Leave it out"),
    SettingsRule(
        lambda peers, config: goes_back(config),
        "divergence is set, but policy {policy.name} trains without servers, and such a run never goes back. Leave it out.",
    ),
    _without_servers("checkpoint.at", lambda config: config.checkpoint.at is not None, "Leave it out"),
    _without_servers("on_lost_worker", lambda config: config.on_lost_worker != "shrink", "Set on_lost_worker=shrink"),
)


def _peers_step_plainly(config: Config) -> bool:
    """Whether a worker without servers steps by the rate alone; with lr_scale: auto it keeps momentum and decay itself
    (core/optimizers/worker_half.py)."""
    return is_sgd(config.optimizer) if config.schedule.lr_scale == "auto" else is_plain(config)


CHOSEN: Mapping[str, Rules] = {
    "policy": _POLICY,
    "policy without servers": _PEERS,
    "optimizer": _OPTIMIZER,
    "codec.push": _PUSH,
    "codec.pull": _PULL,
}
"""Rules by the setting that names the extension; `own` is the chosen one, built. It may add more rules."""
