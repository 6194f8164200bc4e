"""Calls that keep failing: said in the log, in the heartbeat and to Prometheus, and that they work again."""

from prometheus_client import CollectorRegistry

from paceline.rpc.outages import Outages
from tests.support.in_process import Said

WHY = "UNAVAILABLE: Connection refused."


class Process:
    """A process whose calls to two servers fail as the test says; its clock is the test's."""

    def __init__(self) -> None:
        self.now = 100.0
        self.said = Said()
        self.registry = CollectorRegistry()
        self.outages = Outages(self.said, lambda: self.now)
        self.outages.expose(self.registry)

    def seconds(self, to: str) -> float | None:
        return self.registry.get_sample_value("paceline_worker_failing_seconds", {"to": to})


def test_the_third_failure_and_one_each_ten_seconds_after_it_is_a_line() -> None:
    process = Process()
    outage = process.outages.watch("server 0 at a:1")

    for _ in range(27):  # 26 s
        outage.failed("a push", WHY)
        process.now += 1

    assert [(facts["times"], facts["seconds"]) for _, facts in process.said] == [(3, 2.0), (13, 12.0), (23, 22.0)]
    event, facts = process.said[0]
    assert event == "a push to server 0 at a:1 keeps failing"
    assert facts["why"] == WHY
    assert "firewall" in facts["advice"]


def test_the_first_failure_is_a_line_where_it_took_long() -> None:
    process = Process()
    outage = process.outages.watch("the chief at a:1")

    outage.failed("Heartbeat", WHY, lasted=4.0)
    assert str(process.outages) == ""
    outage.works()
    outage.failed("Heartbeat", WHY, lasted=5.0)

    assert str(process.outages).startswith("Heartbeat to the chief at a:1 has failed 1 times in 5 s: UNAVAILABLE")
    assert [(facts["times"], facts["seconds"]) for _, facts in process.said] == [(1, 5.0)]


def test_a_server_that_is_silent_while_a_call_waits_is_said_until_it_answers() -> None:
    process, silences = Process(), [4.0, 6.0, 8.0, 16.5, 0.0]
    process.outages.watch("server 1 at b:1").silence = lambda: silences.pop(0)

    for _ in range(4):
        process.now += 2
        process.outages.look()
    text = str(process.outages)
    assert text.startswith(
        "a call to server 1 at b:1 has failed in 10 s: Not even a ping has had an answer for 16 s. Look"
    )
    process.outages.look()

    assert [event for event, _ in process.said] == [
        "a call to server 1 at b:1 keeps failing",
        "a call to server 1 at b:1 works again",
    ]
    assert str(process.outages) == ""


def test_two_failures_are_nothing_to_speak_of() -> None:
    process = Process()
    outage = process.outages.watch("server 0 at a:1")
    for _ in range(2):
        outage.failed("a push", WHY)
    assert str(process.outages) == ""
    outage.works()
    assert process.said == []


def test_what_works_again_is_one_line() -> None:
    process = Process()
    outage = process.outages.watch("server 0 at a:1")
    for _ in range(4):
        outage.failed("a push", WHY)
    process.now += 33
    for _ in range(2):
        outage.works()

    assert process.said[-1] == ("a push to server 0 at a:1 works again", {"seconds": 33.0})
    assert len(process.said) == 2
    assert str(process.outages) == ""


def test_the_heartbeat_and_prometheus_tell_what_fails_to_whom_since_when_and_what_to_do() -> None:
    process = Process()
    short, long = process.outages.watch("server 0 at a:1"), process.outages.watch("server 1 at b:1")
    for _ in range(3):
        long.failed("a pull", "it\nsays \x00 no")
    process.now += 5
    for _ in range(3):
        short.failed("a push", WHY)
    process.now += 7

    assert (process.seconds("server 0 at a:1"), process.seconds("server 1 at b:1")) == (7.0, 12.0)
    text = str(process.outages)
    assert text.startswith("a pull to server 1 at b:1 has failed 3 times in 12 s: it says   no Look whether server 1")
    assert text.isprintable()
    long.works()
    assert str(process.outages).startswith("a push to server 0")
    short.works()
    assert (process.seconds("server 0 at a:1"), process.seconds("server 1 at b:1")) == (0.0, 0.0)


def test_the_longest_reason_fits_a_heartbeat() -> None:
    process = Process()
    outage = process.outages.watch("server 0 at " + "x" * 253)
    for _ in range(3):
        outage.failed("a push", "why " * 1000)
    assert len(str(process.outages)) < 1000


def test_what_works_but_not_as_it_should_is_said_once_and_when_it_is_over() -> None:
    process = Process()
    for text in ("The lane is closed.", "The lane is closed.", ""):
        process.outages.note("lane of server 0", text)
        if text:
            assert str(process.outages) == text
    assert [event for event, _ in process.said] == ["The lane is closed.", "lane of server 0 works again"]
    assert str(process.outages) == ""
