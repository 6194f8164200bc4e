"""`paceline doctor`: what is wrong with a run, or made it slow."""

from typing import TYPE_CHECKING, Any

from paceline.base.terminal import say
from paceline.cli.arguments import Json, Run
from paceline.cli.exits import console, exits, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paceline.launch.folder.run_folder import RunFolder
    from paceline.launch.status.explained import Explained
    from paceline.launch.status.predictions import Predicted


def doctor(name: Run = None, as_json: Json = False) -> None:
    """Say what is wrong with a run or slows it down, and what to do.

    What it cost, which setting to change, and what another policy would give. On Kubernetes: paceline k8s doctor."""
    with exits():
        from paceline.launch.folder.run_folder import find_run
        from paceline.launch.status.explained import explain_run
        from paceline.launch.status.predictions import predictions

        folder = find_run(name)
        with console().status("Looking at the run's figures, and simulating other policies"):
            found = explain_run(folder)
            predicted = predictions(found)
        print_json(_plain(folder, found, predicted)) if as_json else say("\n".join(_lines(folder, found, predicted)))


def _lines(folder: "RunFolder", found: "Explained", predicted: "Sequence[Predicted]") -> list[str]:
    """For people."""
    from paceline.launch.status.evidence import advice_line
    from paceline.launch.status.predictions import in_words

    when = "just now" if found.is_training else "over all of it"
    spent = ", ".join(f"{part} {share:.0%}" for part, share in found.time.items())
    lines = [found.ended] if found.ended else []
    lines += [f"run {folder.name}, {when}: the workers' time went into {spent}."] if spent else []
    lines += [advice_line(each, folder.name if found.is_training else "") for each in found.findings]
    if predicted:
        lines.append(in_words(predicted, found.evidence))
    if not found.findings:
        nothing = f"nothing {'else ' if found.ended else ''}is wrong with it, as far as its figures go"
        lines.append(f"run {folder.name} {found.unjudged}." if found.unjudged else f"run {folder.name}: {nothing}.")
    return lines + found.notes


def _plain(folder: "RunFolder", found: "Explained", predicted: "Sequence[Predicted]") -> dict[str, Any]:
    """For programs."""
    return {
        "run": folder.name,
        "folder": str(folder.path),
        "training": found.is_training,
        "ended": found.ended,
        "unjudged": found.unjudged,
        "time": found.time,
        "causes": [
            {
                "cause": each.cause,
                "share": round(each.share, 4),
                "said": each.said,
                "advice": each.advice.text,
                "settings": list(each.advice.settings),
            }
            for each in found.findings
        ],
        "predicted": [{"policy": each.policy, "seconds": round(each.seconds, 3)} for each in predicted],
        "notes": found.notes,
    }
