"""Policies, codecs and the like of users, in files and in installed packages: found, checked, kept with a run."""

import sys
from pathlib import Path

import numpy as np
import pytest

from paceline.cli.set_policy import set_policy
from paceline.core import registry
from paceline.core.codecs.codec import load_codec
from paceline.core.errors import ConfigError, UsageError
from paceline.core.optimizers.effective import effective, pool_of
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.peers.peer_policy import build_peer_policy
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config, Options
from paceline.core.values import Dense
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.settings.read_config import read_config
from paceline.processes.exits import exits
from paceline.rpc.agreed_settings import agreed_settings, joining_settings
from paceline.settings.flags import Flags
from paceline.settings.load_settings import load, write_yaml
from paceline.settings.own_extensions import OWN, OwnExtensions, own_names
from paceline.sharder.engine import build_engine
from paceline.sharder.strategy import build_strategy
from tests.support import own
from tests.support.in_process import LENGTH, Cluster, Context, Pusher, config_of, join_request

POLICY = """
from typing import ClassVar
from paceline.extend import Policy

class Leash(Policy):
    shorthand: ClassVar[str | None] = "length"
    length: float = 2.0

    def may_proceed(self, worker, clocks):
        return clocks.lead(worker) <= self.length
"""
CODEC = """
from typing import ClassVar
import numpy as np
from paceline.extend import Codec

class Half(Codec):
    keeps_all: ClassVar[bool] = True
    biased: ClassVar[bool] = False

    def most_bytes(self, elements):
        return 2 * elements

    def elements_in(self, data):
        return self._whole(data, 2)

    def _encode(self, values, out):
        out[: 2 * len(values)] = values.astype(np.float16).view(np.uint8)
        return 2 * len(values)

    def _decode(self, data, out):
        out[:] = data.view(np.float16)
"""

LION = """
import numpy as np
from paceline.core.optimizers.builtin.sgd import Sgd

class Lion(Sgd):
    def step(self, weights, out, gradient, scale, lr, slots, steps):
        out[:] = weights - lr * np.sign(gradient)
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """The working folder is empty, and what is found in a test stays in it."""
    monkeypatch.chdir(tmp_path)
    fresh = OwnExtensions()
    for name, value in vars(fresh).items():
        monkeypatch.setattr(OWN, name, value)
    load_codec.cache_clear()
    yield
    load_codec.cache_clear()


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def installed(folder: Path, points: str, **modules: str) -> None:
    """A package as pip leaves it, with these entry points."""
    site = folder / "site"
    info = site / "leash-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: leash\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(points)
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text)


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield tmp_path
    for name in ("leash", "leash_codec"):
        sys.modules.pop(name, None)


# found
def test_a_file_is_a_policy_with_its_short_form_and_its_options():
    write("lab/leash.py", POLICY)

    config = read_config("digits", Flags(policy="lab/leash.py:3", sets=["workers=2"]))

    assert config.policy == Options(name="lab/leash.py", length=3)
    assert build_policy(config.policy).length == 3.0
    assert own_names(config) == {"policy": "lab/leash.py"}


def test_a_file_in_yaml_lies_beside_the_yaml_or_where_paceline_is_started():
    write("lab/leash.py", POLICY)
    there = write("lab/run.yaml", "policy: {name: leash.py, length: 4}\ncodec: {push: half.py}\n")
    write("half.py", CODEC)

    config = load(there)

    assert build_policy(config.policy).length == 4.0
    assert config.codec.push_codec.name == "half.py"


def test_a_codec_decodes_by_the_name_that_its_messages_have():
    write("half.py", CODEC)
    codec = load(None, {"codec": {"push": "half.py"}}).codec.push_codec
    values = np.array([1.5, -2.0], np.float32)
    data = np.empty(codec.most_bytes(2), np.uint8)

    codec.encode(values, data)
    load_codec(codec.name).decode(data, found := np.zeros(2, np.float32))

    assert list(found) == [1.5, -2.0]


def test_a_policy_without_servers_may_be_a_file_and_so_may_its_topology():
    write("swap.py", "from paceline.core.peers.peer_policies.dpsgd import Dpsgd\n\nclass Swap(Dpsgd):\n    pass\n")
    write("round.py", "from paceline.core.peers.topologies.ring import Ring\n\nclass Round(Ring):\n    pass\n")

    config = load(None, {"policy": "swap.py", "servers": 0, "topology": "round.py"})

    assert type(build_peer_policy(config.policy)).__name__ == "Swap"
    assert not build_policy(config.policy).served


def test_an_optimizer_that_is_made_from_sgd_and_has_a_step_of_its_own_is_stepped_with():
    write("lion.py", LION)
    config = load(None, {"policy": "asp", "workers": 4, "optimizer": {"name": "lion.py", "lr": 0.5}})
    asked, policy, pool = build_optimizer(config.optimizer), build_policy(config.policy), pool_of(config)

    assert pool.half(asked, policy) is None
    used = effective(pool, asked, policy)
    weights = np.zeros(2, np.float32)
    used.step(weights, weights, np.array([3, -4], np.float32), 1.0, 0.5, [], 1)

    assert weights.tolist() == [-0.5, 0.5]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"policy": "dana"}, "dana has nothing that its workers could keep of optimizer.name lion.py"),
        ({"policy": "ensemble"}, "ensemble takes plain steps at each worker, but optimizer.name is lion.py"),
        ({"policy": "asp", "updates": "sparse"}, "optimizer is lion.py .*, but sparse updates are plain SGD steps"),
        ({"policy": "broadcast", "servers": 0}, "optimizer is lion.py .*, but broadcast takes plain steps"),
        ({"policy": "bsp", "codec": {"push": "topk", "momentum": 0.9}}, r"is lion.py and .*Use optimizer.name=sgd"),
    ],
)
def test_where_only_sgds_step_is_taken_an_optimizer_with_a_step_of_its_own_is_refused(settings, told):
    write("lion.py", LION)

    with pytest.raises(ConfigError, match=told):
        load(None, {"optimizer": {"name": "lion.py", "momentum": 0, "weight_decay": 0}, **settings})


def test_a_file_that_changed_is_run_anew_and_one_that_did_not_is_not():
    write("leash.py", POLICY)
    first = type(build_policy(load(None, {"policy": "leash.py"}).policy))

    assert type(build_policy(load(None, {"policy": "leash.py"}).policy)) is first
    write("leash.py", POLICY.replace("2.0", "5.0"))

    assert build_policy(load(None, {"policy": "leash.py"}).policy).length == 5.0


def test_an_installed_package_gives_a_class_or_a_module(site):
    points = "[paceline.policies]\nleash = leash:Leash\n[paceline.codecs]\nhalf = leash_codec\n"
    installed(site, points, leash=POLICY, leash_codec=CODEC)

    config = load(None, {"policy": "leash:3", "codec": {"push": "half"}})

    assert build_policy(config.policy).length == 3.0
    assert config.codec.push_codec.name == "half"
    with pytest.raises(ConfigError, match=r"no 'leesh' among the policies: asp, .*leash\. Did you mean 'leash'"):
        load(None, {"policy": "leesh"})


# kept with a run
def test_a_runs_processes_take_the_copy_that_was_kept(tmp_path):
    write("leash.py", POLICY)
    config = load(None, {"policy": "leash.py"})
    folder = run_folder(tmp_path / "run", config)

    assert folder.keep_own([Path("leash.py")]) == []
    Path("leash.py").unlink()

    assert build_policy(load(folder.config).policy).length == 2.0


def test_a_run_goes_on_with_a_changed_file_and_says_so(tmp_path):
    folder = RunFolder(tmp_path)
    folder.keep_own([write("leash.py", POLICY)])

    (said,) = folder.keep_own([write("leash.py", POLICY.replace("2.0", "5.0"))])

    assert said == "leash.py has changed since this run began; it goes on with the file as it is now."
    with pytest.raises(ConfigError, match=r"leash.py differs from .*own/leash.py, .* Give the file another name"):
        folder.add_own(str(write("leash.py", POLICY)))


NOTED = "import pathlib\n\npathlib.Path('was-run').touch()\n"


def test_two_files_of_one_name_are_refused_also_before_a_run_has_a_folder(tmp_path):
    files = [write("a/mine.py", POLICY), write("b/mine.py", CODEC)]

    told = r"a/mine.py and b/mine.py are different files with the same name; rename one"
    with pytest.raises(ConfigError, match=told):
        RunFolder(tmp_path / "run").keep_own(files)
    with pytest.raises(ConfigError, match=told):
        read_config("digits", Flags(policy="a/mine.py", sets=["codec.push=b/mine.py"]))


def test_a_file_that_is_gone_is_said_to_be_in_the_named_run():
    write("runs/one/own/leash.py", POLICY)

    with pytest.raises(ConfigError, match=r"Run 'one' has a copy; .* by: paceline run runs/one/config"):
        read_config("digits", Flags(policy="lab/leash.py", run="one"))
    with pytest.raises(ConfigError, match=r"Give the path of a .py file\.$"):
        read_config("digits", Flags(policy="lab/leash.py", run="two"))


@pytest.mark.parametrize("text", [None, "import no_such_thing\n", "import sys\n\nsys.exit(3)\n"])
def test_contract_tests_say_what_is_wrong_with_a_file(text):
    if text is not None:
        write("mine.py", text)

    with pytest.raises(pytest.UsageError, match=r"--own mine.py: it can't be loaded: mine.py.*: [A-Z]\w+: "):
        own.add(Path("mine.py"))


@pytest.mark.parametrize("name", ["other.py", "settings/other.py", "/anywhere/other.py", "leash.py"])
def test_a_message_can_not_name_a_file_that_the_settings_do_not_name(name):
    for file in ("leash.py", "other.py", "settings/other.py", "settings/leash.py"):
        write(file, NOTED + POLICY + CODEC)
    load(Path(write("settings/config.yaml", "policy: ssp\n")))

    with pytest.raises(ConfigError, match=rf"settings of this run do not name {name}, and no such .* it is not run"):
        build_policy(Options(name=name))
    with pytest.raises(ConfigError, match=rf"This run's settings do not use the codec {name}. They use: .*int8"):
        load_codec(name)
    assert not Path("was-run").exists()


def test_a_message_may_name_the_settings_file_from_another_folder():
    write("settings/half.py", CODEC)
    write("other/half.py", NOTED + CODEC)
    load(Path(write("settings/config.yaml", "codec: {push: half.py}\n")))

    assert load_codec("other/half.py") is not None
    assert not Path("was-run").exists()


def test_a_codec_of_a_package_that_the_settings_do_not_name_is_not_loaded(site):
    installed(site, "[paceline.codecs]\nhalf = leash_codec\n", leash_codec=NOTED + CODEC)
    load(None)

    with pytest.raises(ConfigError, match="do not use the codec half"):
        load_codec("half")
    assert not Path("was-run").exists()


def test_a_run_takes_a_policy_that_was_added_to_it(tmp_path):
    folder = run_folder(tmp_path / "run", load(None))
    load(folder.config)

    folder.add_own(str(write("lab/leash.py", POLICY)))

    assert build_policy(Options(name="lab/leash.py")).length == 2.0


def test_own_beside_a_file_that_is_no_runs_does_not_count():
    write("leash.py", POLICY)
    write("own/leash.py", POLICY.replace("2.0", "5.0"))
    settings = write("settings.yaml", "policy: leash.py\n")

    assert build_policy(load(settings).policy).length == 2.0


def test_an_error_names_the_file_that_was_loaded(tmp_path):
    write("leash.py", POLICY)
    write("runs/one/own/leash.py", "1 / 0\n")
    write("runs/one/run.json", "{}")

    with pytest.raises(ConfigError, match=r"runs/one/own/leash.py, line 1: ZeroDivisionError"):
        load(write("runs/one/config.yaml", "policy: leash.py\n"))


def test_a_wrong_file_is_not_added_to_a_run_and_the_corrected_one_is(tmp_path):
    folder = run_folder(tmp_path / "run", load(None), finished=True)
    write("leash.py", POLICY.replace("may_proceed", "may_go"))

    with pytest.raises(ConfigError, match=r"leash.py, line 5: the policy Leash lacks may_proceed"):
        set_policy(folder, ["policy=leash.py:3"])
    write("leash.py", POLICY)
    with pytest.raises(ConfigError, match=r"policy.width: there is no such setting"):
        set_policy(folder, ["policy.name=leash.py", "policy.width=3"])
    assert not (folder.path / "own").exists()
    with pytest.raises(UsageError, match="has ended"):
        set_policy(folder, ["policy=leash.py:3"])
    assert (folder.path / "own/leash.py").read_text() == POLICY


def test_servers_refuse_a_worker_whose_file_of_the_same_name_is_another_one(tmp_path):
    write("leash.py", POLICY)
    cluster = Cluster(config_of("./leash.py"), tmp_path)
    try:
        Pusher(cluster).chief.join(False, 100, 10, "", 64)
        same = joining_settings(config_of("leash.py"))
        cluster.run.Join(join_request(cluster.config, "worker-0", settings=same), Context())

        write("leash.py", POLICY.replace("2.0", "5.0"))
        OWN.open(None)
        others = joining_settings(config_of("leash.py"))
        request = join_request(cluster.config, "worker-0", settings=others)
        write("leash.py", POLICY)
        OWN.open(None)
        with pytest.raises(ConfigError, match=r"other settings .*: policy.file=leash.py of SHA-256 .*; policy"):
            cluster.run.Join(request, Context())
    finally:
        cluster.close()


def test_what_a_server_keeps_does_not_hang_on_a_file_that_may_change(tmp_path):
    write("leash.py", POLICY)
    before = agreed_settings(config_of("./leash.py"))
    write("leash.py", POLICY.replace("2.0", "5.0"))

    assert before == agreed_settings(config_of("leash.py"))


# bad input
BAD = {
    "nothing": ("x = 1\n", r"mine.py defines no policy: a class that inherits from .*policy.Policy. See docs/"),
    "two": (
        f"{POLICY}\nclass Other(Policy):\n    pass\n",
        r"mine.py defines 2, .* only one policy: Leash \(line 5\) and Other \(line 12\). Move",
    ),
    "no method": (
        "from paceline.extend import Policy\n\nclass Mine(Policy):\n    pass\n",
        r"mine.py, line 3: the policy Mine lacks may_proceed\(\)",
    ),
    "wrong form": (
        POLICY.replace("(self, worker, clocks)", "(self, worker)"),
        r"line 9: may_proceed\(self, worker\) of Leash .*: expected may_proceed\(self, worker, clocks\)",
    ),
    "no property": (
        f"{POLICY}\n    def most_steps(self):\n        return 2\n",
        "mine.py, line 5: the policy Leash has most_steps as a function; it must be a property",
    ),
    "no function": (f"{POLICY}\n    admit: ClassVar[int] = 3\n", r"has admit as a int; it must be a function, admit\("),
    "an import": ("import os\nimport no_such_thing\n", "mine.py, line 2: ModuleNotFoundError: .* 'no_such_thing'"),
    "no Python": ("def (:\n", "The file can't be loaded: mine.py, line 1: SyntaxError"),
    "an exit": ("import sys\n\nsys.exit('no')\n", "mine.py, line 3: SystemExit: no"),
    "a silent exit": ("import sys\n\nsys.exit()\n", r"mine.py, line 3: SystemExit$"),
    "an option": (
        POLICY.replace("length: float", "length"),
        "mine.py, line 5: PydanticUserError: .* a type annotation(?!(.|\n)*visit)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_told_with_its_line_before_anything_is_started(case, capsys):
    text, told = BAD[case]
    write("mine.py", text)

    with pytest.raises(ConfigError, match=told):
        read_config("digits", Flags(policy="mine.py"))
    with pytest.raises(SystemExit) as end, exits("paceline"):
        read_config("digits", Flags(policy="mine.py"))
    assert end.value.code == ConfigError.exit_code
    assert len(capsys.readouterr().err.splitlines()) <= 3


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"policy": "none.py"}, r"none.py: there is no such file. .* not at /.*/none.py. Give the path of a .py file"),
        ({"policy": "./lab"}, r"./lab: there is no such file"),
        ({"policy": "bsp.py"}, "The file bsp.py has the name of the built-in policy bsp. Rename the file."),
        ({"policy": "allreduce.py"}, "has the name of the built-in policy allreduce"),
        ({"codec": {"push": "half.py:3"}}, "There is no 'half.py:3' among the codecs"),
        ({"codec": {"push": "lossy.py"}}, "lossy.py, line 6: the codec Half lacks keeps_all"),
        ({"codec": {"push": "needy.py"}}, "needy.py, line 6: the codec Half has no default for scale. Give it one"),
        ({"policy": {"name": "leash.py", "width": 3}}, "policy.width: there is no such setting. Known here: length"),
        ({"policy": "half.py"}, "half.py defines no policy"),
        ({"policy": "leash.py:5:6"}, "policy leash.py:5:6: expected one value, like leash.py:3"),
    ],
)
def test_a_file_that_can_not_be_meant_is_refused(settings, told):
    for name, text in (("leash", POLICY), ("bsp", POLICY), ("allreduce", POLICY), ("half", CODEC)):
        write(f"{name}.py", text)
    write("lossy.py", CODEC.replace("    keeps_all: ClassVar[bool] = True\n", ""))
    write("needy.py", CODEC.replace("    biased", "    scale: float\n    biased"))

    with pytest.raises(ConfigError, match=told):
        load(None, settings)


@pytest.mark.parametrize(
    ("points", "text", "told"),
    [
        ("ssp = leash:Leash", POLICY, r"leash 1.2 \(paceline.policies: ssp = leash:Leash\) has the name of the built"),
        ("mine = leash:Leash", POLICY.replace("may_proceed", "may_go"), r"leash.py, line 5: .* Leash lacks may_pr"),
        ("mine = leash:Leesh", POLICY, r"leash 1.2 \(.* mine = leash:Leesh\) .*: the module leash has no Leesh\.$"),
        ("mine = lash", POLICY, r"leash 1.2 \(.* mine = lash\) can't be loaded: there is no module lash\.$"),
        ("mine = leash.more", POLICY, r"can't be loaded: there is no module leash.more\.$"),
        ("mine = leash Leash", POLICY, r"can't be loaded: expected MODULE or MODULE:NAME after the '='\.$"),
        ("mine = leash", "import no_such_thing\n", r"can't be loaded: .*/leash.py, line 1: ModuleNotFoundError"),
        ("mine = leash", "x = 1\n", r"The package leash 1.2 \(.*\) defines no policy"),
        ("mine = leash:x", "x = 1\n", r"is not a policy: .* a class that inherits from .*policies.policy.Policy"),
    ],
)
def test_a_bad_package_is_named_with_file_and_line(site, points, text, told):
    installed(site, f"[paceline.policies]\n{points}\n", leash=text)

    with pytest.raises(ConfigError, match=told):
        read_config("digits", Flags(policy=points.partition(" ")[0]))


def run_folder(path: Path, config: Config, **facts: bool) -> RunFolder:
    """As a run has begun it."""
    folder = RunFolder(path)
    folder.path.mkdir()
    write_yaml(config, folder.config)
    folder.write_facts(**facts)
    return folder


def test_a_file_without_a_strategy_names_the_page_that_writes_one():
    write("mine.py", "x = 1\n")

    with pytest.raises(ConfigError, match=r"mine.py defines no strategy: .* See docs/extend/first-strategy.md"):
        build_strategy(Options(name="mine.py"))


@pytest.mark.parametrize(
    ("kind", "build", "base"),
    [
        ("strategy", build_strategy, "paceline.sharder.strategies.random import Random"),
        ("engine", build_engine, "paceline.sharder.engines.local import Local"),
    ],
)
def test_rules_of_what_is_not_asked_for_them_are_refused(kind, build, base):
    write(
        "mine.py",
        f"from typing import ClassVar\nfrom {base} as Base\n\nclass Mine(Base):\n    rules: ClassVar[tuple] = ()\n",
    )

    told = rf"mine.py, line 4: the {kind} Mine has `rules`, but Paceline reads them only from a policy, .* or codec"
    with pytest.raises(ConfigError, match=told):
        build(Options(name="mine.py"))


def test_a_rule_that_can_not_be_told_is_a_fault_of_the_file():
    rule = '    rules = (SettingsRule(lambda own, config: True, "{workers."),)\n'
    write("mine.py", "from paceline.extend import SettingsRule\n" + POLICY + rule)

    with pytest.raises(ConfigError, match=r"mine.py, line 6: .* Leash has a rule whose sentence can't be read: "):
        load(None, {"policy": "mine.py"})


def test_what_fails_later_is_told_as_the_users_own(capsys):
    write("leash.py", POLICY.replace("self.length\n", "self.length / 0\n"))
    policy = build_policy(load(None, {"policy": "leash.py"}).policy)

    with pytest.raises(SystemExit) as end, exits("server-0"):
        policy.may_proceed("worker-0", type("Clocks", (), {"lead": lambda self, worker: 0})())

    told = "server-0: ConfigError: leash.py, line 10, in may_proceed(): ZeroDivisionError: float division by zero\n"
    assert capsys.readouterr().err == told
    assert end.value.code == ConfigError.exit_code


@pytest.mark.parametrize("hook", ["_encode", "alpha"])
def test_what_fails_while_a_worker_talks_to_a_server_is_told_as_the_users_own(hook, tmp_path, capsys):
    """Links work in their own threads, and the thread that waits for them raises what ended them."""
    write("leash.py", f"{POLICY}\n    def alpha(self, others, members):\n        return members / 0\n")
    write("half.py", CODEC.replace("        out[: 2", "        1 / 0\n        out[: 2"))
    policy, codec = ("leash.py", "none") if hook == "alpha" else ("asp", "half.py")
    config = config_of(policy, codec={"push": codec})
    cluster = Cluster(config, tmp_path)
    try:
        pusher = Pusher(cluster)
        cluster.evaluator_ready()
        pusher.join().sit()
        alpha = build_policy(config.policy).alpha
        update = Dense(np.ones(LENGTH, np.float32))
        with pytest.raises(SystemExit) as end, exits("worker-0"):
            pusher.client.push_pull(1, pusher.view, update, 1, lambda server, head: alpha(None, 1) and pusher.model)
    finally:
        cluster.close()

    assert end.value.code == ConfigError.exit_code
    at = "half.py, line 17" if hook == "_encode" else "leash.py, line 13"
    assert f"worker-0: ConfigError: {at}, in {hook}(): ZeroDivisionError" in capsys.readouterr().err


def test_the_registry_without_anybody_outside_knows_its_folders_only():
    assert registry.Outside().find("paceline.core.policies.builtin", object, "mine.py") is None
    assert registry.Outside().names("paceline.core.policies.builtin") == ()
