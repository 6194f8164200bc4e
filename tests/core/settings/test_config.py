"""Settings: precedence of their sources, and one readable sentence for every mistake."""

import pytest

from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config, Options
from paceline.core.settings.slow import slowness
from paceline.settings.load_settings import load, parse_sets, read_yaml, write_yaml


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    import os

    for name in [name for name in os.environ if name.startswith("PACELINE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def yaml(tmp_path):
    def write(text):
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return path

    return write


# precedence
def test_defaults_stand_where_nothing_is_said():
    assert load() == Config()


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        ({}, "auto"),
        ({"servers": 0}, "allreduce"),
        ({"overlap": True}, "ssp"),
        ({"updates": "sparse", "optimizer": {"name": "ftrl"}}, "ssp"),
        ({"policy": {"bound": 5}}, "ssp"),
        ({"policy": "asp", "servers": 1}, "asp"),
    ],
)
def test_a_run_that_names_no_policy_has_the_nearest_to_auto_that_its_settings_allow(settings, policy):
    assert load(None, settings).policy.name == policy


def test_a_mistake_in_what_the_policy_depends_on_is_one_mistake():
    with pytest.raises(ConfigError) as refused:
        load(None, {"servers": -1})

    assert str(refused.value).count("\n") == 0


def test_each_source_wins_over_those_before_it(yaml, monkeypatch):
    task = {"epochs": 2, "batch_size": 2, "workers": 2, "seed": 2}
    path = yaml("batch_size: 3\nworkers: 3\nseed: 3")
    monkeypatch.setenv("PACELINE_WORKERS", "4")
    monkeypatch.setenv("PACELINE_SEED", "4")

    config = load(path, {"seed": 5}, task)

    assert (config.servers, config.epochs, config.batch_size, config.workers, config.seed) == (2, 2, 3, 4, 5)


def test_sections_of_several_sources_are_joined(yaml, monkeypatch):
    monkeypatch.setenv("PACELINE_CHECKPOINT__KEEP", "7")

    config = load(yaml("checkpoint: {every: 9s}\noptimizer: {lr: 0.5}"))

    assert (config.checkpoint.every, config.checkpoint.keep) == (9.0, 7)
    assert config.optimizer.options == {"lr": 0.5, "momentum": 0.9, "weight_decay": 1e-4}


def test_options_of_an_extension_can_stand_in_the_environment(monkeypatch):
    monkeypatch.setenv("PACELINE_POLICY__BOUND", "7")

    assert load().policy.options == {"bound": "7"}


@pytest.mark.parametrize(
    ("flag", "name", "options"), [({"name": "bsp"}, "bsp", {}), ({"bound": 1}, "ssp", {"bound": 1})]
)
def test_another_policy_starts_without_the_options_of_the_first_and_an_option_alone_keeps_it(yaml, flag, name, options):
    config = load(yaml("policy: {name: ssp, bound: 9}"), {"policy": flag})

    assert (config.policy.name, config.policy.options) == (name, options)


@pytest.mark.parametrize("text", ["policy: ssp:3", "policy: 'ssp:3'", "policy: {name: ssp, bound: 3}"])
def test_a_policy_in_yaml_is_written_as_on_the_command_line(yaml, text):
    assert load(yaml(text)).policy == Options(name="ssp", bound=3)


def test_sections_with_a_name_are_written_as_the_name_alone(yaml, monkeypatch):
    config = load(yaml("policy: bsp\noptimizer: adam\nschedule: cosine"))

    assert (config.policy.name, config.policy.options) == ("bsp", {})
    assert (config.optimizer.name, config.optimizer.options) == ("adam", {})
    assert config.schedule.name == "cosine"
    for name, value in (
        ("POLICY", "asp"),
        ("OPTIMIZER", "adagrad"),
        ("SCHEDULE", "polynomial"),
        ("CODEC__PUSH", "fp16"),
    ):
        monkeypatch.setenv(f"PACELINE_{name}", value)
    config = load(yaml("policy: ssp:3"))
    assert [config.policy, config.optimizer] == [Options(name="asp"), Options(name="adagrad")]
    assert (config.schedule.name, config.codec.push.name) == ("polynomial", "fp16")
    assert load(None, parse_sets(["policy=ssp:3", "policy.bound=5"])).policy == Options(name="ssp", bound=5)


def test_a_name_alone_keeps_the_options_that_belong_to_it(yaml, monkeypatch):
    assert load(yaml("policy: {name: ssp, bound: 9}"), {"policy": "ssp"}).policy.options == {"bound": 9}
    assert load(None, {"optimizer": "sgd"}, {"optimizer": {"lr": 0.5, "momentum": 0.0}}).optimizer.options["lr"] == 0.5
    monkeypatch.setenv("PACELINE_POLICY", "ssp")
    monkeypatch.setenv("PACELINE_POLICY__BOUND", "7")
    assert load().policy.options == {"bound": "7"}


@pytest.mark.parametrize("name", ["reu-ACQ", "digits_bsp", "v1.2", "A", "a" * 63])
def test_a_run_has_a_name_that_kubernetes_takes_as_a_label(name):
    assert load(None, {"run": name}).run == name


def test_what_is_written_is_read_again(tmp_path):
    config = load(
        None, {"run": "digits-1", "slow": {"2": "10x"}, "plan": {"max_slice_bytes": "1MiB"}, "policy": {"bound": 2}}
    )

    write_yaml(config, tmp_path / "config.yaml")

    assert load(tmp_path / "config.yaml") == config


def test_settings_on_the_command_line_are_read_as_yaml():
    assert parse_sets(["policy.bound=3", "policy.name=ssp", "run=a", "start_when=null"]) == {
        "policy": {"bound": 3, "name": "ssp"},
        "run": "a",
        "start_when": None,
    }


@pytest.mark.parametrize(
    ("text", "value"), [("500ms", 0.5), ("5s", 5), ("10m", 600), ("1h", 3600), ("2.5", 2.5), (7, 7)]
)
def test_durations_have_units(text, value):
    assert load(None, {"start_timeout": text}).start_timeout == value


# mistakes
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"worker": 3}, r"^worker: there is no such setting\. Did you mean 'workers'\?"),
        ({"checkpoint": {"everyy": 3}}, r"^checkpoint\.everyy: there is no such setting\. Did you mean 'every'\?"),
        ({"policy": {"boud": 3}}, r"^policy\.boud: there is no such setting\. Did you mean 'bound'\?"),
        ({"policy": {"name": "bps"}}, r"^There is no 'bps' among the policies: .*Did you mean 'bsp'\?"),
        ({"policy": {"name": "shat", "alpa": 1}}, r"^policy\.alpa: there is no such setting\. Did you mean 'alpha"),
        ({"optimizer": {"lr": -1}}, r"^optimizer\.lr: got -1; "),
        ({"optimizer": {"name": "sdg"}}, r"^There is no 'sdg' among the optimizers: .*Did you mean 'sgd'\?"),
        ({"codec": {"push": "pf16"}}, r"^There is no 'pf16' among the codecs: .*Did you mean 'fp16'\?"),
        ({"workers": "many"}, r"^workers: got 'many'; input should be a valid integer"),
        ({"workers": 0}, r"^workers: got 0; input should be greater than or equal to 1"),
        ({"policy": 3}, r"^policy: got 3; "),
        ({"policy": "bps"}, r"^There is no 'bps' among the policies: .*Did you mean 'bsp'\?"),
        ({"policy": "dc_asgd"}, r"^There is no 'dc_asgd' among the policies: .* take staleness_aware or dana\.$"),
        ({"policy": "bsp:3"}, r"^policy bsp:3: bsp takes no value after ':'"),
        ({"optimizer": "adm"}, r"^There is no 'adm' among the optimizers: .*Did you mean 'adam'\?"),
        ({"schedule": "cosin"}, r"^schedule\.name: got 'cosin'; input should be 'constant'"),
        ({"run": "../etc"}, r"^run: got '\.\./etc'; a name has 1 to 63 letters, digits and inner '-', '_' and '\.'"),
        ({"run": "reu-ACQ."}, r"^run: got 'reu-ACQ\.'; a name has 1 to 63 letters"),
        ({"lease": "5 days"}, r"^lease: got '5 days'; a duration looks like 500ms"),
        ({"budget": "none"}, r"^budget: got 'none'; input should be 'total' or 'per_worker'"),
        ({"slow": {"two": "10x"}}, r"can't read 'two': '10x'; write a worker's number or 'all'"),
        ({"slow": {"²": "10x"}}, r"can't read '²': '10x'; write a worker's number or 'all'"),
        ({"slow": {"2": "fast"}}, r"can't read '2': 'fast'"),
        ({"slow": {"2": "1.2.3x"}}, r"can't read '2': '1\.2\.3x'"),
        ({"lease": "1.2.3s"}, r"^lease: got '1\.2\.3s'; a duration looks like"),
        ({"slow": {"2": "10x@200%"}}, r"can't read '2': '10x@200%'"),
        ({"slow": "he3"}, r"^slow: got 'he3'; expected one of ho, he0, he1, he2, random, or who is how slow, like"),
        ({"slow": ["he1"]}, r"^slow: got \['he1'\]; input should be a valid dictionary"),
        ({"plan": "whole"}, r"^plan: got 'whole'; it is a section: set its keys, like plan\.slices"),
        ({"svm": {"stopping": "delta"}}, r"^svm\.stopping: got 'delta'; .* like svm\.stopping\.rule"),
        ({"svm": {"stopping": {"rul": "delta"}}}, r"^svm\.stopping\.rul: .* Did you mean 'rule'"),
        ({"stopping": {"rule": "loss"}}, r"^stopping\.rule: got 'loss'; .*'window', 'delta' or 'target'"),
        ({"schedule": {"name": "cosin"}}, r"^schedule\.name: got 'cosin'; input should be 'constant'"),
        ({"schedule": {"name": "multistep", "milestones": [3, 3]}}, r"epochs above 0 in ascending order"),
        ({"schedule": {"name": "multistep", "milestones": [0, 3]}}, r"epochs above 0 in ascending order"),
        ({"schedule": {"name": "multistep", "milestones": [float("nan")]}}, r"epochs above 0 in ascending order"),
        ({"clip": {"norm": 0}}, r"^clip\.norm: got 0; input should be greater than 0"),
        ({"clip": {"quantile": 1}}, r"^clip\.quantile: got 1; input should be less than 1"),
        ({"push_norm_cap": 0}, r"^push_norm_cap: got 0; input should be greater than 0"),
        ({"push_norm_cap": -1.5}, r"^push_norm_cap: got -1\.5; input should be greater than 0"),
        ({"push_norm_cap": "nan"}, r"^push_norm_cap: got 'nan'; input should be "),
        ({"push_norm_cap": float("inf")}, r"^push_norm_cap: got inf; input should be a finite number"),
        ({"push_norm_cap": "high"}, r"^push_norm_cap: got 'high'; input should be a valid number"),
        ({"push_norm_cap": [1, 2]}, r"^push_norm_cap: got \[1, 2\]; input should be a valid number"),
        ({"batch": "each"}, r"^batch: got 'each'; input should be 'worker', 'global' or 'speed'"),
    ],
)
def test_a_mistake_is_a_sentence_with_its_key(settings, said):
    with pytest.raises(ConfigError, match=said) as raised:
        load(None, settings)

    assert raised.value.exit_code == 78


def test_all_mistakes_are_said_at_once():
    with pytest.raises(ConfigError) as raised:
        load(None, {"worker": 3, "server": 2, "epochs": 0})

    assert len(str(raised.value).splitlines()) == 3


def test_a_mistake_in_a_file_names_the_file(yaml):
    with pytest.raises(ConfigError, match=r"run\.yaml"):
        load(yaml("worker: 3"))


def test_a_file_that_is_missing_or_no_mapping_is_refused(tmp_path, yaml):
    with pytest.raises(ConfigError, match=r"Can't read the config .*No such file.* Give the path of a YAML file"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match=r"is not YAML"):
        read_yaml(yaml("a: [1"))
    with pytest.raises(ConfigError, match=r"holds list; expected keys like 'task: digits'"):
        read_yaml(yaml("- a"))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("PACELINE_WORKRS", "3", "PACELINE_WORKRS is not a setting"),
        ("PACELINE_DATA", "ssp", "PACELINE_DATA can't be read"),
        ("PACELINE_POLICY", "{name: ssp", "PACELINE_POLICY can't be read"),
    ],
)
def test_a_variable_that_is_unknown_or_can_not_be_read_is_a_sentence(name, value, told, monkeypatch):
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigError, match=told):
        load()


@pytest.mark.parametrize("pair", ["policy.bound", "=3", "policy..bound=3", "a=[1"])
def test_a_set_without_key_or_value_is_refused(pair):
    with pytest.raises(UsageError, match=r"--set"):
        parse_sets([pair])


def test_slowness_is_a_factor_and_a_share():
    assert slowness("2", "10x") == (10.0, 1.0)
    assert slowness("all", "1.5x@5%") == (1.5, 0.05)


@pytest.mark.parametrize(
    ("name", "slow"),
    [
        ("ho", {}),
        ("he0", {"5": "2x"}),
        ("HE1", {"5": "10x"}),
        ("he2", {"5": "100x"}),
        ("Random", {"all": "10x@5%"}),
        ({2: "10x"}, {"2": "10x"}),
    ],
)
def test_slow_workers_can_be_a_clusters_name(name, slow):
    config = load(None, {"workers": 6, "slow": name})

    assert config.slow == slow


@pytest.mark.parametrize(("task", "flag"), [({"slow": {"0": "3x"}}, "he1"), ({"slow": "he0"}, {"3": "10x"})])
def test_a_cluster_by_name_and_one_in_entries_replace_each_other(task, flag):
    assert load(None, {"slow": flag}, task).slow == {"3": "10x"}


@pytest.mark.parametrize(
    ("batch", "batch_size", "workers", "each"),
    [("worker", 128, 12, 128), ("global", 128, 12, 10), ("global", 128, 4, 32), ("global", 3, 4, 1)],
)
def test_a_global_batch_is_shared_by_the_workers(batch, batch_size, workers, each):
    """[Sharding]: B = 128, n = 12 -> 10; at least 1."""
    assert load(None, {"batch": batch, "batch_size": batch_size, "workers": workers}).worker_batch == each


@pytest.mark.parametrize(
    "schedule",
    [
        {"name": "multistep", "milestones": [3, 6], "gamma": 0.5, "warmup_epochs": 2, "lr_scale": "linear"},
        {"name": "cosine", "epochs": 5, "end": 0.1},
        {"name": "polynomial", "epochs": 10, "power": 2},
        {"name": "step", "every": 2.5, "warmup_epochs": 1, "warmup_start": 0, "lr_scale": "none"},
    ],
)
def test_a_schedule_that_fits_its_run_is_read_and_written(schedule, tmp_path):
    config = load(None, {"schedule": schedule})

    write_yaml(config, tmp_path / "config.yaml")

    assert load(tmp_path / "config.yaml") == config
    assert config.schedule.model_dump(include=set(schedule), mode="json") == schedule


def test_a_run_of_before_with_the_former_default_of_a_warm_up_is_still_read():
    assert load(None, {"schedule": {"warmup_start": 1.0}}).schedule.warmup_epochs == 0


def test_every_setting_says_what_it_is():
    def undocumented(section, prefix=""):
        for name, field in section.model_fields.items():
            inner = field.annotation
            if isinstance(inner, type) and hasattr(inner, "model_fields") and inner.__name__ != "Options":
                yield from undocumented(inner, f"{prefix}{name}.")
            elif not field.description and name not in ("policy", "optimizer"):
                yield prefix + name

    assert list(undocumented(Config)) == []
