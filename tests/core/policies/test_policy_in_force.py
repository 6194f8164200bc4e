"""The policy that a slice, a worker or the evaluator uses, and how it takes over a change."""

import pytest

from paceline.core.errors import Behind
from paceline.core.policies.policy import build_policy
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.core.settings.config import Options
from paceline.core.values import Switch

BSP = build_policy(Options(name="bsp"))
TO_SSP, TO_ASP = Switch(1, {"name": "ssp", "bound": 5}, 10), Switch(2, {"name": "asp"}, 20)


def test_the_runs_first_policy_is_in_force_until_a_change_comes():
    found = PolicyInForce(BSP)

    assert (found.policy, found.made, found.number) == (BSP, None, 0)


def test_a_change_that_was_made_before_is_in_force_from_the_start():
    found = PolicyInForce(BSP, TO_SSP)

    assert (found.policy, found.made, found.number) == (build_policy(Options(**TO_SSP.policy)), TO_SSP, 1)


def test_a_change_is_taken_over_once_and_an_older_one_never():
    found = PolicyInForce(BSP)
    assert [found.adopt(change) for change in (TO_ASP, TO_ASP, TO_SSP)] == [True, False, False]

    assert (found.made, found.is_new(TO_SSP)) == (TO_ASP, False)


def test_weights_of_different_rounds_are_of_no_use_in_rounds_only():
    PolicyInForce(BSP).check_level([7, 7, 7])
    PolicyInForce(BSP, TO_ASP).check_level([6, 7])

    with pytest.raises(Behind, match="weights of rounds 6, 7"):
        PolicyInForce(BSP).check_level([7, 6, 7])
