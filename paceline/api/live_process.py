"""`python -m paceline.api.live_process`: a worker or the evaluator of a run that trains live objects, as a script would, or
calls a function."""

import json
import os
import sys
import warnings
from functools import partial

import torch

from paceline.api import script
from paceline.api.launch_function import Call
from paceline.base.variables import CONNECT
from paceline.processes.exits import exits
from paceline.processes.packing import unpack
from paceline.worker.command_line import ToldLaunched
from paceline.worker.live_objects.live_training import LiveTraining
from paceline.worker.live_objects.own_faults import as_config_errors
from paceline.worker.live_objects.scores import baseline, score
from paceline.worker.live_objects.steps import Schedule, Steps
from paceline.worker.script.alone import Alone
from paceline.worker.script.asked_scores import AskedScores
from paceline.worker.script.current import current
from paceline.worker.script.draws import seed_all
from paceline.worker.script.script_run import ScriptRun
from paceline.worker.script.to_its_end import run_to_end
from paceline.worker.training.device import device_of_script
from paceline.worker.training.model_and_gradient import use_threads


def main() -> None:
    """Takes the objects that this process has inherited and trains them."""
    told = ToldLaunched.model_validate(json.loads(os.environ[CONNECT]))
    with exits(told.name):
        assert told.objects is not None
        use_threads(told.threads)
        device = device_of_script(told.device, told.rank)
        live: LiveTraining | Call = unpack(told.objects, device)
        os.close(told.objects)
        run = current()
        assert not isinstance(run, Alone)
        seed_all(run.seed)
        if isinstance(live, Call):
            run_to_end(run, live.file, lambda: live.function(*live.args))
            return
        try:
            with as_config_errors(live):
                train(live, run, device)
        finally:
            run.close()


def train(live: LiveTraining, run: ScriptRun, device: torch.device) -> None:
    """The loop, as anybody would write it for `paceline launch`."""
    warnings.filterwarnings("ignore", "Seems like `optimizer.step")  # a scheduler that was sent does not know better
    model = live.model.to(device).train()
    optimizer = script.wrap(live.optimizer, model, accumulate=live.accumulate)
    run.schedulers.clear()  # `Schedule` keeps the one there is
    scheduler = live.scheduler(optimizer) if callable(live.scheduler) else live.scheduler
    loader = script.loader(live.train, batch_size=live.batch_size // live.accumulate, **live.loading)
    scored = partial(score, live, device, run.seed)
    run.evaluate(AskedScores.of(scored, baseline=partial(baseline, live, device, run.seed), apart=True))
    steps = Steps(live, model, optimizer, device)
    schedule = Schedule(scheduler)
    for epoch in script.epochs(live.epochs):
        schedule.reach(epoch if live.interval == "epoch" else run.position)
        model.train()
        for batch in loader:
            steps.take(batch)
            if live.interval == "step":
                schedule.reach(min(run.position, live.epochs * run.steps_per_epoch))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
