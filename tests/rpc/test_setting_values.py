"""Settings travel as messages without losing anything that YAML can say: types, order, sections within lists."""

from typing import Any

import pytest

from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.rpc.setting_values import policy_message, policy_value, settings_message, settings_value
from paceline.v1.script_service_pb2 import DescribeRequest
from paceline.v1.settings_pb2 import Policy

SETTINGS: dict[str, Any] = {
    "epochs": 3,
    "seed": 2**63 - 1,
    "lowest": -(2**63),
    "ratio": 1.0,
    "small": 1e-300,
    "endless": float("inf"),
    "is_on": True,
    "is_off": False,
    "nothing": None,
    "text": "ä\n",
    "empty": "",
    "list": [1, 1.0, "1", None, [2], {"a": 1}],
    "no_list": [],
    "zebra": {"b": {"c": 0}, "a": {}},
}


def sent(settings: dict[str, Any]) -> dict[str, Any]:
    message = DescribeRequest.FromString(DescribeRequest(settings=settings_message(settings)).SerializeToString())
    return settings_value(message.settings)


def typed(value: Any) -> Any:
    """The value with its type, and a section as its entries in order."""
    if isinstance(value, dict):
        return [(name, typed(each)) for name, each in value.items()]
    return [typed(each) for each in value] if isinstance(value, list) else (type(value), value)


def test_settings_come_back_with_types_and_in_order() -> None:
    assert typed(sent(SETTINGS)) == typed(SETTINGS)


def test_all_settings_of_a_run_are_read_as_they_were_sent() -> None:
    config = Config(epochs=3, policy={"name": "ssp", "bound": 5})
    assert Config.model_validate(sent(config.model_dump(mode="json"))) == config


def test_a_whole_number_beyond_64_bits_is_refused_by_the_settings_name() -> None:
    with pytest.raises(ConfigError, match=r"seed is 9223372036854775808; expected a whole number of at most 64 bits"):
        settings_message({"data": {"seed": 2**63}})


def test_what_yaml_has_not_is_no_setting() -> None:
    with pytest.raises(TypeError, match="place is a set, which is no setting"):
        settings_message({"place": {1}})


@pytest.mark.parametrize("policy", [{"name": "ssp", "bound": 5, "beta": 2.0}, {"bound": 5}, {"name": "bsp"}])
def test_a_policy_comes_back_with_its_name_first(policy: dict[str, Any]) -> None:
    message = Policy.FromString(policy_message(policy).SerializeToString())
    assert typed(policy_value(message)) == typed(policy)
