"""Curves and hyper-parameters for TensorBoard: `tensorboard --logdir runs` compares runs. Written for every run where the
tensorboard package is installed."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.base.private import make_private
from paceline.callback import Callback, End, RunBegin, RunEnd, Score, Status, chart_name

WORKERS = "curves"
"""The folder of workers' curves in the run's: each worker is a run of TensorBoard's, so that one chart has all of them."""


class TensorBoard(Callback):
    """Event files: the run's in its folder, the workers' in curves/worker-N; curves over the version."""

    needs = "tensorboard"

    def begun(self, run: RunBegin) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        self._folder = run.folder
        self._files: dict[str, _EventFile] = {}
        self._version = 0
        self._file("").write(0, hparams_pb(dict(run.settings), trial_id=run.name))

    def status(self, status: Status) -> None:
        self._version = status.version
        self._file("").scalars(status.version, status.curves)
        for worker in status.workers:
            own = {f"worker/{name}": value for name, value in worker.curves.items()}
            self._file(worker.name).scalars(status.version, own)

    def scored(self, score: Score) -> None:
        version = score.versions[0] if score.versions else self._version
        self._file("").scalars(version, {chart_name(name): value for name, value in score.metrics.items()})

    def ended(self, end: RunEnd) -> None:
        if end.how is not End.FINISHED:  # it may be resumed, and TensorBoard takes the first end
            return
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2, summary_v2

        info = plugin_data_pb2.SessionEndInfo(status=api_pb2.STATUS_SUCCESS, end_time_secs=time.time())
        data = plugin_data_pb2.HParamsPluginData(session_end_info=info)
        self._file("").write(end.version, summary_v2._summary_pb(metadata.SESSION_END_INFO_TAG, data))

    def _file(self, worker: str) -> "_EventFile":
        if worker not in self._files:
            self._files[worker] = _EventFile(self._folder / WORKERS / worker if worker else self._folder)
        return self._files[worker]


class _EventFile:
    """A new event file in the folder. It is opened for each event, so that a thousand workers need no thousand handles, and
    nothing is lost where this process is killed."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        make_private(folder)
        now = time.time_ns()  # files are read in the order of their names
        self._path = folder / f"events.out.tfevents.{now // 10**9:010d}.{socket.gethostname()}.{os.getpid()}.{now}"
        self._append(Event(wall_time=now / 1e9, file_version="brain.Event:2"))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        self.write(step, Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]))

    def write(self, step: int, summary: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._append(Event(wall_time=time.time(), step=step, summary=summary))

    def _append(self, event: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        with self._path.open("ab") as file:
            RecordWriter(file).write(event.SerializeToString())
