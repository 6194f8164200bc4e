"""Servers that a machine can reach, or not."""

import socket
import time

from paceline.launch.other_machines.reach_servers import ReachServers


def until(reach: ReachServers, done: bool) -> None:
    end = time.monotonic() + 20
    while reach.is_done is not done or (not done and not reach.trouble):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_servers_that_accept_are_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        reach = ReachServers([f"127.0.0.1:{each.getsockname()[1]}" for each in (one, two)])
        until(reach, True)
    assert (reach.trouble, reach.waited) == ("", 0.0)


def test_one_that_can_not_be_reached_is_named_until_it_can() -> None:
    with socket.create_server(("127.0.0.1", 0)) as open_one, socket.socket() as shut:
        shut.bind(("127.0.0.1", 0))  # nobody listens there yet
        address = f"127.0.0.1:{shut.getsockname()[1]}"
        reach = ReachServers([f"127.0.0.1:{open_one.getsockname()[1]}", address])
        until(reach, False)
        assert f"servers at {address} can't be reached from here (Connection refused), so no worker" in reach.trouble
        assert "--set ports=7100-7119" in reach.trouble
        shut.listen()
        until(reach, True)
