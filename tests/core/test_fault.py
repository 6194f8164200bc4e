"""Faults as they are written: what they say, and what can't be read."""

import pytest

from paceline.core import registry
from paceline.core.errors import ConfigError
from paceline.core.fault import PACKAGE, Fault, RunClock, Signal, faults_of, read_fault
from paceline.core.network_link import NetworkLink
from paceline.settings.load_settings import load


@pytest.mark.parametrize("kind", registry.names(PACKAGE))
def test_each_kind_reads_its_own_example(kind: str) -> None:
    found = registry.find(PACKAGE, Fault, kind)

    fault = read_fault(found.form)

    assert isinstance(fault, found)
    assert found.form.split()[0] == kind
    assert all(signal.at >= fault.begins for signal in fault.signals)


def test_a_kill_is_one_signal_and_a_freeze_two() -> None:
    kill, freeze = faults_of(("kill server-0@1m", "freeze evaluator@500ms:2s"))

    assert kill.signals == (Signal(60.0, "SIGKILL"),)
    assert freeze.signals == (Signal(0.5, "SIGSTOP"), Signal(2.5, "SIGCONT"))


def test_a_link_is_there_always_or_for_a_while() -> None:
    always, brief = faults_of(("link worker-1=10Mbit,50ms", "link worker-1=1Gbit @ 10s:20s"), "worker-1")

    assert [always.link_at(time) for time in (0.0, 1e6)] == [NetworkLink(1e7, 0.05)] * 2
    assert [brief.link_at(time) for time in (9.9, 10.0, 29.9, 30.0)] == [None, *[NetworkLink(1e9)] * 2, None]


def test_a_message_takes_latency_and_bandwidth_and_a_loss_bounds_the_rate() -> None:
    assert NetworkLink.read("8Mbit,50ms").takes(500_000) == pytest.approx(0.55)
    assert NetworkLink.read("800kbit").takes(100_000) == pytest.approx(1.0)
    # 1460 bytes / 0.1 s * 1.2247 / sqrt(0.01) = 178,812 bytes a second, less than 10 Mbit
    assert NetworkLink.read("10Mbit,50ms,1%").rate == pytest.approx(178_812, rel=1e-4)
    assert NetworkLink.read("1Mbit,50ms,1%").rate == 125_000


def test_several_faults_may_stand_in_one_text_and_several_texts_in_a_list() -> None:
    text = "kill server-0@30s;  freeze worker-2@10s:20s;"

    assert load(None, {"faults": text}).faults == ("kill server-0@30s", "freeze worker-2@10s:20s")
    assert load(None, {"faults": [text, "kill evaluator@3s"]}).faults[2] == "kill evaluator@3s"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kil server-0@3s", "There is no 'kil' among the faults: freeze, kill, link. Did you mean 'kill'?"),
        ("kill server-0@30", "got '30' as a time; write it with its unit, like 500ms, 5s"),
        ("kill server-0@5 days", "got '5 days'; a duration looks like"),
        ("kill server-0", "expected 'kill server-0@30s'."),
        ("kill", "expected 'kill server-0@30s'."),
        ("kill sharder@3s", "got 'sharder' as the process; expected a name like server-0, worker-0 or evaluator."),
        ("kill server-2@3s", "there is no server-2 in a run of 4 workers and 2 servers"),
        ("freeze worker-4@1s:1s", "there is no worker-4 in a run of 4 workers"),
        ("freeze worker-0@3s", "got '3s'; expected when it begins and how long it lasts, like 10s:20s."),
        ("freeze worker-0@3s:0s", "which lasts 0 s"),
        ("link worker-0", "expected 'link worker-1=10Mbit,50ms,1%'."),
        ("link server-0=1Mbit", "got 'server-0' as the process; expected a name like worker-0."),
        ("link worker-0=0Mbit", "got '0Mbit' as a bandwidth; write one above 0"),
        ("link worker-0=10", "got '10' as a bandwidth"),
        ("link worker-0=1Mbit,5", "got '5' as a time"),
        ("link worker-0=1Mbit,5ms,100%", "got '100%' as a share of lost packets; write one below 100%"),
        ("link worker-0=1Mbit,0ms,1%", "a loss without latency"),
        ("link worker-0=1Mbit,5ms,1%,3", "write BANDWIDTH,LATENCY,LOSS"),
        (3, "got 3; input should be a valid tuple"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_before_anything_starts(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(None, {"faults": text})

    assert str(error.value).startswith("faults: ")
    assert said in str(error.value)


def test_the_clock_of_a_run_goes_on_while_the_chief_is_away_and_never_back() -> None:
    clock = RunClock()
    read = [clock.read(100.0)]
    for seconds, now in [
        (0.0, 100.0),
        (0.0, 105.0),
        (0.5, 106.0),
        (1.5, 107.0),
        (None, 109.0),
        (0.7, 110.0),
        (0.7, 111.0),
    ]:
        clock.hear(seconds, now)
        read.append(clock.read(now + 0.25))

    # before the start; waits; trains; trains; is away; came back with an older time; stands still
    assert read == [-1.0, 0.0, 0.0, 0.75, 1.75, 3.75, 4.75, 5.5]
