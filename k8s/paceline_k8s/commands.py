"""`paceline k8s`: runs on Kubernetes. The Makefile's targets call these."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.base.terminal import say
from paceline.core.errors import UsageError
from paceline.processes.exits import exits

if TYPE_CHECKING:
    from paceline_k8s.kubectl import Kubectl

app = typer.Typer(
    help="Train on Kubernetes, with your own kubectl.", no_args_is_help=True, rich_help_panel="Machines and keys"
)
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the run; it may hold several.")]
NewRun = Annotated[str, typer.Option("--run", help="The run's name; default: the one in the overlay's run.yaml.")]
Run = Annotated[str, typer.Option("--run", help="The run's name; not needed where the namespace has only one.")]
Overlay = Annotated[
    str, typer.Argument(help="A run.yaml, a folder of k8s/overlays, or any folder with a kustomization.yaml.")
]
Profile = Annotated[
    str,
    typer.Option(metavar="NAME|FILE", help="For a run.yaml: the platform's images, sizes and nodes; default: cpu."),
]
Script = Annotated[Path | None, typer.Option(help="Your training script, up to 1 MiB, for a run of one.")]
Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="[-- ARGUMENTS...]", help="The script's arguments, after `--`.")
]
Registry = Annotated[
    str,
    typer.Option(
        metavar="HOST/PATH", help="Where Paceline's images are; default: where the overlay or profile has them."
    ),
]
Tag = Annotated[str, typer.Option(help="Their tag; default: that of the overlay or profile.")]
HERE = "paceline"


@app.command()
def deploy(
    overlay: Overlay,
    arguments: Arguments = None,
    script: Script = None,
    run: NewRun = "",
    namespace: Namespace = HERE,
    registry: Registry = "",
    tag: Tag = "",
    profile: Profile = "",
) -> None:
    """Start a run, or apply changed settings to it; returns when all its parts run."""
    from paceline_k8s import deploy as deploying
    from paceline_k8s.overlay import Changes

    with _exits():
        deploying.deploy(
            _kubectl(namespace, run), overlay, say, Changes(script, arguments or (), registry, tag, profile)
        )


@app.command("run")
def run_command(
    overlay: Overlay,
    arguments: Arguments = None,
    script: Script = None,
    run: NewRun = "",
    namespace: Namespace = HERE,
    registry: Registry = "",
    tag: Tag = "",
    profile: Profile = "",
) -> None:
    """Start a run, and follow it until its parts have gone; the last line is the test accuracy."""
    from paceline_k8s.follow import run as go
    from paceline_k8s.overlay import Changes

    with _exits():
        raise SystemExit(
            go(_kubectl(namespace, run), overlay, say, Changes(script, arguments or (), registry, tag, profile))
        )


@app.command()
def render(
    overlay: Overlay,
    profile: Profile = "",
    out: Annotated[Path | None, typer.Option(help="The file; default: the terminal.", show_default=False)] = None,
    run: NewRun = "",
    registry: Registry = "",
    tag: Tag = "",
) -> None:
    """Write the manifests of a run, for a repository and `kubectl apply`; needs no cluster."""
    from paceline_k8s.overlay import Changes, read_overlay
    from paceline_k8s.render import text_of, write

    with _exits():
        found = read_overlay(_kubectl(HERE, run), overlay, Changes(registry=registry, tag=tag, profile=profile))
        options = {"profile": profile, "run": run, "registry": registry, "tag": tag}
        words = [f"--{name} {value}" for name, value in options.items() if value]
        write(text_of(found.documents, " ".join(["paceline k8s render", overlay, *words])), out)


@app.command()
def status(run: Run = "", namespace: Namespace = HERE) -> None:
    """Show all parts, what is wrong with them, and how each worker does."""
    from rich.console import Console

    from paceline_k8s.follow import show

    with _exits():
        raise SystemExit(show(_run(namespace, run), Console()))


@app.command()
def doctor(run: Run = "", namespace: Namespace = HERE) -> None:
    """Say what keeps the run from going on, and what to do."""
    from paceline_k8s.follow import doctor as examine

    with _exits():
        raise SystemExit(examine(_run(namespace, run), say))


@app.command()
def scale(
    workers: Annotated[int, typer.Option("--workers", "-w", help="The new number of workers.")],
    run: Run = "",
    namespace: Namespace = HERE,
) -> None:
    """Change the number of workers while the run trains."""
    from paceline_k8s import live_changes

    with _exits():
        live_changes.scale(_run(namespace, run, is_needed=True), workers, say)


@app.command("set")
def set_(
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="policy.name=ssp policy.bound=5")],
    run: Run = "",
    namespace: Namespace = HERE,
) -> None:
    """Change the run's policy, or its bounds, while it trains."""
    from paceline_k8s import live_changes

    with _exits():
        say(live_changes.set_policy(_run(namespace, run, is_needed=True), settings))


@app.command()
def stop(run: Run = "", namespace: Namespace = HERE) -> None:
    """End the run early but properly: its model is scored and written, and stays on its volume."""
    from paceline_k8s import live_changes

    with _exits():
        say(live_changes.stop(_run(namespace, run, is_needed=True)))


@app.command()
def key(
    out: Annotated[Path | None, typer.Option(help="The file; default: RUN.key.", show_default=False)] = None,
    address: Annotated[
        str, typer.Option(metavar="HOST", help="How others reach a node; default: as the cluster says.")
    ] = "",
    run: Run = "",
    namespace: Namespace = HERE,
) -> None:
    """Write a key with which machines outside the cluster take part in the run: `paceline join FILE` there."""
    from paceline.base.private import write_private
    from paceline_k8s.outside import make_key

    with _exits():
        kubectl = _run(namespace, run, is_needed=True)
        found = make_key(kubectl, address)
        file = out or Path(f"{found.run}.key")
        try:
            write_private(file, found.text().encode())
        except OSError as error:
            raise UsageError(
                f"Can't write the key to {file}: {error.strerror}. Give another file with --out."
            ) from error
        say(f"{file} opens run {found.run} to machines that reach {', '.join(found.servers)}. Keep it like a password.")
        say(f"On such a machine: paceline join {file.name} -w 1")


@app.command("fetch-model")
def fetch_model(
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("models"),
    image: Annotated[
        str | None,
        typer.Option(
            help="An image with tar that nodes can pull; default: that of the run's servers, or "
            "localhost/paceline-server:0.1.0 where they are gone."
        ),
    ] = None,
    run: Run = "",
    namespace: Namespace = HERE,
) -> None:
    """Copy the last and the best model from the run's volume."""
    from paceline_k8s.volumes import fetch_model as fetch

    with _exits():
        fetch(_run(namespace, run, is_needed=True), out, say, image)


@app.command("put-data")
def put_data(
    data: Annotated[Path, typer.Argument(help="A file, or a folder with the files to copy.")],
    size: Annotated[str, typer.Option(help="Size of the volume, if it does not exist yet.")] = "5Gi",
    image: Annotated[
        str | None,
        typer.Option(
            help="An image with tar and sha256sum that nodes can pull; default: localhost/paceline-server:0.1.0."
        ),
    ] = None,
    namespace: Namespace = HERE,
) -> None:
    """Copy data, but for files that it has, to the volume that the sharders of all runs in the namespace read at /data."""
    from paceline_k8s.volumes import put_data as put

    with _exits():
        put(_kubectl(namespace), data, say, size, image)


@app.command()
def teardown(run: Run = "", namespace: Namespace = HERE) -> None:
    """Delete all parts of the run; its volumes stay, and so do other runs and the monitoring."""
    from paceline_k8s import deploy as deploying

    with _exits():
        deploying.teardown(_run(namespace, run), say)


@app.command()
def purge(
    run: Run = "",
    data: Annotated[
        bool, typer.Option("--data", help="Also delete the input data, which all runs of the namespace read.")
    ] = False,
    namespace: Namespace = HERE,
) -> None:
    """Delete the volumes and the token of a run after teardown, and name each of them; input data stays."""
    from paceline_k8s import deploy as deploying

    with _exits():
        deploying.purge(_run(namespace, run), say)
        if data:
            deploying.purge_data(_kubectl(namespace), say)


def _exits() -> AbstractContextManager[None]:
    return exits("paceline")


def _kubectl(namespace: str, run: str = "") -> "Kubectl":
    from paceline_k8s.kubectl import Kubectl

    return Kubectl(namespace, run)


def _run(namespace: str, name: str, is_needed: bool = False) -> "Kubectl":
    """An existing run."""
    from paceline_k8s.run_name import the_run

    return the_run(_kubectl(namespace), name, is_needed)
