"""The settings of a run as one frozen value: every key has a default, a unit and a reason. Read from YAML, environment
and flags in `paceline.settings`; nothing below the command line looks anywhere else."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, model_validator

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def checked_name(value: Any) -> Any:
    """A name that is safe as a host, a folder and a label value."""
    if isinstance(value, str) and not NAME.fullmatch(value):
        raise ValueError(
            f"got {value!r}; a name has 1 to 63 small letters, digits and inner hyphens, like 'digits-ssp'."
        )
    return value


def seconds(value: Any) -> Any:
    """'500ms', '5s', '10m' or '1h' as seconds; plain numbers are seconds already."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(ms|s|m|h)?\s*", value)
    if not match:
        raise ValueError(f"got {value!r}; a duration looks like 500ms, 5s, 10m or 1h.")
    return float(match[1]) * _UNITS[match[2] or "s"]


Name = Annotated[str, BeforeValidator(checked_name)]
Seconds = Annotated[float, BeforeValidator(seconds), Field(ge=0, allow_inf_nan=False)]


class Section(BaseModel):
    """One part of the config: frozen, and a key it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Options(BaseModel):
    """A named extension and its own options, e.g. {name: ssp, bound: 3}; the extension itself checks them."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class DataConfig(Section):
    """Where the examples come from and how the sharder deals them out."""

    path: str = Field("bundled", description="File or folder of the data set; 'bundled' where the task brings its own.")
    strategy: str = Field("random", description="How training examples are dealt to shards.")
    shards: int | None = Field(None, ge=1, description="Number of shards; default: one for each worker.")
    validation: float = Field(0.15, ge=0, lt=1, description="Share of the training data kept for validation (ratio).")
    test: float = Field(0.15, ge=0, lt=1, description="Share kept for testing where the data has no test set (ratio).")


class PlanConfig(Section):
    """How the model is cut into one slice for each server."""

    slices: Literal["memorywise", "layerwise", "whole"] = Field("memorywise", description="The cutting strategy.")
    alignment: int = Field(16, ge=1, description="Memorywise cuts fall on multiples of this (elements; 16 = 64 bytes).")
    max_slice_bytes: ByteSize | None = Field(
        None, ge=64, description="[SHAT]'s form of memorywise: only larger layers are split, others stay whole (bytes)."
    )


class CodecConfig(Section):
    """What travels instead of float32; lossy but for 'none'."""

    push: str = Field("none", description="Codec of updates, worker to server.")
    pull: str = Field("none", description="Codec of weights, server to worker.")


class CheckpointConfig(Section):
    """Snapshots that a restarted server resumes from."""

    every: Seconds = Field(5.0, description="Time between snapshots, written beside training (seconds).")
    keep: int = Field(3, ge=1, description="Snapshots kept on each server; older ones are removed.")


class Config(Section):
    """Everything a run is made of; the same value in `paceline run`, in the ConfigMap and in the run folder."""

    run: Name | None = Field(None, description="Name of the run and of its folder; default: a new one for each run.")
    task: str = Field("digits", description="What is trained: a built-in task, or the path of a task file.")
    data: DataConfig = DataConfig()
    workers: int = Field(4, ge=1, le=1024, description="Seats in the worker pool.")
    servers: int = Field(2, ge=1, le=256, description="Servers, each with one slice of the model.")
    start_when: int | None = Field(None, ge=1, description="Workers that must have joined; default: all of `workers`.")
    start_timeout: Seconds = Field(300.0, description="Start with those who came after this time (seconds).")
    policy: Options = Options(name="ssp")
    optimizer: Options = Options(name="sgd", lr=0.1, momentum=0.9, weight_decay=1e-4)
    plan: PlanConfig = PlanConfig()
    codec: CodecConfig = CodecConfig()
    epochs: int = Field(10, ge=1, description="Length of the run: epochs x training examples.")
    budget: Literal["total", "per_worker"] = Field(
        "total",
        description="total: the epochs are counted over all workers; per_worker: each passes over its own shard.",
    )
    batch_size: int = Field(32, ge=1, description="Examples in a mini-batch of one worker.")
    on_lost_worker: Literal["shrink", "wait"] = Field(
        "shrink",
        description="shrink: go on without it after its lease; wait: hold its place until it is back (same bits).",
    )
    heartbeat: Seconds = Field(2.0, gt=0, description="Time between heartbeats of a worker (seconds).")
    lease: Seconds = Field(15.0, gt=0, description="A worker silent for this long is expelled (seconds).")
    stall_timeout: Seconds = Field(600.0, gt=0, description="A worker that beats but makes no step leaves (seconds).")
    deadline: Seconds = Field(86400.0, gt=0, description="The whole run; calls are retried until then (seconds).")
    score_timeout: Seconds = Field(300.0, gt=0, description="The final scoring; then the run ends unscored (seconds).")
    transport: Literal["grpc"] = Field("grpc", description="The data plane.")
    part_bytes: ByteSize = Field(
        ByteSize(1 << 20), ge=1 << 12, le=4 << 20, description="Size of one message's part of a slice (bytes)."
    )
    checkpoint: CheckpointConfig = CheckpointConfig()
    slow: dict[str, str] = Field(
        {}, description="Emulated slow workers: {'2': '10x'} always, {'all': '10x@5%'} at random steps."
    )
    nominal_step: Seconds = Field(0.02, description="A step's length that `slow` multiplies (seconds).")
    restarts: int = Field(3, ge=0, description="Times that `paceline run` starts a dead process again.")
    seed: int = Field(0, ge=0, description="Seed of splits, shards, first weights and batches.")

    @model_validator(mode="after")
    def _fits_together(self) -> "Config":
        if self.start_when is not None and self.start_when > self.workers:
            raise ValueError(f"start_when is {self.start_when}, but there are only {self.workers} workers.")
        if self.lease < 2 * self.heartbeat:
            raise ValueError(f"lease ({self.lease:g} s) must be at least twice the heartbeat ({self.heartbeat:g} s).")
        if self.data.validation + self.data.test >= 1:
            raise ValueError("data.validation and data.test together leave no training data; make them smaller.")
        if self.data.shards is not None and self.data.shards < self.workers:
            raise ValueError(
                f"{self.workers} workers but only {self.data.shards} shards: every worker needs one. "
                f"Set data.shards to {self.workers} or more, or workers to {self.data.shards}."
            )
        if self.plan.max_slice_bytes is not None and self.plan.slices != "memorywise":
            raise ValueError(f"plan.max_slice_bytes belongs to memorywise slices, not to {self.plan.slices} ones.")
        for who, how in self.slow.items():
            slowness(who, how)
        return self


def slowness(who: str, how: str) -> tuple[float, float]:
    """(factor, probability of a step being slow) of one `slow` entry; ValueError where it can't be read."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)x(?:@([0-9]*\.?[0-9]+)%)?", how)
    if not (who == "all" or who.isdigit()) or not match or float(match[1]) < 1 or float(match[2] or 0) > 100:
        raise ValueError(
            f"slow: can't read {who!r}: {how!r}; write a worker's number or 'all', and 10x or 10x@5% (factor 1 or more)."
        )
    return float(match[1]), float(match[2] or 100) / 100
