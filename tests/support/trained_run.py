"""The folder of a run that has trained, made in this process: its settings, shards, task file and model, no processes."""

from pathlib import Path
from typing import Any

from paceline.core.settings.config import Config
from paceline.data.inputs import Inputs
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.sharder.sharding import make_shards
from paceline.tasks.task import load_config, load_task


def trained_run(runs: Path, task: str | Path, weights: Any = None, **settings: Any) -> RunFolder:
    """`task`: a name, or a file's path; `weights`: a state for the model in place of its first weights, which are those of
    seed 0."""
    from paceline.worker.scoring.model_file import save_model
    from paceline.worker.training.model_and_gradient import Replica

    config: Config = load_config(None, {"run": "one", "task": str(task), "workers": 1, **settings})
    folder, config = open_run(config, runs=runs)
    folder.keep_task(config.task)
    manifest = make_shards(config, folder.shards)
    folder.models.mkdir()
    replica = Replica(load_task(config.task, config.model))
    if weights is not None:
        replica.model.load_state_dict(weights)
    for which in ("last", "best"):
        save_model(folder.models / f"{which}.safetensors", replica, Inputs.of(manifest).facts)
    folder.write_facts(finished=True, exit_code=0)
    return folder
