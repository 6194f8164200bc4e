"""Which settings go together: for every rule of the table, and of every extension, settings that break it and the nearest that
do not."""

import re
import subprocess
import sys
from typing import Any, ClassVar

import pytest

from paceline.core import registry
from paceline.core.codecs.codec import PACKAGE as CODECS
from paceline.core.codecs.codec import Codec
from paceline.core.errors import ConfigError
from paceline.core.extension import SettingsRule, own_rules
from paceline.core.folders import PEERS
from paceline.core.optimizers.optimizer import PACKAGE as OPTIMIZERS
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.peers.peer_policy import PeerPolicy
from paceline.core.peers.peer_run import chosen_by
from paceline.core.peers.topology import PACKAGE as TOPOLOGIES
from paceline.core.peers.topology import Topology
from paceline.core.policies.builtin.asp import Asp
from paceline.core.policies.builtin.dana import Dana
from paceline.core.policies.builtin.ensemble import Ensemble
from paceline.core.policies.policy import PACKAGE as POLICIES
from paceline.core.policies.policy import Policy
from paceline.core.setting_rules.check_rules import TABLE, broken, refuse
from paceline.core.setting_rules.fault_in_rules import fault_in_rules
from paceline.core.setting_rules.rules_of_settings import COMMANDS, LOCAL, SEARCH, SETTINGS
from paceline.core.settings.config import Config, Options
from paceline.settings.load_settings import _on_top, load, parse_sets
from tools.settings_page import page

KINDS: tuple[tuple[str, str, type], ...] = (
    ("policy", POLICIES, Policy),
    ("policy without servers", PEERS, PeerPolicy),
    ("topology", TOPOLOGIES, Topology),
    ("optimizer", OPTIMIZERS, Optimizer),
    ("codec", CODECS, Codec),
)
PLAIN = "optimizer={name: sgd, lr: 0.1, momentum: 0, weight_decay: 0}"
AVERAGED = "optimizer={name: sgd, lr: 0.1, momentum: 0, weight_decay: 0, averaged: [running_mean]}"
SPARSE = ("policy=asp", "updates=sparse", PLAIN)
GRADIENTS = ("policy=asp", "updates=sparse", "optimizer=ftrl")
ALONE = ("servers=0", "policy=dpsgd")
TOPK = "codec.push={name: topk, share: 0.01}"
MEAN = ("clip={of: mean, norm: 1}", "policy=bsp")
RATED = "schedule.lr_scale=none"
PAIRS: tuple[tuple[str, tuple[str, ...], str | None, str], ...] = (
    # what both have, what breaks the rule (None: what is not said breaks it), what is said instead and keeps it
    ("start_when", ("workers=4",), "start_when=5", "start_when=4"),
    ("lease", ("heartbeat=2",), "lease=3.9", "lease=4"),
    ("slow", ("workers=4",), "slow={'4': 10x}", "slow={'3': 10x}"),
    ("faults", ("workers=4",), "faults=[kill worker-4@3s]", "faults=[kill worker-3@3s]"),
    ("faults", ALONE, "faults=[link worker-1=10Mbit]", "faults=[freeze worker-1@1s:2s]"),
    ("data", ("data.test=0.5",), "data.validation=0.5", "data.validation=0.4"),
    ("data", ("workers=4",), "data.shards=3", "data.shards=4"),
    ("data", ("workers=2", "data.shards=3"), "data.weights=[1, 2]", "data.weights=[1, 1, 2]"),
    ("data", ("data.source=server",), "data.shards_at=s3://mine/shards", "data.shards_at=null"),
    *(
        ("data", ("policy=asp", setting), "data.source=script", "data.source=files")
        for setting in ("accumulate=2", "precision=bf16", "compile=true", "overlap=true", "model=small")
    ),
    ("data", SPARSE, "data.source=script", "data.source=files"),
    ("data", ("batch=speed",), "data.source=script", "data.source=files"),
    ("data", ("scored_by=worker",), "data.source=files", "data.source=script"),
    ("data", ("data.source=files",), "evaluate_every=0", "evaluate_every=1"),
    ("data", ("data.source=files",), "arguments=[--fast]", "arguments=[]"),
    ("plan", ("plan.max_slice_bytes=4096",), "plan.slices=whole", "plan.slices=memorywise"),
    ("schedule", (), "schedule={every: 3}", "schedule={every: 3, name: step}"),
    ("schedule", (), "schedule={milestones: [3]}", "schedule={milestones: [3], name: multistep}"),
    ("schedule", (), "schedule={gamma: 0.5}", "schedule={gamma: 0.5, name: step, every: 3}"),
    ("schedule", ("schedule.power=2",), "schedule.name=cosine", "schedule.name=polynomial"),
    ("schedule", ("schedule.end=0.1",), "schedule.name=constant", "schedule.name=cosine"),
    ("schedule", ("schedule.epochs=10",), "schedule.name=constant", "schedule.name=cosine"),
    ("schedule", ("schedule.name=step",), None, "schedule.every=3"),
    ("schedule", ("schedule.name=multistep",), None, "schedule.milestones=[3]"),
    ("schedule", ("schedule.name=multistep",), "schedule.milestones=[5, 3]", "schedule.milestones=[3, 5]"),
    ("schedule", ("schedule.warmup_start=0.1",), None, "schedule.warmup_epochs=1"),
    ("schedule", (RATED, "schedule.warmup_epochs=2"), None, "schedule.warmup_start=0.5"),
    ("schedule", ("schedule.name=step",), "schedule.every=10", "schedule.every=9"),
    ("schedule", ("schedule.name=multistep",), "schedule.milestones=[3, 10]", "schedule.milestones=[3, 9]"),
    ("schedule", ("schedule.lr_scale=linear",), "schedule.warmup_epochs=10", "schedule.warmup_epochs=9"),
    ("schedule", ("schedule.name=cosine",), "schedule.epochs=11", "schedule.epochs=10"),
    ("schedule", ("schedule.name=cosine", "schedule.epochs=5"), "schedule.end=0", "schedule.end=0.1"),
    ("schedule", SPARSE, "schedule.lr_scale=adascale", "schedule.lr_scale=linear"),
    ("clip", ("clip.of=mean", "policy=bsp", "servers=1"), None, "clip.norm=1"),
    ("clip", (*MEAN, "servers=1"), "clip.quantile=0.5", "clip.quantile=null"),
    ("clip", (*MEAN, "servers=2"), "plan.slices=layerwise", "plan.slices=whole"),
    ("updates", SPARSE, "optimizer.groups=[{parameters: weights, lr: 0.1}]", "optimizer.groups=[]"),
    ("updates", SPARSE, "optimizer.momentum=0.9", "optimizer.momentum=0"),
    ("updates", SPARSE, "optimizer=adam", PLAIN),
    ("updates", SPARSE, "plan.slices=layerwise", "plan.slices=whole"),
    ("updates", ("policy=asp", PLAIN, "clip.norm=1"), "updates=sparse", "updates=dense"),
    ("updates", ("policy=asp", PLAIN, "divergence.factor=0.1"), "updates=sparse", "updates=dense"),
    ("svm", (*SPARSE, "svm.stopping={rule: delta}"), "svm.validation=0", "svm.validation=0.1"),
    ("svm", ("policy=asp", PLAIN, "svm.stopping={rule: delta}"), "updates=dense", "updates=sparse"),
    ("stopping", ("stopping={target: 0.9}",), "stopping.rule=window", "stopping.rule=target"),
    ("stopping", ("stopping={delta: 0.01}",), "stopping.rule=window", "stopping.rule=delta"),
    ("stopping", ("stopping={patience: 3}",), "stopping.rule=delta", "stopping.rule=window"),
    ("stopping", ("stopping={min_delta: 0.1}",), "stopping.rule=delta", "stopping.rule=window"),
    ("svm", ("policy=asp", PLAIN, "svm.average_last=0.5"), "updates=dense", "updates=sparse"),
    ("svm", (*SPARSE, "epochs=3"), "svm.average_from=3", "svm.average_from=2"),
    ("svm", ("policy=asp", PLAIN, "svm.average_from=2"), "updates=dense", "updates=sparse"),
    ("policy", ("servers=0",), "policy=ssp", "policy=dpsgd"),
    ("policy", ("policy=dpsgd",), "servers=2", "servers=0"),
    ("policy", ("policy=bsp",), "topology=ring", "topology=null"),
    ("policy", ("overlap=true",), "policy=bsp", "policy=asp"),
    ("policy", ("updates=sparse", PLAIN), "policy=shat", "policy=asp"),
    ("policy", ("updates=sparse", PLAIN), "policy=local_sgd", "policy=bsp"),
    ("policy", ("updates=sparse", PLAIN), "policy=diloco", "policy=bsp"),
    ("policy", ("schedule.lr_scale=adascale",), "policy=asp", "policy=bsp"),
    ("policy", ("codec.push=topk",), "policy=diloco", "policy=ssp"),
    ("policy", ("codec.push=topk", "codec.error_feedback=false"), "policy=easgd", "policy=ssp"),
    ("policy", ("policy=easgd", "codec.push=int8"), "codec.error_feedback=true", "codec.error_feedback=false"),
    ("policy", ("push_norm_cap=1",), "policy=easgd", "policy=diloco"),
    ("policy", (*MEAN, "servers=1"), "policy=ssp", "policy=backup"),
    ("policy", (*MEAN, "servers=0"), "policy=dpsgd", "policy=allreduce"),
    ("policy without servers", ALONE, "push_norm_cap=1", "push_norm_cap=null"),
    ("policy without servers", ALONE, "codec.push=topk", "codec.push=int8"),
    ("policy without servers", ("servers=0", "optimizer=adam"), "policy=broadcast", "policy=dpsgd"),
    (
        "policy without servers",
        ("servers=0", "policy=broadcast", PLAIN),
        "optimizer.groups=[{parameters: w, lr: 0.1}]",
        "optimizer.groups=[]",
    ),
    ("policy without servers", (*ALONE, "codec.push=int8"), "codec.error_feedback=true", "codec.error_feedback=null"),
    ("policy without servers", ALONE, "codec.pull=bf16", "codec.pull=none"),
    ("policy without servers", ALONE, "on_lost_worker=wait", "on_lost_worker=shrink"),
    ("policy without servers", ALONE, "checkpoint.at=s3://a/b", "checkpoint.at=null"),
    ("policy without servers", ALONE, "divergence.rollbacks=5", "divergence.rollbacks=0"),
    ("optimizer", (TOPK, "codec.momentum=0.9"), "optimizer=adam", "optimizer=sgd"),
    ("codec.push", SPARSE, "codec.push=int8", "codec.push=bf16"),
    ("codec.push", ("policy=bsp", "codec.push=topk"), "schedule.lr_scale=adascale", "schedule.lr_scale=linear"),
    ("codec.push", (TOPK, "codec.momentum=0.9"), "codec.error_feedback=false", "codec.error_feedback=true"),
    ("codec.push", ("codec.warmup_epochs=2",), "codec.push=int8", "codec.push=topk"),
    ("codec.push", ("codec.push=topk", "epochs=4"), "codec.warmup_epochs=4", "codec.warmup_epochs=3"),
    ("policy without servers", ("servers=0", AVERAGED), "policy=broadcast", "policy=dpsgd"),
    ("codec.pull", (), "codec.pull=topk", "codec.pull=int8"),
    (LOCAL, ("policy=asp", PLAIN), "updates=dense", "updates=sparse"),
    (LOCAL, SPARSE, "stopping={rule: window}", "stopping=null"),
    (LOCAL, SPARSE, "push_norm_cap=1", "push_norm_cap=null"),
    (LOCAL, SPARSE, "loggers=tensorboard", "loggers=[]"),
    (LOCAL, SPARSE, "models_at=s3://a/b", "models_at=null"),
    (LOCAL, SPARSE, "checkpoint.at=s3://a/b", "checkpoint.at=null"),
    (LOCAL, SPARSE, "schedule={warmup_epochs: 1, warmup_start: 0.5}", "schedule.warmup_epochs=0"),
    (LOCAL, ("policy=asp", "updates=sparse"), "optimizer=ftrl", PLAIN),
    (SEARCH, ("policy=asp", PLAIN), "updates=dense", "updates=sparse"),
    # extensions' own
    ("policy backup", ("policy=backup", "workers=4"), "policy.backups=4", "policy.backups=3"),
    ("policy dana", ("policy=dana:0.9",), "optimizer=adam", "optimizer=sgd"),
    ("policy dana", (TOPK, "codec.momentum=0.9"), "policy=dana", "policy=bsp"),
    ("policy dssp", ("policy=dssp", "policy.upper=3"), "policy.lower=4", "policy.lower=3"),
    ("policy ensemble", ("policy=ensemble",), "optimizer=adam", "optimizer=sgd"),
    ("policy everyone", (PLAIN, "policy=everyone", "policy.merge=overwrite"), "updates=dense", "updates=sparse"),
    ("policy local_sgd", ("schedule.lr_scale=adascale",), "policy=local_sgd", "policy=bsp"),
    ("policy local_sgd", ("schedule.lr_scale=adascale",), "policy=diloco", "policy=bsp"),
    ("optimizer ftrl", ("policy=asp",), "optimizer=ftrl", "optimizer=adagrad"),
    ("optimizer ftrl", GRADIENTS, "svm.steps=fitted", "svm.steps=plain"),
    ("optimizer ftrl", GRADIENTS, "schedule.name=cosine", "schedule.name=constant"),
    ("optimizer sgd", ("optimizer={name: sgd, nesterov: true}",), "optimizer.momentum=0", "optimizer.momentum=0.5"),
    ("codec threshold", ("codec.push={name: threshold, tau: 1}",), "codec.push.share=0.1", "codec.push.tau=2"),
)


def own() -> dict[str, list[SettingsRule]]:
    """The rules of all extensions, by whose they are."""
    found = {
        f"{kind} {name}": list(vars(registry.find(package, base, name)).get("rules", ()))
        for kind, package, base in KINDS
        for name in registry.names(package)
    }
    return {whose: rules for whose, rules in found.items() if rules}


RULES = [(subject, rule) for subject, rules in {**TABLE, **own()}.items() for rule in rules]


def config_of(*settings: str) -> Config:
    """The config before anything is asked whether it goes together."""
    return Config.model_validate(_on_top(None, parse_sets(list(settings)), None, None))


def every_subject(config: Config) -> dict[str, Any]:
    """What `load` asks for."""
    return {subject: getattr(config, subject) for subject in SETTINGS} | chosen_by(config)


def broken_by(*settings: str, command: str | None = None) -> list[SettingsRule]:
    """All rules that these settings break."""
    config = config_of(*settings)
    subjects = every_subject(config) | ({} if command is None else {command: command})
    return [rule for subject, own in subjects.items() for rule in broken(subject, own, config)]


def breaking(pair: tuple[str, tuple[str, ...], str | None, str]) -> list[SettingsRule]:
    subject, both, wrong, _ = pair
    return broken_by(*both, *([] if wrong is None else [wrong]), command=subject if subject in COMMANDS else None)


@pytest.mark.parametrize(("subject", "rule"), RULES, ids=[f"{subject}-{rule.outline[:40]}" for subject, rule in RULES])
def test_every_rule_has_settings_that_break_it_and_nothing_else(subject: str, rule: SettingsRule) -> None:
    found = [pair for pair in PAIRS if pair[0] == subject and breaking(pair) == [rule]]

    assert found, f"no pair of {subject} breaks this rule alone: {rule.sentence}"


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0]}-{pair[2]}-{pair[3]}")
def test_the_nearest_settings_break_no_rule_at_all(pair: tuple[str, tuple[str, ...], str | None, str]) -> None:
    subject, both, _, right = pair

    assert broken_by(*both, right, command=subject if subject in COMMANDS else None) == []
    load(None, parse_sets([*both, right]))


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0]}-{pair[2]}-{pair[3]}")
def test_what_is_broken_is_told_in_a_sentence_that_names_it(
    pair: tuple[str, tuple[str, ...], str | None, str],
) -> None:
    subject, both, wrong, right = pair
    config = config_of(*both, *([] if wrong is None else [wrong]))
    subjects = {subject: subject} if subject in COMMANDS else {}

    with pytest.raises(ConfigError, match=r"^(?!.*\{[a-z])[^…]+\.$") as raised:
        refuse(config, every_subject(config) | subjects)

    keys = [setting.partition("=")[0].rpartition(".")[2] for setting in (*both, wrong or right)]
    assert any(key in str(raised.value) for key in keys)


def test_an_optimizers_rule_holds_for_each_of_its_groups() -> None:
    with pytest.raises(ConfigError, match="Nesterov's step needs momentum"):
        load(None, parse_sets(["optimizer.nesterov=true", "optimizer.groups=[{parameters: '*.bias', momentum: 0}]"]))


def test_all_that_does_not_go_together_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        load(None, {"start_when": 9, "overlap": True, "policy": "bsp", "codec": {"pull": "topk"}})

    assert [line.split(" ")[0] for line in str(raised.value).splitlines()] == ["start_when", "overlap:", "codec.pull"]


class Strict(Asp):
    """A policy of a user's own, with a rule."""

    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(
            lambda policy, config: config.workers > 2,
            "policy strict is for 2 workers, but there are {workers}. Set workers=2.",
        ),
    )


class Stricter(Strict):
    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(lambda policy, config: config.epochs > 1, "epochs is {epochs}."),
    )


def test_a_policy_brings_its_own_rules_beside_those_of_all_and_of_the_one_that_it_is_made_from() -> None:
    config = Config(workers=4, codec={"pull": "none"}, topology="ring")

    with pytest.raises(ConfigError) as raised:
        refuse(config, {"policy": Stricter()})

    assert str(raised.value).splitlines()[1:] == [
        "policy strict is for 2 workers, but there are 4. Set workers=2.",
        "epochs is 10.",
    ]
    assert len(list(own_rules(Stricter))) == 2


def test_a_policy_that_is_made_from_one_with_rules_is_told_of_by_its_own_name() -> None:
    config = Config(policy=Options(name="mine.py"), optimizer=Options(name="adam"))

    for kind in (Dana(momentum=0.9), Ensemble()):
        with pytest.raises(ConfigError, match=r"^Policy mine\.py .*optimizer\.name (is )?adam"):
            refuse(config, {"policy": kind})


@pytest.mark.parametrize("key", ["push", "pull"])
def test_a_codecs_rule_says_which_setting_names_it(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"codec\.{key}: tau is 1 and share is 0\.1"):
        load(None, {"codec": {key: {"name": "threshold", "tau": 1, "share": 0.1}}})


def always(*words: Any, **more: Any) -> tuple[SettingsRule]:
    """Returns a rule that everything breaks."""
    return (SettingsRule(lambda own, config: True, *words, **more),)


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ((), None),
        (always("{workers} and {own.served} of {own.pushes}."), None),
        (always("{codec.push.tau} {codec.push_codec.name} {topology.x} {data.weights[0]}."), None),
        (SettingsRule(lambda own, config: True, "Never."), "must be a tuple of SettingsRule, like"),
        (("Never.",), "must be a tuple of SettingsRule, like"),
        ((SettingsRule("always", "Never."),), "condition is 'always'; it must be a function"),
        (always(None), "sentence is None; it must be a text"),
        (always("Never: {}."), r"says {}; expected a setting"),
        (always("Never: {workers."), "written twice, like {{$"),
        (always("Never: }."), r"sentence can't be read: "),
        (always("{codec.nope}."), r"says {codec\.nope}; expected a setting"),
        (always("{workers.nope}."), r"says {workers\.nope}; expected a setting"),
        (always("{x}.", {"x": lambda own: 1}), r"'x' takes \(own\); it gets what"),
        (always("{x}.", {"x": 1}), "word 'x' is 1; it must be a function"),
        (always("{x}.", ["x"]), r"`words` are \['x'\]; they must be a dict"),
        (always("{instead}.", instead=lambda own: "x"), r"`instead` takes \(own\); it gets nothing"),
        ((SettingsRule(lambda own: True, "Never."),), "condition takes .* it gets what has the rule, and the config"),
        (always("{worker}."), r"says {worker}; expected a setting"),
        (always("{own.pears}."), r"says {own\.pears}"),
        (always("{instead}."), r"says {instead}"),
    ],
)
def test_a_rule_of_a_users_extension_that_could_not_be_told_is_a_fault(rules: Any, told: str | None) -> None:
    found = fault_in_rules(type("Mine", (Asp,), {"rules": rules, "__module__": __name__}))

    assert (told is None and found is None) or (told is not None and re.search(told, found or ""))


@pytest.mark.parametrize(
    ("sentence", "why"),
    [
        ("data.max is {start_when:g}.", "unsupported format string passed to NoneType.__format__"),
        ("{workers:{nope}}.", "'nope'"),
        ("{data.weights[7]}.", ""),
        ("{policy.nope}.", "nope"),
    ],
)
def test_a_sentence_that_does_not_fit_the_settings_is_told_with_the_rules_place(sentence: str, why: str) -> None:
    rule = SettingsRule(lambda own, config: True, sentence)
    line = rule.condition.__code__.co_firstlineno
    kind = type("Mine", (Asp,), {"rules": (rule,), "__module__": __name__})
    assert fault_in_rules(kind) is None

    told = rf"test_rules\.py, line {line}: settings break the rule '{re.escape(sentence)}', but .*{re.escape(why)}.* Correct"
    with pytest.raises(ConfigError, match=told):
        refuse(Config(), {"policy": kind()})


def test_no_built_in_rule_could_not_be_told() -> None:
    kinds = [registry.find(package, base, name) for _, package, base in KINDS for name in registry.names(package)]

    assert [fault_in_rules(kind) for kind in kinds] == [None] * len(kinds)


def test_a_config_is_checked_without_torch_numba_or_grpc() -> None:
    program = (
        "import sys; from paceline.settings.load_settings import load; "
        "from paceline.core.extension import Options; from paceline.core.optimizers.optimizer import build_optimizer; "
        "load(None, {'policy': 'dana', 'codec': {'push': 'topk'}}); "
        f"[build_optimizer(Options(name=name)) for name in {registry.names(OPTIMIZERS)}]; "
        "[load(None, {'codec': {'push': name}}) for name in ('none', 'fp16', 'bf16')]; "
        "print([name for name in ('torch', 'numba', 'scipy', 'grpc') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_the_page_of_the_settings_prints_every_rule() -> None:
    printed = " ".join(page().split())  # the page wraps its lines

    assert [rule.sentence for _, rule in RULES if rule.outline not in printed] == []
