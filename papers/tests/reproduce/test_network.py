"""The emulated network: its commands, its traffic, and what is left of it."""

import os
import subprocess

import pytest

from paceline.core.errors import UsageError
from paceline_papers.reproduce import network
from paceline_papers.reproduce.network import UNLIMITED, Network, Node, Traffic, missing, nodes, traffic


@pytest.fixture
def links() -> None:
    """For tests that need real namespaces."""
    if why := missing():
        pytest.skip(why)


def namespaces() -> list[str]:
    """Network namespaces that this process holds on to."""
    open_files = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd") if number.isdecimal()]
    links = [os.readlink(place) for place in open_files if os.path.islink(place)]
    return [link for link in links if link.startswith("net:")]


def wired(rates: dict[str, float]) -> list[network.Command]:
    return network.commands(rates, nodes({name: f"/{name}" for name in rates}), "/switch")


def test_each_end_of_a_limited_link_is_shaped_and_an_unlimited_one_is_not() -> None:
    made = wired({"servers": UNLIMITED, "worker-0": 1e9})
    assert [command for command in made if "tc" in command] == [
        (
            *("nsenter", f"--net={at}", "tc", "qdisc", "add", "dev", interface, "root", "tbf"),
            *("rate", "1000000000bit", "burst", "250000b", "latency", "400ms"),
        )
        for at, interface in (("/worker-0", "eth0"), ("/switch", "port1"))
    ]
    assert ("nsenter", "--net=/worker-0", "ip", "addr", "add", "10.99.0.2/24", "dev", "eth0") in made


def test_a_slow_link_lets_two_packets_through_at_once() -> None:
    (one, _) = [command for command in wired({"worker-0": 1e6}) if "tc" in command]
    assert one[one.index("burst") + 1] == "3028b"


@pytest.mark.parametrize("given", [{"a": 0.0}, {"a": -1.0}, {str(number): 1.0 for number in range(255)}])
def test_links_that_can_not_be_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="at most 254, above 0"):
        wired(given)


def test_traffic_is_read_from_the_kernels_table() -> None:
    table = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     500       5    0    0    0     0          0         0      500       5    0    0    0     0       0          0
  eth0: 1234567     900    0    0    0     0          0         0     4321      80    0    0    0     0       0          0
"""
    assert traffic(table) == Traffic(sent=4321, received=1234567)


def test_without_the_programs_it_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "root (CAP_NET_ADMIN and CAP_SYS_ADMIN)" in missing()


@pytest.mark.usefixtures("links")
def test_nothing_is_left_of_a_network_whatever_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(node: Node) -> None:
        shown = ["nsenter", f"--net={node.namespace}", "ip", "-o", "addr", "show", "eth0"]
        assert "10.99.0.2/24" in subprocess.run(shown, capture_output=True, text=True, check=True).stdout
        assert len(namespaces()) == 3
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Network({"servers": UNLIMITED, "worker-0": 1e6}) as made:
        interrupted(made.nodes["worker-0"])
    assert namespaces() == []
    real = network.commands
    monkeypatch.setattr(network, "commands", lambda *given: [*real(*given), ("ip", "no-such-word")])
    with pytest.raises(UsageError, match="Can't emulate links: `ip no-such-word` said"), Network({"a": 1e6}):
        raise AssertionError("there is no such network")
    assert namespaces() == []
