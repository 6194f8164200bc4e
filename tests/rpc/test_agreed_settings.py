"""What all processes of a run must have set alike, leaf by leaf, so that a difference is named by its own name."""

import pytest

from paceline.core.settings.config import Config, Options
from paceline.rpc.agreed_settings import agreed_defaults, agreed_settings, changed_settings, has_more_epochs

GIVEN = Config(task="a/digits.py", policy=Options(name="ssp", bound=3), epochs=7, plan={"alignment": 32})
"""What is set besides the defaults: a file, a policy and its option, a number, and one within a section."""


def test_each_setting_has_a_line_of_its_own() -> None:
    found = agreed_settings(GIVEN)
    assert {"task=digits.py", "policy.name=ssp", "policy.bound=3", "epochs=7", "plan.alignment=32"} <= set(found)
    names = [line.partition("=")[0] for line in found]
    assert len(names) == len(set(names))


def test_what_was_given_is_no_default_though_the_rest_of_its_section_is() -> None:
    defaults = agreed_defaults(GIVEN)
    assert {"plan.slices=memorywise", "seed=0"} <= defaults <= set(agreed_settings(GIVEN))
    assert not {"policy.name=ssp", "policy.bound=3", "epochs=7", "plan.alignment=32"} & defaults


def test_another_option_of_the_policy_is_a_difference_of_one_line() -> None:
    other = GIVEN.model_copy(update={"policy": Options(name="ssp", bound=4)})
    assert set(agreed_settings(GIVEN)) ^ set(agreed_settings(other)) == {"policy.bound=3", "policy.bound=4"}


@pytest.mark.parametrize(
    ("before", "now", "may_go_on"),
    [
        ({}, {"epochs": 9}, True),
        ({}, {"epochs": 5}, False),
        ({}, {"epochs": 9, "seed": 3}, False),
        ({"servers": 0}, {"servers": 0, "epochs": 9}, False),
        ({"svm": {"average_last": 0.5}}, {"svm": {"average_last": 0.5}, "epochs": 9}, True),
    ],
)
def test_a_run_may_go_on_with_more_epochs_and_nothing_else(before: dict, now: dict, may_go_on: bool) -> None:
    old = Config.model_validate({"epochs": 7} | before)
    new = Config.model_validate({"epochs": 7} | now)

    assert (changed_settings(agreed_settings(old), agreed_settings(new)) == []) is may_go_on
    assert has_more_epochs(old, new) is may_go_on
    assert not has_more_epochs(new, new)
