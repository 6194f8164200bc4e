"""The settings of a run as one frozen value: every key has a default, a unit and a reason. Read from YAML, environment
and flags in `paceline.settings.load_settings`; nothing below the command line looks anywhere else."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from paceline.core.extension import Named as Named
from paceline.core.extension import Options as Options
from paceline.core.extension import Section as Section
from paceline.core.extension import named as named
from paceline.core.fault import fault_list, faults_of
from paceline.core.settings.codec import CodecConfig as CodecConfig
from paceline.core.settings.linear import SvmConfig as SvmConfig
from paceline.core.settings.ports import port_range
from paceline.core.settings.slow import expand, slowness
from paceline.core.settings.stopping import DivergenceConfig as DivergenceConfig
from paceline.core.settings.stopping import StoppingConfig as StoppingConfig
from paceline.core.settings.table import TableConfig as TableConfig
from paceline.core.units import seconds as seconds

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""Names of processes and of built-in tasks; valid as hosts and label values on Kubernetes, too."""
RUN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""Names of runs: folders, and label values on Kubernetes, which takes just these (no object there has a run's name)."""


GONE = {
    "loop": "Train with a loop by yourself as a script: paceline.wrap(optimizer, model), and `paceline launch SCRIPT.py` "
    "(docs/start/own-script.md)."
}
"""Settings before 0.1.0, and what does their work now. A run's folder may have them, as null."""


def checked_name(value: Any) -> Any:
    """A run's name that is safe as a folder and a label value."""
    if isinstance(value, str) and not RUN.fullmatch(value):
        raise ValueError(
            f"got {value!r}; a name has 1 to 63 letters, digits and inner '-', '_' and '.', like 'digits-ssp'."
        )
    return value


Name = Annotated[str, BeforeValidator(checked_name)]
Seconds = Annotated[float, BeforeValidator(seconds), Field(ge=0, allow_inf_nan=False)]


def numbers(value: Any) -> Any:
    """'1,1,2' as a list."""
    return value.split(",") if isinstance(value, str) else value


Weights = Annotated[tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...], BeforeValidator(numbers)]


def _is_a_url(value: str | None) -> str | None:
    """Raises ValueError if the value is something else."""
    if value is not None and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/].*", value):
        raise ValueError(f"got {value!r}; expected a URL like s3://bucket/folder. A folder needs no setting.")
    return value


Url = Annotated[str | None, AfterValidator(_is_a_url)]


class DataConfig(Section):
    """Where the examples come from and how the sharder deals them out."""

    path: str = Field(
        "bundled",
        description="File or folder of the data set, or a URL like s3://bucket/key (fsspec); 'bundled': the task "
        "brings it.",
    )
    strategy: Named = Field(
        Options(name="random"),
        description="Who gets which training examples: a name, or a name with options (see docs/choose/sharding.md).",
    )
    engine: Named = Field(
        Options(name="local"),
        description="Where shards are made: local (this machine) or spark (see docs/choose/large-data.md).",
    )
    shards: int | None = Field(None, ge=1, description="Number of shards; default: one for each worker.")
    weights: Weights = Field(
        (), description="Sizes of the shards in proportion, like the workers' speeds: [1, 1, 2]; default: all equal."
    )
    source: Literal["files", "server", "script"] = Field(
        "files",
        description="How examples reach workers: files (a shared volume), server (`sharder serve`), or script (see "
        "docs/start/own-script.md).",
    )
    shards_at: Url = Field(
        None,
        description="Where shards are kept and workers fetch theirs: a URL like s3://bucket/folder (see "
        "docs/run/object-stores.md); default: a folder of the run.",
    )
    access: Literal["shard", "all"] = Field(
        "shard",
        description="shard: a worker trains on its own shards; all: each samples the whole set [Survey], 1/n of it an epoch.",
    )
    leases: bool = Field(
        True,
        description="The others compute what a worker that has left or lags has not done of the epochs; false: static shards "
        "[Sharding], whose rest nobody trains.",
    )
    validation: float = Field(0.15, ge=0, lt=1, description="Share of the training data kept for validation (ratio).")
    test: float = Field(0.15, ge=0, lt=1, description="Share kept for testing where the data has no test set (ratio).")
    fold: tuple[int, int] | None = Field(
        None,
        description="[i, K]: cut the training examples into K parts and test on part i, from 0 (see "
        "docs/run/search.md).",
    )
    table: TableConfig = TableConfig()

    @field_validator("fold")
    @classmethod
    def _is_a_part(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and (value[1] < 2 or not 0 <= value[0] < value[1]):
            raise ValueError(f"got {list(value)}; expected [i, K], 2 or more parts and one from 0, like [0, 5].")
        return value


class PlanConfig(Section):
    """How the model is cut into one slice for each server."""

    slices: Literal["memorywise", "layerwise", "whole"] = Field("memorywise", description="The cutting strategy.")
    alignment: int = Field(16, ge=1, description="Memorywise cuts fall on multiples of this (elements; 16 = 64 bytes).")
    max_slice_bytes: ByteSize | None = Field(
        None, ge=64, description="[SHAT]'s form of memorywise: only larger layers are split, others stay whole (bytes)."
    )


class ClipConfig(Section):
    """A limit for the norm of gradients, over the whole model; both may be set, the smaller wins."""

    of: Literal["push", "mean"] = Field(
        "push",
        description="Whose norm: each worker's gradient (push), or the mean of all in lock-step, on one server (mean).",
    )
    norm: float | None = Field(None, gt=0, allow_inf_nan=False, description="Largest L2 norm of a gradient.")
    quantile: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Limit at this quantile of the worker's last 200 norms (ratio); ours, not a paper's.",
    )


class ScheduleConfig(Section):
    """The learning rate over the run, and how it follows the number of workers."""

    name: Literal["constant", "step", "multistep", "cosine", "polynomial"] = Field(
        "constant", description="Shape over the epochs: optimizer.lr is its highest value, before lr_scale."
    )
    every: float | None = Field(None, gt=0, description="step: epochs between two reductions (epochs).")
    milestones: tuple[float, ...] = Field((), description="multistep: when the rate is reduced (epochs, ascending).")
    gamma: float = Field(0.1, gt=0, le=1, description="step, multistep: what a reduction multiplies by (ratio).")
    power: float = Field(1.0, gt=0, allow_inf_nan=False, description="polynomial: the exponent; 1 is a straight line.")
    end: float = Field(
        0.0, ge=0, lt=1, description="cosine, polynomial: the last rate as a share of the first (ratio)."
    )
    epochs: float | None = Field(
        None, gt=0, description="cosine, polynomial: where the end is reached; default: the run's `epochs` (epochs)."
    )
    warmup_epochs: float = Field(0.0, ge=0, description="Linear warm-up at the start [SHAT: 20, Goyal: 5] (epochs).")
    warmup_start: float | None = Field(
        None,
        ge=0,
        le=1,
        description="First rate of the warm-up, as a share of the last (ratio); default: optimizer.lr where lr_scale "
        "raises it, or 0.",
    )
    lr_scale: Literal["auto", "none", "linear", "sqrt", "inverse", "half", "adascale"] = Field(
        "auto",
        description="auto: translate rate and momentum of one process (see docs/choose/rates.md); others: a factor "
        "for n workers.",
    )


class CheckpointConfig(Section):
    """Snapshots that a restarted server resumes from."""

    every: Seconds | None = Field(
        None,
        description="Time between snapshots, written during training (seconds); default: 1 after a start, then twice "
        "as long as the last one took, from 1 to 30.",
    )
    keep: int = Field(3, ge=1, description="Snapshots kept on each server; older ones are removed.")
    retain: int | None = Field(
        None,
        ge=0,
        description="Memory of each worker for pushes that no snapshot has yet; default: a tenth, at most 1 GiB (bytes).",
    )
    at: Url = Field(
        None,
        description="Where servers send snapshots, too, to start from if their folder is lost: a URL like "
        "s3://bucket/folder (see docs/run/object-stores.md); default: nowhere.",
    )


def _usual_policy(settings: dict[str, Any]) -> Options:
    """Returns the policy of a run that names none: the nearest to auto that its other settings allow."""
    if settings.get("servers") == 0:
        return Options(name="allreduce")
    is_free = settings.get("overlap") or settings.get("updates") == "sparse"
    return Options(name="ssp" if is_free else "auto")


class Config(Section):
    """Everything a run is made of; the same value in `paceline run`, in the ConfigMap and in the run folder."""

    run: Name | None = Field(None, description="Name of the run and of its folder; default: a new one for each run.")
    task: str = Field(
        "digits",
        description="What is trained: a built-in task, the path of a task file, or the script with data.source=script.",
    )
    arguments: tuple[str, ...] = Field((), description="What the script of data.source=script finds in sys.argv.")
    model: str | None = Field(None, description="One of the task's models; default: its first.")
    data: DataConfig = DataConfig()
    workers: int = Field(4, ge=1, le=4096, description="Seats in the worker pool.")
    servers: int = Field(2, ge=0, le=256, description="Servers, each with one slice of the model; 0: workers only.")
    start_when: int | None = Field(None, ge=1, description="Workers that must have joined; default: all of `workers`.")
    start_timeout: Seconds = Field(
        300.0,
        description="Start with those that came this long after the first, end if none; the end waits as long (seconds).",
    )
    updates: Literal["dense", "sparse"] = Field(
        "dense",
        description="dense: workers push and pull all weights; sparse: only those that a batch touches (linear models).",
    )
    overlap: bool = Field(
        False,
        description="Compute the next gradient while a push is on its way; policies that wait for replies refuse it.",
    )
    policy: Options = Field(
        default_factory=_usual_policy,
        description="When workers wait for each other; default: auto, without servers allreduce, with overlap or sparse "
        "updates ssp.",
    )
    optimizer: Options = Options(name="sgd", lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule: ScheduleConfig = ScheduleConfig()
    clip: ClipConfig = ClipConfig()
    push_norm_cap: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Largest L2 norm of what one server gets of a push; it scales a larger one down to that (see "
        "docs/security.md#cap-what-a-worker-pushes).",
    )
    svm: SvmConfig = SvmConfig()
    topology: Named | None = Field(
        None,
        description="Which workers exchange models without servers; default: what the policy is usually run on.",
    )
    plan: PlanConfig = PlanConfig()
    codec: CodecConfig = CodecConfig()
    epochs: int = Field(10, ge=1, description="Length of the run: epochs x training examples.")
    budget: Literal["total", "per_worker"] = Field(
        "total",
        description="total: the epochs are counted over all workers; per_worker: each passes over its own shard.",
    )
    batch_size: int = Field(32, ge=1, description="Examples in a mini-batch; `batch` says whose.")
    batch: Literal["worker", "global", "speed"] = Field(
        "global",
        description="batch_size is shared by all workers (global), shared by their speed (speed), or taken by each "
        "(worker).",
    )
    accumulate: int = Field(
        1, ge=1, description="Parts that a mini-batch is computed in, one after the other, to fit memory."
    )
    precision: Literal["float32", "bf16", "fp16"] = Field(
        "float32", description="Autocast of the worker's computation; weights and gradients stay float32."
    )
    compile: bool = Field(False, description="Whether workers compile the model with torch.compile.")
    evaluate_every: int = Field(
        1,
        ge=0,
        description="Whole epochs between two scores; the last version always has one (0: only for scripts).",
    )
    models_at: Url = Field(
        None,
        description="Where the models are sent, too, in a folder with the run's name: a URL like s3://bucket/folder (see "
        "docs/run/object-stores.md); default: nowhere.",
    )
    scored_by: Literal["evaluator", "worker"] = Field(
        "evaluator",
        description="evaluator: a separate process scores; worker: worker 0 does, between its script's epochs.",
    )
    stopping: StoppingConfig | None = Field(
        None,
        description="Ends the run early, by its scores (see docs/choose/early-stopping.md); default: it never does.",
    )
    divergence: DivergenceConfig = DivergenceConfig()
    loggers: tuple[Named, ...] = Field(
        (),
        description="Loggers beyond metrics.jsonl: mlflow, wandb, tensorboard, or your file (see "
        "docs/watch/loggers.md).",
    )
    on_lost_worker: Literal["shrink", "wait"] = Field(
        "shrink",
        description="shrink: go on without it after its lease; wait: keep its seat (same bits).",
    )
    heartbeat: Seconds = Field(2.0, gt=0, description="Time between heartbeats of a worker (seconds).")
    lease: Seconds = Field(15.0, gt=0, description="A worker silent for this long is expelled (seconds).")
    stall_timeout: Seconds = Field(600.0, gt=0, description="A worker that beats but makes no step leaves (seconds).")
    deadline: Seconds = Field(
        86400.0, gt=0, description="How long a process repeats a call that no server answers (seconds)."
    )
    score_timeout: Seconds = Field(1800.0, gt=0, description="The final scoring; then the run ends unscored (seconds).")
    transport: Literal["lane", "grpc"] = Field("lane", description="What carries pushes and pulls.")
    ports: str = Field(
        "",
        description="Ports FIRST-LAST of servers (two each), workers and the shard server on each machine, like "
        "7100-7119; default: any.",
    )
    part_bytes: ByteSize = Field(  # with its head below the 4 MiB that stock gRPC peers take
        ByteSize(4032 << 10), ge=1 << 12, le=4032 << 10, description="A message's part of a push or of weights (bytes)."
    )
    push_memory: ByteSize = Field(
        ByteSize(512 << 20),
        description="Memory of each server for pushes on their way in; at least two have a place at a time (bytes).",
    )
    checkpoint: CheckpointConfig = CheckpointConfig()
    slow: dict[str, str] = Field(
        {},
        description="Emulated slow workers: {'2': '10x'}, {'all': '10x@5%'} of steps at random, or a preset: ho, "
        "he0, he1, he2, random.",
    )
    nominal_step: Seconds = Field(0.02, description="A step's length that `slow` multiplies (seconds).")
    faults: tuple[str, ...] = Field(
        (),
        description="What is to go wrong on purpose: 'kill server-0@30s', 'freeze worker-2@10s:20s', 'link "
        "worker-1=10Mbit,50ms,1%' (see docs/failures/resume.md#inflict-faults).",
    )
    restarts: int = Field(
        3,
        ge=0,
        description="Times that `paceline run` starts a dead process again before training has got further.",
    )
    seed: int = Field(
        0,
        ge=0,
        description="Seed of splits, shards, first weights and batches; unset, a script's torch.manual_seed deals its batches.",
    )

    @field_validator("loggers", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return value.split(",") if isinstance(value, str) else value

    @model_validator(mode="before")
    @classmethod
    def _without_gone(cls, values: Any) -> Any:
        gone = GONE.keys() & values.keys() if isinstance(values, Mapping) else ()
        if used := [key for key in gone if values[key] is not None]:
            raise ValueError(f"{used[0]} is no setting any more. {GONE[used[0]]}")
        return {key: value for key, value in values.items() if key not in gone} if gone else values

    @field_validator("ports")
    @classmethod
    def _is_a_range(cls, value: str) -> str:
        port_range(value)
        return value

    @field_validator("slow", mode="before")
    @classmethod
    def _named_cluster(cls, value: Any, found: ValidationInfo) -> Any:
        return expand(value, found.data.get("workers", 1))

    @field_validator("slow")
    @classmethod
    def _can_be_read(cls, value: dict[str, str]) -> dict[str, str]:
        for who, how in value.items():
            slowness(who, how)
        return value

    @field_validator("faults", mode="before")
    @classmethod
    def _one_a_fault(cls, value: Any) -> Any:
        return fault_list(value)

    @field_validator("faults")
    @classmethod
    def _are_faults(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        faults_of(value)
        return value

    @property
    def server_processes(self) -> int:
        """The names of the servers; without servers, the chief alone."""
        return max(1, self.servers)

    @property
    def is_script(self) -> bool:
        """Whether a user's script brings model, data and loop."""
        return self.data.source == "script"

    @property
    def worker_batch(self) -> int:
        """Examples in a worker's mini-batch: batch_size, or its share max(1, floor(B / n)) of a global one [Sharding].
        n is the number of seats, so that the batches of an epoch stay the same when workers come and go."""
        return self.batch_size if self.batch == "worker" else max(1, self.batch_size // self.workers)

    @property
    def mean_from(self) -> float | None:
        """The first epoch of the mean of a linear model's versions; None if there is no mean."""
        return self.svm.mean_from(self.epochs)
