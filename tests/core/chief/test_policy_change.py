"""Which policy may follow which in the middle of a run."""

import json
from typing import Any, ClassVar

import pytest

from paceline.core.chief.membership import Membership
from paceline.core.chief.policy_change import PolicyChange
from paceline.core.errors import ConfigError
from paceline.core.extension import SettingsRule
from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.policies.clocks import Clocks
from paceline.core.settings.config import Config, Options

ASP = Options(name="asp")


def change(**settings: Any) -> tuple[PolicyChange, Membership]:
    """Of a run of one worker that trains under asp."""
    config = Config(**({"workers": 1, "policy": ASP} | settings))
    membership = Membership(1, 15.0, rounds=False)
    membership.candidate("a", membership.join("a", False, 0.0), 0, 0.0)
    membership.start({}, 0.0)
    return PolicyChange(config, membership), membership


def test_a_change_is_under_way_until_all_slices_have_made_it():
    policy_change, membership = change()

    policy_change.begin(Options(name="bsp"), Clocks())
    assert (policy_change.policy.name, policy_change.is_under_way, membership.rounds) == ("bsp", True, False)
    policy_change.end()

    assert (policy_change.is_under_way, membership.rounds) == (False, True)


@pytest.mark.parametrize(
    ("policy", "settings", "words"),
    [
        ({"name": "nope"}, {}, "no 'nope' among the policies"),
        ({"name": "ssp", "bound": -1}, {}, "bound"),
        ({"name": "bsp"}, {"overlap": True}, "overlap: true does not go with policy bsp"),
        ({"name": "adpsgd"}, {"servers": 0, "policy": Options(name="dpsgd")}, "A run without servers keeps its policy"),
    ],
)
def test_a_policy_that_can_not_follow_is_refused_and_nothing_changes(policy, settings, words):
    policy_change, membership = change(**settings)
    before = (policy_change.policy, membership.view)

    with pytest.raises(ConfigError, match=words):
        policy_change.begin(Options(**policy), Clocks())

    assert (policy_change.policy, membership.view) == before


class Fitting(Sgd):
    """A user's optimizer, which says itself which policies it goes with."""

    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(
            lambda optimizer, config: config.policy.name == "bsp",
            "This optimizer does not go with policy {policy.name}. Take another one.",
        ),
    )


def test_a_change_asks_the_rules_of_the_runs_other_extensions_too(monkeypatch):
    monkeypatch.setattr("paceline.core.setting_rules.check_rules.build_optimizer", lambda options: Fitting())
    policy_change, _ = change()

    with pytest.raises(ConfigError, match=r"^This optimizer does not go with policy bsp\. Take another one\.$"):
        policy_change.begin(Options(name="bsp"), Clocks())

    policy_change.begin(Options(name="ssp"), Clocks())


def test_a_restarted_chief_knows_the_policy_and_that_it_was_changing():
    policy_change, membership = change()
    policy_change.begin(Options(name="ssp", bound=2), Clocks())
    again, restored = change()

    restored.restore(json.loads(json.dumps(membership.state())), 5.0)
    again.restore()

    assert (again.policy, again.is_under_way) == (Options(name="ssp", bound=2), True)
