"""Presets: the papers' settings as they are written, and the learning rates that follow from them."""

import tomllib

import pytest

from paceline.core import registry
from paceline.core.errors import ConfigError
from paceline.core.optimizers.schedule import Schedule
from paceline.settings.load_settings import load, read_preset
from paceline.settings.presets import PRESETS, presets
from tests.support.tree import ROOT


def rates(config, members, epochs):
    schedule = Schedule(config.schedule, config.epochs)
    return [config.optimizer.options["lr"] * schedule.factor(epoch, members) for epoch in epochs]


def test_there_are_four():
    assert presets() == ["hogwild", "sharding", "shat", "shat-vgg16"]


@pytest.mark.parametrize(("name", "model", "batch"), [("shat", "resnet50", 128), ("shat-vgg16", "vgg16", 96)])
def test_shat_is_as_its_paper_trains(name, model, batch):
    config = load(preset=name)

    assert (config.task, config.model, config.epochs) == ("cifar10", model, 250)
    assert (config.batch, config.batch_size, config.worker_batch) == ("worker", batch, batch)
    assert config.policy.model_dump() == {
        "name": "shat",
        "reading": "complement",
        "alpha_min": 0,
        "local_step": "optimizer",
    }
    assert config.optimizer.model_dump() == {"name": "sgd", "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4}
    assert (config.schedule.name, config.schedule.milestones, config.schedule.gamma) == ("multistep", (150,), 0.1)
    assert (config.schedule.warmup_epochs, config.schedule.lr_scale) == (20, "linear")
    of_eight = rates(config, 8, (0, 10, 20, 149.9, 150, 249))
    assert of_eight == pytest.approx([0.01, 0.045, 0.08, 0.08, 0.008, 0.008])


def test_sharding_is_as_its_paper_trains():
    config = load(preset="sharding")

    assert (config.task, config.policy.name, config.data.strategy.name) == ("cifar10", "asp", "stratified")
    assert (config.workers, config.servers, config.epochs) == (12, 2, 164)
    assert config.optimizer.model_dump() == {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}
    assert (config.batch, config.batch_size, config.worker_batch) == ("global", 128, 10)
    assert config.schedule.lr_scale == "inverse"


def test_twelve_workers_of_sharding_learn_at_the_papers_rates():
    """32,000 and 48,000 steps of 128 images are 81.92 and 122.88 passes over 50,000."""
    iterations = (0, 31_999, 32_001, 47_999, 48_001, 64_000)

    found = rates(load(preset="sharding"), 12, [128 * iteration / 50_000 for iteration in iterations])

    assert found == pytest.approx([0.1 / 12, 0.1 / 12, 0.01 / 12, 0.01 / 12, 0.001 / 12, 0.001 / 12])


def test_hogwild_is_as_its_paper_trains_synchronously():
    config = load(preset="hogwild")

    assert (config.task, config.policy.name, config.batch_size, config.svm.stop) == ("rcv1", "bsp", 16, "all")
    assert config.optimizer.model_dump() == {"name": "sgd", "lr": 0.005, "momentum": 0, "weight_decay": 0}
    assert (config.svm.stopping.rule, config.svm.stopping.preset) == ("delta", "report")


@pytest.mark.parametrize("name", presets())
def test_a_preset_names_models_and_strategies_that_exist(name):
    pytest.importorskip("torch")
    from paceline.tasks.task import load_task

    config = load(preset=name)

    assert load_task(config.task, config.model).settings
    assert config.data.strategy.name in registry.names("paceline.sharder.strategies")


def test_a_preset_lies_above_the_tasks_settings_and_below_the_users(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("batch_size: 64\noptimizer: {lr: 0.02}")

    config = load(path, {"epochs": 300}, {"batch_size": 16, "epochs": 2, "seed": 7}, "shat")

    assert (config.seed, config.batch_size, config.epochs) == (7, 64, 300)
    assert config.optimizer.options == {"lr": 0.02, "momentum": 0.9, "weight_decay": 1e-4}


def test_another_policy_keeps_the_rest_of_a_preset():
    config = load(None, {"policy": {"name": "bsp"}}, preset="shat")

    assert (config.policy.model_dump(), config.epochs) == ({"name": "bsp"}, 250)


def test_a_run_that_is_too_short_for_a_preset_is_told_so():
    with pytest.raises(ConfigError, match=r"^schedule\.milestones \(150\) must be below epochs \(10\)"):
        load(None, {"epochs": 10}, preset="shat")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("shat-vgg", r"no 'shat-vgg' among the presets: .*Did you mean 'shat-vgg16'\?"),
        *((name, r"presets: hogwild, sharding, shat, shat-vgg16\.") for name in ("../presets/shat", "shat.yaml", "")),
    ],
)
def test_a_preset_is_a_name_that_there_is_and_no_path(name, told):
    with pytest.raises(ConfigError, match=told):
        read_preset(name)


@pytest.mark.parametrize("name", presets())
def test_every_line_of_a_preset_says_whose_it_is(name):
    lines = (PRESETS / f"{name}.yaml").read_text().splitlines()
    sources = ("# paper", "# ours: ", "# He et al.", "# Goyal et al.")

    settings = [line for line in lines if not line.startswith("#") and not line.endswith(":")]

    assert [line for line in settings if not any(source in line for source in sources)] == []


def test_presets_are_packed_with_the_package():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = settings["package-data"]["paceline"]

    packed = {path for pattern in patterns for path in (ROOT / "paceline").glob(pattern)}
    assert set(PRESETS.rglob("*.yaml")) == packed != set()
