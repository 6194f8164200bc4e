"""What TensorBoard's own reader and its plugin of hyper-parameters find in a run's folder."""

from pathlib import Path

import pytest

from paceline.callback import End
from paceline.launch.loggers.tensorboard import TensorBoard
from tests.support import told_loggers as told

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = accumulator.EventAccumulator(str(folder)).Reload()
    return {tag: [(each.step, each.value) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_the_runs_curves_and_scores_are_over_the_version(tmp_path: Path) -> None:
    told.tell(TensorBoard(), tmp_path)

    found = curves(tmp_path)
    assert found["run/loss"] == [(1, 1.0), (2, 1.0)]
    assert found["run/examples_per_second"] == [(1, 640.0), (2, 640.0)]
    assert found["run/learning_rate"][0][1] == pytest.approx(0.1)
    assert found["log/norm"] == [(1, 2.5), (2, 2.5)]
    assert found["test/accuracy"] == [(0, 0.5), (1, 0.75)]


def test_each_worker_is_a_run_with_the_same_tags_so_that_one_chart_has_all(tmp_path: Path) -> None:
    told.tell(TensorBoard(), tmp_path)

    both = [curves(tmp_path / "curves" / f"worker-{rank}") for rank in range(2)]
    assert both[0].keys() == both[1].keys() == {"worker/loss", "worker/learning_rate", "worker/log/norm"}
    assert [found["worker/loss"] for found in both] == [[(1, 0.5), (2, 0.5)], [(1, 1.5), (2, 1.5)]]


def test_a_resumed_run_goes_on_in_the_same_charts(tmp_path: Path) -> None:
    told.tell(TensorBoard(), tmp_path, End.STOPPED)
    told.tell(TensorBoard(), tmp_path, first=2)
    multiplexer = pytest.importorskip("tensorboard.backend.event_processing.event_multiplexer")
    found = multiplexer.EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload()
    assert sorted(found.Runs()) == [".", "curves/worker-0", "curves/worker-1"]
    files = sorted(tmp_path.glob("events*"))
    assert [curves(file)["run/loss"] for file in files] == [[(1, 1.0), (2, 1.0)], [(3, 1.0), (4, 1.0)]]


def test_the_table_of_hyper_parameters_has_the_settings_and_that_it_finished(tmp_path: Path) -> None:
    from tensorboard.plugins.hparams import api_pb2, metadata

    told.tell(TensorBoard(), tmp_path, End.STOPPED)
    told.tell(TensorBoard(), tmp_path, first=2)
    found = accumulator.EventAccumulator(str(tmp_path)).Reload()

    def content(tag: str) -> bytes:
        plugin = found.SummaryMetadata(tag).plugin_data
        assert plugin.plugin_name == metadata.PLUGIN_NAME
        return bytes(plugin.content)

    start = metadata.parse_session_start_info_plugin_data(content(metadata.SESSION_START_INFO_TAG))
    assert start.group_name == "digits-ssp"
    assert set(start.hparams) == set(told.SETTINGS)
    assert start.hparams["optimizer.lr"].number_value == pytest.approx(0.1)
    assert start.hparams["optimizer.name"].string_value == "sgd"
    assert start.hparams["compile"].HasField("bool_value")
    end = metadata.parse_session_end_info_plugin_data(content(metadata.SESSION_END_INFO_TAG))
    assert end.status == api_pb2.STATUS_SUCCESS
