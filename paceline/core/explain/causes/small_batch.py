"""Mini-batches so small that exchanging takes longer than computing."""

from paceline.core.chief.advice import Advice
from paceline.core.explain.cause import Cause, Finding
from paceline.core.explain.evidence import Evidence
from paceline.core.explain.exchanges import are_of_few_examples, examples
from paceline.core.policies.policy import push_batches

WANTED = 0.3
"""Share that exchanges take with the advised size, if computing takes as much longer."""


class SmallBatch(Cause):
    """Evidence: exchanges take more than half of the time outside of waiting, few examples are behind each, and neither a link
    nor a push's size explains it. The setting: a larger mini-batch, or fewer pushes."""

    def look(self, evidence: Evidence) -> Finding | None:
        if not are_of_few_examples(evidence):
            return None
        share, few = evidence.share("exchange"), examples(evidence.config)
        said = (
            f"{share:.0%} of the workers' time goes into pushes and pulls: to compute a push's {few} example{'s' * (few > 1)} "
            f"takes {1000 * evidence.each('compute'):.3g} ms, to exchange it {1000 * evidence.each('exchange'):.3g} ms"
        )
        return Finding(share, said, self._advice(evidence))

    @staticmethod
    def _advice(evidence: Evidence) -> Advice:
        config, ratio = evidence.config, evidence.each("exchange") / max(1e-9, evidence.each("compute"))
        factor = 2
        while factor < 64 and ratio / factor > WANTED / (1 - WANTED):
            factor *= 2
        if config.updates == "sparse":
            more = f"svm.batches={factor * push_batches(config)}"
            return Advice(f"{more}, which pushes less often", (more,))
        more = f"batch_size={factor * config.batch_size}"
        return Advice(f"{more} (it is {config.batch_size}), or policy=local_sgd, which pushes after several", (more,))
