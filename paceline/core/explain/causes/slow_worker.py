"""A worker that computes more slowly than the others."""

from paceline.core.chief.advice import Advice, takes
from paceline.core.explain.cause import Cause, Finding
from paceline.core.explain.evidence import Evidence
from paceline.core.explain.laggards import laggards, times
from paceline.core.policies.policy import build_policy


class SlowWorker(Cause):
    """Evidence: seconds of computation in a step, next to the other workers'; what the policy let the others wait. It costs
    what they wait, or where nobody waits what the slow ones do less. The setting: a policy that does not wait."""

    def look(self, evidence: Evidence) -> Finding | None:
        found = laggards(evidence)
        if found is None or found.part != "compute":
            return None
        said = f"{found.told}, whose steps take {times(found.factor)} ({1000 * found.each:.3g} ms each)"
        return Finding(found.share, said, not_to_wait(evidence, found.are_waited_for), workers=found.workers)


def not_to_wait(evidence: Evidence, is_waited_for: bool) -> Advice:
    """How a run bears workers that take longer."""
    config = evidence.config
    policy = build_policy(config.policy)
    if is_waited_for and policy.served and not policy.changes_itself:
        return Advice("policy=asp, which waits for nobody", ("policy=asp",))
    if is_waited_for and not policy.served:
        return Advice("policy=adpsgd, which waits for nobody", ("policy=adpsgd",))
    if config.updates == "dense" and config.servers and takes(config, batch="speed"):
        return Advice("batch=speed, which gives it fewer examples a step", ("batch=speed",))
    return Advice("a faster machine for it, or none of it")
