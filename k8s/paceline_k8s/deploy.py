"""Brings a run up, changes it, and takes it down."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import yaml

from paceline.core.errors import ConfigError, PacelineError, ServersGone, UsageError
from paceline.rpc.agreed_settings import agreed_settings, changed_settings
from paceline.v1.run_service_pb2 import StatusReply
from paceline_k8s.cluster_status import State, look
from paceline_k8s.findings import Finding, finding_lines
from paceline_k8s.kubectl import COMPONENT, DATA, PARTS, RUN, Forbidden, Kubectl, settings_of
from paceline_k8s.one_node import one_node_claims
from paceline_k8s.overlay import AS_IT_IS, Changes, Overlay, config_of, read_overlay, settings_files
from paceline_k8s.queue import check_queue, drop_finished
from paceline_k8s.run_secrets import delete_secrets, make_secrets
from paceline_k8s.script import is_script, script_of
from paceline_k8s.wanted import SAYS, STATE, WORKER

Say = Callable[[str], None]
EVERY = 10.0
"""Longest time without a word (seconds)."""
PAUSE = 2.0
STARTING = 600.0
"""Longest time until all parts of a run are up (seconds)."""
DELETION = 180.0
"""Longest wait for something to be gone (seconds)."""
IN_QUEUE = 15.0
"""Time in which a queue with room for a run lets it begin (seconds)."""
KINDS = (
    "statefulsets",
    "deployments",
    "services",
    "configmaps",
    "poddisruptionbudgets",
    "networkpolicies",
    "serviceaccounts",
    "roles",
    "rolebindings",
    "pods",
)
"""All that an overlay makes, but volumes and the token."""
OPERATOR = ("servicemonitors", "podmonitors", "prometheusrules")
"""What the component monitoring makes."""


class Trouble(PacelineError):
    """The run does not come up; the cause is in the text."""

    def __init__(self, text: str, exit_code: int = PacelineError.exit_code) -> None:
        super().__init__(text)
        self.exit_code = exit_code

    @classmethod
    def of(cls, found: list[Finding], worst: Finding | None = None) -> "Trouble":
        """With the exit code of the worst, or the first one."""
        return cls("\n".join(finding_lines(found)), (worst or found[0]).exit_code)


class Patience:
    """Ends a wait once something that waiting does not fix has lasted; Kubernetes tries again by itself meanwhile."""

    def __init__(self, counts: Callable[[Finding], bool] = lambda one: True) -> None:
        """`counts`: which troubles do."""
        self._counts = counts
        self._since: dict[tuple[str, str], float] = {}

    def check(self, state: State, now: float) -> None:
        """Trouble once something has lasted as long as it may; it tells of everything that waiting does not fix, since the
        cause of what has lasted may be younger, or be none that counts, like a worker's pod."""
        fatal = {(one.part, one.todo): one for one in state.troubles if one.fatal}
        counts = {cause: one for cause, one in fatal.items() if self._counts(one)}
        self._since = {cause: self._since.get(cause, now) for cause in counts}
        lasting = [one for cause, one in counts.items() if now - self._since[cause] >= one.lasting]
        if lasting:
            raise Trouble.of(list(fatal.values()), lasting[0])


class Lasting:
    """Whether something has been so for some time."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since: float | None = None

    def has(self, is_so: bool) -> bool:
        """`is_so`: whether it is now; whether it has been for as long."""
        now = self._clock()
        self._since = None if not is_so else now if self._since is None else self._since
        return self._since is not None and now - self._since >= self._seconds


def deploy(kubectl: Kubectl, name: str, say: Say, changes: Changes = AS_IT_IS, seconds: float = STARTING) -> Overlay:
    """Applies the overlay and waits until all its parts run, or wait in a queue; a run that exists already goes on, with
    changed settings where they may change. The run's name is that of `kubectl`, otherwise the overlay's. ConfigError and
    Trouble name the cause; `seconds`: longest wait."""
    overlay = read_overlay(kubectl, name, changes)
    kubectl = kubectl.of_run(overlay.run)
    make_namespace(kubectl, say)
    _check_same_run(kubectl, overlay)
    _check_same_settings(kubectl, overlay)
    check_queue(kubectl, overlay.documents, overlay.pods)
    _warn_of_claims(kubectl, overlay, say)
    make_secrets(kubectl, overlay, say)
    _keep_sizes(kubectl, overlay)
    _may_wake(kubectl, overlay)
    documents = _permitted(kubectl, overlay, say)
    apply_all(kubectl, documents)
    _begin_again(kubectl)
    servers = f"{overlay.config.servers} servers" if overlay.config.servers else "no servers but the chief"
    say(f"run {overlay.run} is in namespace {kubectl.namespace}: {overlay.config.workers} workers, {servers}")
    if overlay.config.faults:
        say(f"faults: {'; '.join(overlay.config.faults)}; each pod's log says when it inflicts its own")
    in_queue = Lasting(IN_QUEUE)
    wait_until(lambda state: state.is_up or in_queue.has(bool(state.queue)), kubectl, say, seconds)
    return overlay


def _permitted(kubectl: Kubectl, overlay: Overlay, say: Say) -> list[dict[str, Any]]:
    """What this user may apply: without the controller and its rights where nobody has given the right to give them."""
    if kubectl.may("create", "roles") and kubectl.may("create", "rolebindings"):
        return overlay.documents
    if not has_controller(kubectl):
        say(
            "you may not create Roles, so this run has no controller: make deploy, run and scale set the numbers of its "
            "processes while they go on, and `make run` scales it to zero at the end"
        )
    return [one for one in overlay.documents if not is_of_controller(one)]


def is_of_controller(document: dict[str, Any]) -> bool:
    """Whether it is the run's controller, or its account and rights."""
    kinds = ("Deployment", "ServiceAccount", "Role", "RoleBinding")
    return document["kind"] in kinds and document["metadata"].get("labels", {}).get(COMPONENT) == "controller"


def has_controller(kubectl: Kubectl) -> bool:
    """Whether a controller sets the numbers of the run's processes."""
    return kubectl.find(f"deployment/{kubectl.part('controller')}") is not None


def control(kubectl: Kubectl, state: State, status: StatusReply | None = None) -> None:
    """Does once, by the user's rights, what the run's controller does; nothing where it has one."""
    if state.wanted is None or has_controller(kubectl):
        return
    found = state.wanted if status is None else look(kubectl, status).wanted or state.wanted
    change = json.dumps({"data": {STATE: found.kept.text(), SAYS: found.says}})
    kubectl.run("patch", kubectl.state, "--type=merge", f"--patch={change}")
    for name, count in found.counts.items():
        if state.parts[name]["spec"].get("replicas", 1) != count:
            kubectl.run("scale", f"statefulset/{kubectl.part(name)}", f"--replicas={count}")


def _begin_again(kubectl: Kubectl) -> None:
    """Gives parts that have failed another try, and deletes pods that can't start: what kept them may be corrected now, and
    Kubernetes would try these again only minutes later."""
    state = look(kubectl)
    for name in state.wanted.kept.failed if state.wanted else ():
        kubectl.run("rollout", "restart", f"statefulset/{kubectl.part(name)}")
    for part in sorted({one.part for one in state.troubles if one.fatal and one.part.startswith("pod/")}):
        kubectl.run("delete", part, "--ignore-not-found", "--wait=false")


def apply_all(kubectl: Kubectl, documents: list[dict[str, Any]]) -> None:
    """Applies all of them. A script is applied separately: what is applied in the usual way is noted in an annotation, which
    takes 256 KiB."""
    scripts = [one for one in documents if is_script(one)]
    for one in scripts:
        kubectl.run("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=yaml.safe_dump(one))
    rest = [one for one in documents if one not in scripts]
    kubectl.run("apply", "--filename=-", stdin=yaml.safe_dump_all(rest, sort_keys=False))


def wait_until(
    is_there: Callable[[State], bool],
    kubectl: Kubectl,
    say: Say,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    counts: Callable[[Finding], bool] = lambda one: True,
) -> None:
    """Until all is as it should be; says where it is whenever that changes, and every 10 s. Trouble where it will not be; the
    time that the run waits in a queue, or makes its shards, does not count. `counts`: which troubles end the wait."""
    start = said = last = clock()
    waited = 0.0
    line, patience = "", Patience(counts)
    while True:
        state, now = look(kubectl), clock()
        control(kubectl, state)
        if state.line() != line or now - said >= EVERY:
            line, said = state.line(), now
            say(f"{now - start:4.0f} s  {line}")
        if is_there(state):
            return
        patience.check(state, now)
        waited, last = waited + (now - last if state.queue or state.makes_shards else 0.0), now
        if now - start - waited > seconds:
            raise Trouble.of(state.troubles or [_slow(kubectl, state, seconds)])
        time.sleep(PAUSE)


def teardown(kubectl: Kubectl, say: Say) -> None:
    """Deletes all parts of the run but its volumes; those of Prometheus' operator too, where the cluster has it."""
    if not kubectl.run_name:
        say(f"there is no run in namespace {kubectl.namespace}")
        return
    kinds = [kind for kind in KINDS if kubectl.may("delete", kind)]
    if not kinds:
        raise Forbidden(
            f"You may delete nothing in namespace {kubectl.namespace}. Which rights a run needs: "
            "docs/run/kubernetes-security.md."
        )
    _delete(kubectl, say, ",".join(kinds), f"--selector={kubectl.selector}")
    if closed := [kind for kind in KINDS if kind not in kinds]:
        say(
            f"you may not delete {', '.join(closed)}; if the run has any, ask who may: "
            f"kubectl delete -n {kubectl.namespace} {','.join(closed)} -l {kubectl.selector}"
        )
    for kind in OPERATOR:
        with suppress(ConfigError):  # the cluster does not know it
            kubectl.run("delete", kind, f"--selector={kubectl.selector}")
    claims = [claim["metadata"]["name"] for claim in kubectl.items("persistentvolumeclaims")]
    say(
        f"all parts of run {kubectl.run_name} are gone"
        + (
            f"; volumes stay: {', '.join(sorted(claims))} (make purge RUN={kubectl.run_name} deletes them)"
            if claims
            else ""
        )
    )


def purge(kubectl: Kubectl, say: Say) -> None:
    """Deletes the run's volumes and token, naming each. UsageError while its parts exist."""
    if not kubectl.run_name:
        say(f"there is no run in namespace {kubectl.namespace}")
        return
    if kubectl.items("pods"):
        raise UsageError(
            f"Parts of run {kubectl.run_name} still exist; delete them first: make teardown RUN={kubectl.run_name}."
        )
    delete_secrets(kubectl, say)
    claims = (claim["metadata"]["name"] for claim in kubectl.items("persistentvolumeclaims"))
    for claim in sorted(name for name in claims if name != DATA):
        _delete(kubectl, say, f"persistentvolumeclaim/{claim}")
        say(f"deleted volume {claim}")


def purge_data(kubectl: Kubectl, say: Say) -> None:
    """Deletes the claim of the input data, which all runs of the namespace read. UsageError while pods of any run exist."""
    if pods := kubectl.items("pods", f"{PARTS},{RUN}"):
        runs = sorted({pod["metadata"]["labels"][RUN] for pod in pods})
        raise UsageError(
            f"Runs that may read the input data still exist ({', '.join(runs)}): make teardown RUN=... first."
        )
    _delete(kubectl, say, f"persistentvolumeclaim/{DATA}")
    say(f"volume {DATA} is deleted")


def _delete(kubectl: Kubectl, say: Say, *what: str) -> None:
    """Until it is gone, with a word every 10 s; ServersGone where that takes too long."""
    kubectl.run("delete", *what, "--cascade=foreground", "--ignore-not-found", "--wait=false")
    start = said = time.monotonic()
    while left := kubectl.run("get", *what, "--ignore-not-found", "--output=name").split():
        now = time.monotonic()
        if now - start > DELETION:
            raise ServersGone(
                f"{', '.join(left[:5])} still existed after {DELETION:.0f} s. Look for the reason: kubectl describe."
            )
        if now - said >= EVERY:
            said = now
            say(f"{now - start:4.0f} s  {len(left)} left: {', '.join(left[:5])}")
        time.sleep(PAUSE / 2)


def make_namespace(kubectl: Kubectl, say: Say) -> None:
    """Makes the namespace with Pod Security restricted, where it does not exist. A user with the rights of one namespace alone
    may not look, and has one: otherwise what is applied to it is refused."""
    try:
        is_there = kubectl.find(f"namespace/{kubectl.namespace}") is not None
    except Forbidden:
        is_there = True
    if is_there:
        return
    kubectl.run("create", "namespace", kubectl.namespace)
    kubectl.run("label", "namespace", kubectl.namespace, "pod-security.kubernetes.io/enforce=restricted")
    say(f"made namespace {kubectl.namespace}, with Pod Security restricted")


def _check_same_run(kubectl: Kubectl, overlay: Overlay) -> None:
    """The volumes of another number of servers are not to be gone on with. One alone may be of a run that was only begun:
    Kubernetes makes one process of a part at once, and the controller the others. If it holds a model, server 0 says so."""
    claims = [claim["metadata"] for claim in kubectl.items("persistentvolumeclaims")]
    kept = [claim["name"] for claim in claims if claim["name"].startswith(f"checkpoints-{kubectl.part('server')}-")]
    if len(kept) > 1 and len(kept) != overlay.config.server_processes:
        raise ConfigError(
            f"The model of this run is cut for {len(kept)} servers ({', '.join(sorted(kept))}), but run.yaml has "
            f"servers: {overlay.config.servers}. Set it back, choose another name (RUN=...), or start over: "
            f"make teardown purge RUN={overlay.run}."
        )


def _check_same_settings(kubectl: Kubectl, overlay: Overlay) -> None:
    """A run whose servers have been up has weights: what its processes agree on can't be changed any more, and another run is
    not to take its place. Nothing has been changed yet."""
    servers = kubectl.find(kubectl.servers)
    if servers is None or not (servers["spec"].get("replicas") == 0 or servers.get("status", {}).get("readyReplicas")):
        return
    there = kubectl.find(f"configmap/{settings_of(servers)}")
    before = _settings_of(there, overlay) if there is not None else None
    if before is None:
        return
    if differing := changed_settings(before, agreed_settings(overlay.config)):
        raise ConfigError(
            f"Run {overlay.run} in namespace {kubectl.namespace} has other settings: {'; '.join(differing)} (before and now). "
            f"Set them back, choose another name (RUN=...), or start over: make teardown purge RUN={overlay.run}. "
            "`paceline set` changes the policy of a run."
        )


def _settings_of(there: dict[str, Any], overlay: Overlay) -> list[str] | None:
    """What the settings in the cluster agree on; None where this release can't read them. The user's own files are those of
    the overlay: nothing that is in the cluster is run here."""
    try:
        files = settings_files(overlay.documents) | {"run.yaml": there["data"]["run.yaml"]}
        return agreed_settings(config_of([{"kind": "ConfigMap", "data": files}], ""))
    except (ConfigError, KeyError):
        return None


def _may_wake(kubectl: Kubectl, overlay: Overlay) -> None:
    """Lets a finished run wait in its queue again. ConfigError where its script was changed since: it does not begin again
    with another one."""
    state, new = look(kubectl), overlay.find("StatefulSet", WORKER)
    if state.result is None or state.servers is None:
        return
    before, now = script_of(state.parts.get(WORKER, {})), script_of(new or {})
    if WORKER in state.parts and before != now:
        raise ConfigError(
            f"Run {overlay.run} in namespace {kubectl.namespace} is finished, with another script or another version of "
            f"this one ({before}, now {now}). Choose another name (RUN=...), or start over: "
            f"make teardown purge RUN={overlay.run}."
        )
    drop_finished(kubectl, state.servers)


def _warn_of_claims(kubectl: Kubectl, overlay: Overlay, say: Say) -> None:
    """Says which claims may keep pods from starting; nothing where the user may not list nodes."""
    with suppress(ConfigError):
        claims, nodes = kubectl.items("persistentvolumeclaims", ""), kubectl.items("nodes", "")
        for sentence in one_node_claims(overlay.documents, claims, nodes):
            say(f"warning: {sentence}")


def _keep_sizes(kubectl: Kubectl, overlay: Overlay) -> None:
    """Claims that exist keep their size, since it can't shrink, and seldom grow."""
    sizes = {one["metadata"]["name"]: one["spec"]["resources"] for one in kubectl.items("persistentvolumeclaims")}
    for document in overlay.documents:
        if document["kind"] == "PersistentVolumeClaim" and document["metadata"]["name"] in sizes:
            document["spec"]["resources"] = sizes[document["metadata"]["name"]]


def _slow(kubectl: Kubectl, state: State, seconds: float) -> Finding:
    return Finding(
        "run",
        f"its parts did not all run within {seconds:.0f} s: {state.line()}.",
        f"See: paceline doctor {kubectl.run_name} -n {kubectl.namespace}.",
        exit_code=75,
    )
