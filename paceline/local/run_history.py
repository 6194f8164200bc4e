"""Keeps what a run did: one JSON line for each change, and TensorBoard curves."""

import json
import time
from pathlib import Path
from typing import Any, TextIO

from paceline.v1.run_service_pb2 import StatusReply
from paceline.watch.chief_status import loss, plain, scores


class Records:
    """Writes metrics.jsonl and the event file of a run folder; close it at the end."""

    def __init__(self, folder: Path, metrics: Path) -> None:
        self._lines: TextIO = metrics.open("a")
        self._curves = _Curves(folder)
        self._last: object = None

    def note(self, status: StatusReply, rate: float) -> None:
        """Takes down a status that says something new."""
        here = (
            status.phase,
            status.version,
            len(status.scores),
            len(status.warnings),
            tuple(worker.phase for worker in status.workers),
        )
        if here == self._last:
            return
        self._last = here
        line = {"time": round(time.time(), 3), "examples_per_second": round(rate, 3), **plain(status)}
        self._lines.write(json.dumps(line) + "\n")
        self._lines.flush()
        self._curves.note(status, rate)

    def close(self) -> None:
        self._lines.close()
        self._curves.close()


class _Curves:
    """TensorBoard scalars over the version; does nothing where the tensorboard package is not installed."""

    def __init__(self, folder: Path) -> None:
        self._writer: Any = None
        self._scored = 0
        try:
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            return
        self._writer = EventFileWriter(str(folder), flush_secs=5)

    def note(self, status: StatusReply, rate: float) -> None:
        if self._writer is None:
            return
        mean = loss(status)
        values = {"train/examples_per_second": rate, "train/epoch": status.epoch}
        self._add(status.version, values if mean is None else values | {"train/loss": mean})
        for score in scores(status)[self._scored :]:
            self._add(
                score.versions[0] if score.versions else status.version,
                {_tag(name): value for name, value in score.metrics.items()},
            )
        self._scored = len(status.scores)

    def _add(self, step: int, values: dict[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _tag(name: str) -> str:
    """'test_accuracy' as 'test/accuracy', so that TensorBoard groups by split."""
    return name.replace("_", "/", 1)
