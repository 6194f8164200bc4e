"""Settings of runs without servers: what goes together, and what is said where it does not."""

from typing import Any

import pytest

from paceline.core.chief.run import Run
from paceline.core.errors import ConfigError
from paceline.core.peers.peer_run import topology_of
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import from_shorthand
from paceline.core.settings.config import Options
from paceline.settings.load_settings import load


def settings(policy: str = "adpsgd", servers: int = 0, **more: Any) -> dict[str, Any]:
    return {"servers": servers, "workers": 4, "policy": {"name": policy}, **more}


@pytest.mark.parametrize(
    ("policy", "topology"), [("adpsgd", "ring"), ("sgp", "exponential"), ("gosgd", "complete"), ("dpsgd", "ring")]
)
def test_a_policy_has_a_usual_topology_and_another_may_be_set(policy: str, topology: str) -> None:
    assert type(topology_of(load(None, settings(policy)))).__name__.lower() == topology
    assert type(topology_of(load(None, settings(policy, topology={"name": "torus"})))).__name__ == "Torus"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (settings(topology={"name": "rng"}), "There is no 'rng' among the topologies.*'ring'"),
        (settings(topology={"name": "tree", "children": 0}), "topology.children: got 0"),
        (
            settings(topology={"name": "matrix", "rows": [[0.5, 0.5], [0.5, 0.5]]}),
            "weights for ranks 0 to 1, but rank 3",
        ),
        (settings("gosgd") | {"policy": {"name": "gosgd", "probability": 2}}, "policy.probability: got 2"),
        (settings("allreduce", codec={"push": "int8"}), "codec.push is int8.*can't travel so. Use bf16, fp16 or none"),
        (settings("broadcast", codec={"push": "bf16"}), "codec.push is bf16.*can't travel so. Use none"),
        (settings(overlap=True), "overlap: true does not go with policy adpsgd"),
    ],
)
def test_what_does_not_go_together_is_told(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        load(None, wrong)


def test_a_peer_policy_has_no_short_form_with_a_value() -> None:
    assert from_shorthand("adpsgd") == {"name": "adpsgd"}
    with pytest.raises(ConfigError, match="adpsgd takes no value after ':'"):
        from_shorthand("adpsgd:3")


def test_the_policy_of_a_run_without_servers_stays() -> None:
    run = Run(load(None, settings(start_when=1)))
    run.ready(0.0)
    run.seat("worker-0", run.join("worker-0", False, 100, 10, "", 0.0), 0, Clocks(), 0.0)
    with pytest.raises(ConfigError, match="keeps its policy"):
        run.switch(Options(name="dpsgd"), Clocks())
