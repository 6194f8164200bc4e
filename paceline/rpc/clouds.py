"""What the metadata services of AWS, Google Cloud and Azure say to a spot machine that they take back."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from paceline.rpc.notice import Notice

_TIMEOUT = 5.0
"""Longest time for an answer (seconds)."""
_LONGEST = 1 << 20
"""Of an answer (bytes)."""
_GCP_SECONDS = 30
"""Time that Google Cloud gives a machine, without naming the moment (seconds)."""
_LEAVES = ("Preempt", "Terminate")
"""Azure's events after which a machine is gone."""


class _Service:
    """A metadata service at one address, which no proxy stands before."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._opener = build_opener(ProxyHandler({}))

    def ask(self, path: str, headers: Mapping[str, str], method: str = "GET") -> str | None:
        """Returns what it answers; None where it has nothing there. Raises OSError, or HTTPException."""
        request = Request(self._url + path, headers=dict(headers), method=method)
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                text: bytes = answer.read(_LONGEST)
        except HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            raise
        return text.decode()


def look_at(cloud: str, url: str = "") -> Callable[[], Notice | None]:
    """Returns what asks that cloud once whether it takes this machine back. `url`: where it answers, if not at the usual
    address. The call raises OSError, HTTPException or ValueError where it gives no answer that can be read."""
    usual, kind = _CLOUDS[cloud]
    return kind(_Service(url or usual))


def _aws(service: _Service) -> Callable[[], Notice | None]:
    """Spot instances, by the second version of the service, which wants a token. They have two minutes."""

    def look() -> Notice | None:
        token = service.ask("/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
        answer = service.ask("/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token or ""})
        return None if answer is None else Notice("aws", _moment(json.loads(answer)["time"]))

    return look


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _gcp(service: _Service) -> Callable[[], Notice | None]:
    """Spot and preemptible machines."""

    def look() -> Notice | None:
        answer = service.ask("/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
        if (answer or "").strip() != "TRUE":
            return None
        return Notice("gcp", datetime.now(UTC) + timedelta(seconds=_GCP_SECONDS))

    return look


def _azure(service: _Service) -> Callable[[], Notice | None]:
    """Spot machines, and those that a scale set removes. An event is for all machines that it names."""
    headers = {"Metadata": "true"}

    def look() -> Notice | None:
        answer = service.ask("/metadata/scheduledevents?api-version=2020-07-01", headers)
        events = [event for event in json.loads(answer or "{}").get("Events", []) if event["EventType"] in _LEAVES]
        if not events:
            return None
        own = service.ask("/metadata/instance/compute/name?api-version=2021-02-01&format=text", headers)
        return next((_azure_notice(event) for event in events if own in event["Resources"]), None)

    return look


def _azure_notice(event: Mapping[str, Any]) -> Notice:
    """Azure names no moment once the event has begun."""
    before = event.get("NotBefore")
    return Notice("azure", parsedate_to_datetime(before).astimezone(UTC) if before else None)


_CLOUDS: dict[str, tuple[str, Callable[[_Service], Callable[[], Notice | None]]]] = {
    "aws": ("http://169.254.169.254", _aws),
    "gcp": ("http://metadata.google.internal", _gcp),
    "azure": ("http://169.254.169.254", _azure),
}
"""Where each answers, and how it is asked."""
