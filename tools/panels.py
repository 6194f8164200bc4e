"""What the dashboard shows: its panels, row by row, each with the question that it answers and the queries that do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

PEERS = "Peers"
"""The row that runs without servers fill, and no others."""
_RUN = 'run="$run",namespace=~"$namespace"'
_OVER = "[$__rate_interval]"
_SERVERS = '{RUN,process=~"server.*"}OVER'
_COST = (
    'sum by (process) (rate(paceline_worker_step_seconds_sum{RUN,phase=~"data|compute"}OVER))'
    " / sum by (process) (rate(paceline_worker_steps_totalRATE))"
)
_PODS = (
    "* on (namespace, pod) group_left (process) group by (namespace, pod, process) (process_start_time_seconds{RUN})"
)
"""Names the processes of this run in what other exporters say of pods."""


class Query(NamedTuple):
    """PromQL, where RUN stands for this run's labels and RATE for them and the time that a rate is taken over."""

    text: str
    legend: str = ""

    @property
    def promql(self) -> str:
        """As Grafana gets it."""
        found = self.text.replace("RATE", f"{{{_RUN}}}{_OVER}").replace("OVER", _OVER)
        return found.replace("{RUN", "{" + _RUN)

    def query(self, run: str, window: str, namespace: str = ".*") -> str:
        """As Grafana sends it, with its variables' values."""
        found = self.promql.replace("$__rate_interval", window)
        return found.replace("$run", run).replace("$namespace", namespace)

    def named(self, labels: Mapping[str, str]) -> str:
        """The legend of a series with these labels."""
        found = self.legend
        for name, value in labels.items():
            found = found.replace(f"{{{{{name}}}}}", value)
        return found


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture, and the question that it answers."""

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    stacked: bool = False
    says: str = "value_and_name"
    """Of a stat: value_and_name, value or name."""
    is_signed: bool = False
    """Whether values may be below 0."""
    other_exporter: bool = False
    """Fed by dcgm-exporter, kube-state-metrics or cAdvisor, not by Paceline."""

    @property
    def is_number(self) -> bool:
        """Whether it shows one number or word instead of a graph."""
        return self.kind in ("stat", "gauge")


def _quantiles(metric: str, labels: str = "", by: str = "le") -> tuple[Query, ...]:
    return tuple(
        Query(f"histogram_quantile({share}, sum by ({by}) (rate({metric}_bucket{{RUN{labels}}}OVER)))", name)
        for share, name in ((0.5, "median"), (0.95, "95 %"), (0.99, "99 %"))
    )


def _one(text: str, legend: str = "{{process}}") -> tuple[Query, ...]:
    return (Query(text, legend),)


ROWS: dict[str, tuple[Panel, ...]] = {
    "Overview": (
        Panel(
            "Training", "What is trained, and under which policy.", "none",
            _one("max by (task, policy) (paceline_run_info{RUN})", "{{task}}, {{policy}}"), "stat", says="name",
        ),
        Panel(
            "Phase", "Where the run is: waiting, training, stopping, scoring or finished. `paceline status` says what a "
            "waiting run waits for.", "none",
            _one('max by (phase) (paceline_server_phase{RUN,process="server-0"}) == 1', "{{phase}}"), "stat", says="name",
        ),
        Panel(
            "Trained", "Share of the run's epochs that is trained.", "percentunit",
            _one("max (paceline_server_budget_ratio{RUN})", "trained"), "gauge",
        ),
        Panel(
            "Time left", "Until the epochs are trained, at the speed of the last 5 minutes.", "s",
            _one("(1 - max (paceline_server_budget_ratio{RUN})) / (max (deriv(paceline_server_budget_ratio{RUN}[5m])) > 0)",
                 "time left"), "stat", says="value",
        ),
        Panel(
            "Members", "Workers that count now. Fewer than configured: some are still starting, or were lost.", "none",
            _one("max (paceline_server_members{RUN})", "members"), "stat", says="value",
        ),
        Panel(
            "Test accuracy", "Of the version that was scored last.", "percentunit",
            _one('max (paceline_eval_accuracy_ratio{RUN,split="test"})', "test"), "stat", says="value",
        ),
        Panel(
            "Examples per second", "How fast is it, and what does each worker add?", "suffix: /s",
            _one("sum by (process) (rate(paceline_worker_examples_totalRATE))"), stacked=True,
        ),
        Panel(
            "Updates per second", "Pushes counted on each server's slice; every push reaches all servers.", "suffix: /s",
            _one("sum by (process) (rate(paceline_server_updates_totalRATE))"),
        ),
        Panel(
            "Loss", "Does it learn? The mean over the workers' last mini-batches, and of each part of the data at its last "
            "scoring.", "none",
            (Query("avg (paceline_worker_loss{RUN} < Inf)", "mini-batches"),
             Query("max by (split) (paceline_eval_loss{RUN})", "{{split}}")), is_signed=True,
        ),
        Panel(
            "Accuracy", "How good is it? Training accuracy far above test accuracy: it learns by heart.", "percentunit",
            _one("max by (split) (paceline_eval_accuracy_ratio{RUN})", "{{split}}"),
        ),
        Panel(
            "Metrics", "What the task measures, its BEST too: accuracy, or what its metrics() give, like f1 or r2. The model "
            "that is kept as the best one has the best value on validation data.", "none",
            _one("max by (split, metric) (paceline_eval_metric{RUN})", "{{metric}}, {{split}}"), is_signed=True,
        ),
    ),
    "Consistency": (
        Panel(
            "Staleness of pushes", "Folds by others between a worker's pull and its push. BSP: always 0. The more, the less "
            "each gradient is worth.", "none",
            _one("sum by (le) (increase(paceline_server_staleness_bucketRATE))", "{{le}}"), "heatmap",
        ),
        Panel(
            "Staleness", "Does somebody train on old weights? A high 99 % with a low half: one straggler.", "none",
            _quantiles("paceline_server_staleness"),
        ),
        Panel(
            "Alpha", "Weight of the global model when a worker mixes it with its own; 1 is a copy. Low: its own training "
            "counts more.", "percentunit",
            _one("max by (process) (paceline_worker_alpha_ratio{RUN})"),
        ),
        Panel(
            "Lead", "Clocks from the slowest member to the fastest, as each server sees it. At the policy's bound (ssp) the "
            "fast ones wait.", "none",
            _one("max by (process) (paceline_server_lead{RUN})"),
        ),
        Panel(
            "Wait for others", "How long the policy lets a reply wait. High: the fast wait for the slow; loosen the policy "
            "(paceline set), or see Balance for who is slow.", "s",
            _quantiles("paceline_server_wait_seconds"),
        ),
        Panel(
            "Rejected pushes", "Work that was done for nothing, by reason. old_policy: from before a change of policy; "
            "too_stale, old_version: too late for the policy; BadPush: see the server's log.", "suffix: /s",
            _one("sum by (reason) (rate(paceline_server_pushes_rejected_totalRATE))", "{{reason}}"),
        ),
    ),
    "Latency": (
        Panel(
            "Step time by phase", "Why is a step slow? data: reading; compute: the gradient; exchange: push and pull; wait: "
            "for others. The mean over all workers.", "s",
            _one("sum by (phase) (rate(paceline_worker_step_seconds_sumRATE))"
                 " / on () group_left sum (rate(paceline_worker_steps_totalRATE))", "{{phase}}"), stacked=True,
        ),
        Panel(
            "Push and pull", "One exchange of a worker with all servers, without the wait for others: network and servers.",
            "s", _quantiles("paceline_worker_step_seconds", ',phase="exchange"'),
        ),
        Panel(
            "Calls", "95 % of the calls take less than this on the server, waiting included.", "s",
            _one("histogram_quantile(0.95, sum by (le, method) (rate(paceline_server_handle_seconds_bucketRATE)))",
                 "{{method}}"),
        ),
        Panel(
            "Queue", "Pushes that wait for a buffer. Above 0 for long: the server is too slow, or its memory too small for "
            "this many workers.", "none",
            _one("max by (process) (paceline_server_queue_depth{RUN})"),
        ),
        Panel(
            "Slice in use", "Share of the time that a server folds pushes, one after the other. Near 100 %: use more "
            "servers.", "percentunit",
            _one("sum by (process) (rate(paceline_server_fold_seconds_sumRATE))"),
        ),
    ),
    "Traffic": (
        Panel(
            "Received", "Tensor bytes that come to each server. Near what the link can do: use a codec (codec.push).", "Bps",
            _one("sum by (process) (rate(paceline_server_received_bytes_totalRATE))"),
        ),
        Panel(
            "Sent", "Tensor bytes that each server sends. Near what the link can do: use a codec (codec.pull).", "Bps",
            _one("sum by (process) (rate(paceline_server_sent_bytes_totalRATE))"),
        ),
        Panel(
            "Bytes for an example", "What one example costs on the network: falls with larger mini-batches, codecs and "
            "local steps.", "bytes",
            _one("(sum (rate(paceline_server_received_bytes_totalRATE)) + sum (rate(paceline_server_sent_bytes_totalRATE)))"
                 " / sum (rate(paceline_worker_examples_totalRATE))", "bytes"),
        ),
    ),
    "Data plane": (
        Panel(
            "Transport", "What carries pushes and pulls: grpc, or the lane (`transport: lane`). Panels with \"lane\" in their "
            "title are empty on grpc.", "none",
            _one("max by (transport) (paceline_run_info{RUN})", "{{transport}}"), "stat", says="name",
        ),
        Panel(
            "Bytes on the lane", "All data of calls, as the servers count it.", "Bps",
            (Query(f"sum (rate(paceline_lane_received_bytes_total{_SERVERS}))", "to the servers"),
             Query(f"sum (rate(paceline_lane_sent_bytes_total{_SERVERS}))", "from the servers")),
        ),
        Panel(
            "Parts on the lane", "Messages with a piece of a push or of the weights. Many with few bytes: each costs as much "
            "as a large one; set part_bytes higher.", "suffix: /s",
            (Query(f"sum (rate(paceline_lane_received_parts_total{_SERVERS}))", "to the servers"),
             Query(f"sum (rate(paceline_lane_sent_parts_total{_SERVERS}))", "from the servers")),
        ),
        Panel(
            "Streams and connections on the lane", "Calls under way, and connections. A server has one connection for each "
            "worker; more: somebody else has found its port.", "none",
            (Query('sum by (process) (paceline_lane_streams{RUN,process=~"server.*"})', "{{process}} streams"),
             Query('sum by (process) (paceline_lane_connections{RUN,process=~"server.*"})', "{{process}} connections")),
        ),
        Panel(
            "Stalls on the lane", "Share of the time that a connection's sender waits for room in the far side's window. High: "
            "the far side is slow to take data (see CPU and Queue there), not the network.", "percentunit",
            _one("sum by (process) (rate(paceline_lane_stalled_seconds_totalRATE))"
                 " / clamp_min(max by (process) (paceline_lane_connections{RUN}), 1)"),
        ),
        Panel(
            "Resets on the lane", "Calls that either side ended early, and connections that either side cut off, at the "
            "servers. CANCEL: a deadline, or a process that left; REFUSED_STREAM: too many calls at once; others: a peer that "
            "does not behave (docs/understand/lane.md).", "suffix: /s",
            (Query(f"sum by (code) (rate(paceline_lane_resets_total{_SERVERS}))", "reset: {{code}}"),
             Query(f"sum by (code) (rate(paceline_lane_cut_offs_total{_SERVERS}))", "cut off: {{code}}")),
        ),
        Panel(
            "Minor faults per GB", "Page faults for each GB of tensors that goes in or out. The first seconds show the start, "
            "and workers also compute. Thousands at a server: its buffers are given back and fetched again.",
            "suffix: /GB",
            (Query(f"1e9 * sum by (process) (rate(paceline_minor_faults_total{_SERVERS})) / "
                   "(sum by (process) (rate(paceline_server_received_bytes_totalRATE))"
                   " + sum by (process) (rate(paceline_server_sent_bytes_totalRATE)) > 0)", "{{process}}"),
             Query('1e9 * sum (rate(paceline_minor_faults_total{RUN,process=~"worker.*"}OVER)) / '
                   "(sum (rate(paceline_server_received_bytes_totalRATE))"
                   " + sum (rate(paceline_server_sent_bytes_totalRATE)) > 0)", "workers")),
        ),
    ),
    PEERS: (
        Panel(
            "Members in view", "Members that each worker knows of. Fewer than workers: some are still starting, or were lost "
            "(their lease has lapsed). One line apart from the others: that worker does not hear from the chief.", "none",
            _one("max by (process) (paceline_worker_members{RUN})"),
        ),
        Panel(
            "Waiting for other workers", "Share of the time that a worker's step waits for what others send, or to be taken by "
            "them. High at all but one: that one is slow (see Balance); high at all: the links, or a model too small for its "
            "messages.", "percentunit",
            _one('sum by (process) (rate(paceline_worker_step_seconds_sum{RUN,phase="wait"}OVER))'),
        ),
        Panel(
            "Messages that wait", "To be taken by other workers. Beyond 8 for one of them the step waits, too: it is slow, or "
            "gone and still a member.", "none",
            _one("max by (process) (paceline_worker_queue_depth{RUN})"),
        ),
        Panel(
            "Sent to workers", "Bytes of models or gradients that others have taken. Near what the link can do: use a codec "
            "(codec.push), or a policy that sends less.", "Bps",
            _one("sum by (process) (rate(paceline_worker_peer_sent_bytes_totalRATE))"),
        ),
        Panel(
            "Received from workers", "The same, as it comes in. One line above the others: the topology makes it a hub.", "Bps",
            _one("sum by (process) (rate(paceline_worker_peer_received_bytes_totalRATE))"),
        ),
        Panel(
            "Failed lines", "Messages that had to be sent again. A few when members come and go; otherwise the network, or "
            "a worker that hangs.", "suffix: /s",
            _one("sum by (process) (rate(paceline_worker_peer_retries_totalRATE))"),
        ),
    ),
    "Balance": (
        Panel(
            "Straggler ratio", "Who is slow? A worker's time to compute a step over that of the fastest one, which has 1.",
            "suffix: x", _one(f"({_COST}) / on () group_left min ({_COST})"),
        ),
        Panel(
            "Slices", "Weights and optimizer slots on each server. Unequal: one tensor is larger than a fair share "
            "(plan.slices: memorywise cuts through it).", "bytes",
            _one("max by (process) (paceline_server_slice_bytes{RUN} + paceline_server_optimizer_bytes{RUN})"), "bargauge",
        ),
        Panel(
            "CPU", "Cores that each process uses. At its limit: give it more, or see GPU.", "suffix: cores",
            _one("sum by (process) (rate(process_cpu_seconds_totalRATE))"),
        ),
    ),
    "Health": (
        Panel(
            "Warnings", "1 for what goes wrong just now although the run goes on, like a loss above its start. `paceline "
            "status` says what was seen and what to try.", "none",
            _one("max by (kind) (paceline_server_warnings{RUN})", "{{kind}}"),
        ),
        Panel(
            "Last push", "Time since a worker's last push. One that grows: the worker hangs, or is gone.", "s",
            _one("clamp_min(time() - max by (worker) (paceline_server_member_seen_timestamp_seconds{RUN}), 0)", "{{worker}}"),
        ),
        Panel(
            "Age of the checkpoint", "What a server's death costs now. Should go up and down with checkpoint.every.", "s",
            _one("clamp_min(time() - max by (process) (paceline_server_checkpoint_timestamp_seconds{RUN}), 0)"),
        ),
        Panel(
            "Restarts and failed checkpoints", "Servers that came back from a checkpoint (all at once: they went back "
            "together), damaged ones that they passed over, and checkpoints that could not be written: see that server's log "
            "and its disk.", "none",
            (Query("sum by (process) (paceline_server_recoveries_total{RUN})", "{{process}} came back"),
             Query("sum by (process) (paceline_server_damaged_snapshots_total{RUN})", "{{process}} passed over"),
             Query("sum by (process) (paceline_server_checkpoint_failures_total{RUN})", "{{process}} failed to write")),
        ),
        Panel(
            "Made up for", "What workers did again because a server had lost it: pushes that they still had, and steps that "
            "they computed again. It should stop growing soon after a server is back.", "none",
            (Query("sum by (process) (paceline_worker_replayed_pushes_total{RUN})", "{{process}} sent again"),
             Query("sum by (process) (paceline_worker_rerun_steps_total{RUN})", "{{process}} computed again")),
        ),
        Panel(
            "Calls by result", "OK is good. UNAVAILABLE: ask again later, as after a restart; others are errors, named in "
            "the logs.", "suffix: /s",
            _one("sum by (code) (rate(paceline_server_requests_totalRATE))", "{{code}}"),
        ),
        Panel(
            "Retries", "Exchanges that a worker had to repeat. Many at one worker: its network; at all: a server.",
            "suffix: /s", _one("sum by (process) (rate(paceline_worker_retries_totalRATE))"),
        ),
        Panel(
            "Memory against the limit", "At 100 % the kernel kills the process: raise its limit (paceline plan names one).",
            "percentunit",
            _one("max by (process) (process_resident_memory_bytes{RUN} / paceline_memory_limit_bytes{RUN})"),
        ),
    ),
    "GPU and pods": (
        Panel(
            "GPU in use", "Is the GPU busy? Low: see Step time by phase. Needs dcgm-exporter.", "percent",
            _one(f"max by (process, gpu) (DCGM_FI_DEV_GPU_UTIL {_PODS})", "{{process}}, GPU {{gpu}}"), other_exporter=True,
        ),
        Panel(
            "GPU memory", "Used share; near 100 %: lower batch_size. Needs dcgm-exporter.", "percentunit",
            _one(f"max by (process, gpu) (DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE) {_PODS})",
                 "{{process}}, GPU {{gpu}}"), other_exporter=True,
        ),
        Panel(
            "Throttled", "Share of the time slices in which the CPU limit stopped the process: raise limits.cpu. Needs "
            "cAdvisor (the kubelet's).", "percentunit",
            _one('max by (process) (rate(container_cpu_cfs_throttled_periods_total{container!=""}OVER)'
                 f' / rate(container_cpu_cfs_periods_total{{container!=""}}OVER) {_PODS})'), other_exporter=True,
        ),
        Panel(
            "Restarts of pods", "In-place restarts, and why the last one was: OOMKilled needs a higher memory limit. Needs "
            "kube-state-metrics.", "none",
            (Query(f"max by (process) (kube_pod_container_status_restarts_total {_PODS})", "{{process}}"),
             Query(f"max by (process, reason) (kube_pod_container_status_last_terminated_reason {_PODS})",
                   "{{process}}: {{reason}}")), other_exporter=True,
        ),
    ),
}  # fmt: skip
