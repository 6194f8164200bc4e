"""`paceline simulate`: a run in virtual time, in a scene of any speed."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from paceline.cli.arguments import Json, What
from paceline.cli.exits import console, exits, print_json
from paceline.cli.option_groups import with_groups
from paceline.cli.other_packages import BEFORE
from paceline_studies.commands.options import TaskFlags


@dataclass(frozen=True, slots=True)
class Surrounded:
    """The scene. Fields are None where nobody has said it."""

    speeds: Annotated[
        str | None,
        typer.Option(
            metavar="HE1|1x,1x,10x|...",
            help="How many times as long each worker's steps take: HO (equal, default), HE0 to HE2, random, a list, "
            "or lognormal:0.3, uniform:1,2, exponential:0.5.",
        ),
    ] = None
    step: Annotated[
        str | None, typer.Option(metavar="TIME", help="An equal worker's time for a mini-batch; default: 20ms.")
    ] = None
    jitter: Annotated[
        float | None, typer.Option(help="Spread of a step's time, standard deviation by mean; default: 0.1.")
    ] = None
    stragglers: Annotated[
        str | None, typer.Option(metavar="10x@5%[:STEPS]", help="Steps of any worker at random that take longer.")
    ] = None
    away: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHO@FROM:FOR",
            help="A worker leaves and comes back, like worker-2@10s:20s, or each at random, like 1/10m:30s; may be repeated.",
        ),
    ] = None
    link: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NODE=]SPEED,LATENCY",
            help="Every node's link, or one's, like worker-1=10Mbit,50ms; may be repeated; default: 10Gbit,0.1ms.",
        ),
    ] = None
    shared: Annotated[
        bool | None,
        typer.Option("--shared/--unshared", help="Whether a node's messages share its link's bandwidth (default)."),
    ] = None
    server_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME[,TIME]",
            help="A server's work on a push, and for each million values of it; default: 0.1ms,1ms.",
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """As `Scene` takes them."""
        named = [each for each in self.link or [] if "=" in each]
        common = [each for each in self.link or [] if "=" not in each]
        service, _, each = (self.server_time or "").partition(",")
        found = {
            "speeds": self.speeds,
            "step": self.step,
            "jitter": self.jitter,
            "stragglers": self.stragglers,
            "away": "; ".join(self.away) if self.away else None,
            "link": common[-1] if common else None,
            "links": {who.strip(): how.strip() for who, _, how in (link.partition("=") for link in named)} or None,
            "shared": self.shared,
            "service": service or None,
            "service_per_million": each or None,
        }
        return {key: value for key, value in found.items() if value is not None}


@with_groups
def simulate(
    what: What,
    *,
    task: TaskFlags,
    surrounded: Surrounded,
    gradients: Annotated[
        bool | None,
        typer.Option(
            "--gradients/--timing",
            help="Compute real gradients, which gives scores, or timing alone; default: gradients where they take seconds.",
        ),
    ] = None,
    weights: Annotated[
        int | None,
        typer.Option(min=1, help="With --examples: weights of the model; then the task's data are not read."),
    ] = None,
    examples: Annotated[int | None, typer.Option(min=1, help="With --weights: examples of the training data.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="One seed is one schedule; default: the config's.")] = None,
    as_json: Json = False,
) -> None:
    """Simulate a run in virtual time: how fast, how stale, who waits.

    Policies and servers are the real ones; steps, links and servers take the time you say. Servers and workers don't crash;
    codecs cost no time."""
    with exits():
        from paceline.launch.settings.read_config import read_config
        from paceline_studies.simulator.scene import Scene
        from paceline_studies.simulator.simulate import Extent, print_simulated
        from paceline_studies.simulator.simulate import simulate as go

        scene = Scene.read(**surrounded.settings())
        seeds = [] if seed is None else [f"seed={seed}"]
        config = read_config(what, task.flags().with_sets(seeds))
        found = go(config, scene, Extent(gradients, weights, examples))
        if as_json:
            print_json(found.facts(config, scene))
        else:
            print_simulated(found, config, scene, console())


app = typer.Typer(rich_help_panel=BEFORE)
app.command()(simulate)
