"""`paceline.log`: what a script says of its training, for the run's status, metrics and loggers."""

from paceline.worker.training.logged_values import LOGGED


def log(**values: object) -> None:
    """Tells the run what this worker's training measures: log(loss=loss, grad_norm=norm). Each value is a number, or a tensor
    or array with one element; a tensor on a GPU is read later, when the run asks for it, so that the GPU is not waited for.

    The newest value of each name goes with this worker's next heartbeat to `paceline status`, metrics.jsonl, Prometheus and
    the run's loggers; `loss` is its training loss there. Outside of a run it does nothing. A run takes 64 names of a worker.
    ConfigError: a name or a value that can't be shown."""
    LOGGED.note(values)
