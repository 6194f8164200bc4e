"""Ports of the setting `ports`, each given once."""

import socket

import pytest
from pydantic import ValidationError

from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.launch.this_machine.free_ports import FreePorts


def test_without_a_range_any_free_port_is_taken() -> None:
    assert [FreePorts("").take() for _ in range(2)] == [0, 0]


def test_each_port_is_given_once_and_those_in_use_are_left_out() -> None:
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as taken:
        first = min(taken.getsockname()[1], 65532)
        ports = FreePorts(f"{first}-{first + 3}")
        given: list[int] = []
        with pytest.raises(ConfigError, match=rf"ports={first}-{first + 3}: no port of this range is free"):
            given.extend(ports.take() for _ in range(4))
    assert sorted(set(given)) == given
    assert len(given) < 4


@pytest.mark.parametrize("given", ["7100", "7100-", "7119-7100", "80-90", "7100-70000", "a-b"])
def test_what_is_no_range_is_refused(given: str) -> None:
    with pytest.raises(ValidationError, match="expected FIRST-LAST of 1024 to 65535, like 7100-7119"):
        Config(ports=given)
