"""Runs in which something is wrong on purpose, one for each cause that `paceline doctor` knows, and some in which nothing is:
real processes on this machine. Prints what each run's end says, and whether that is the cause.

python -m paceline_papers.experiments.planted_causes [--only NAME ...] [--folder FOLDER]
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

PACELINE = str(Path(sys.executable).with_name("paceline"))
HERE = Path(__file__).parent / "planted"
_SMALL = "size=16k"
"""Of the disk that is put over a server's folder: no snapshot fits."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A run and what explains it."""

    cause: str
    """Empty: nothing."""
    words: str
    """Behind `paceline run`."""
    fills_disk: bool = False


PLANTED = {
    "slow-worker": Planted("slow_worker", "digits -w 4 -s 2 --policy bsp --epochs 8 --slow 3=5x"),
    "slow-link": Planted("slow_link", "digits -w 4 -s 2 --policy bsp --epochs 8 --fault 'link worker-1=2Mbit,25ms'"),
    "busy-server": Planted(
        "busy_server",
        "PLANTED/large_layer.py -w 6 -s 1 --policy asp --epochs 2 --set optimizer.name=adam --set optimizer.lr=0.0001",
    ),
    "slow-data": Planted("slow_data", "PLANTED/slow_prepare.py -w 2 -s 2 --policy bsp --epochs 8"),
    "full-disk": Planted(
        "full_disk", "digits -w 2 -s 1 --policy bsp --epochs 40 --set batch_size=256", fills_disk=True
    ),
    "small-batch": Planted(
        "small_batch", "digits -w 2 -s 2 --policy asp --epochs 4 --set batch_size=2 --set optimizer.lr=0.005"
    ),
    "high-rate": Planted("high_rate", "digits -w 2 -s 1 --policy bsp --epochs 4 --set optimizer.lr=100"),
    "alpha-floor": Planted("alpha_floor", "digits -w 2 -s 1 --policy shat --epochs 20 --set policy.reading=difference"),
    "large-slice": Planted(
        "large_slice",
        "PLANTED/large_layer.py -w 2 -s 3 --policy bsp --epochs 4 --set batch_size=128 --set plan.slices=layerwise",
    ),
    "restarts": Planted(
        "restarts",
        "digits -w 3 -s 2 --policy asp --epochs 100 --fault 'kill worker-1@2s; kill worker-1@8s; kill worker-1@14s'",
    ),
    "healthy-bsp": Planted("", "digits -w 4 -s 2 --policy bsp --epochs 40 --set batch_size=512"),
    "healthy-asp": Planted("", "digits -w 2 -s 2 --policy asp --epochs 40 --set batch_size=256"),
    "healthy-local-sgd": Planted("", "digits -w 2 -s 1 --policy local_sgd --epochs 40 --set batch_size=256"),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What was said of a run."""

    lines: list[str]
    """While it trained and at its end."""
    causes: list[str]
    """By `paceline doctor`, what costs most first."""
    said: str
    """The first one's sentence."""

    def is_right(self, planted: Planted) -> bool:
        """Whether the cause came first, or at all where it is gone at the end, and nothing where nothing was planted."""
        if planted.cause:
            return self.causes[:1] == [planted.cause]
        return not self.causes and not any(line.startswith("cause:") for line in self.lines)


def main() -> int:
    """Runs what is asked for; exit code 1 where something else was said."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PLANTED, default=list(PLANTED), metavar="NAME")
    parser.add_argument("--folder", type=Path, help="where the runs go; default: a temporary folder")
    asked = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        for name in asked.only:
            found = seen(name, PLANTED[name], folder)
            is_right = found.is_right(PLANTED[name])
            wrong += not is_right
            what = f"{', '.join(found.causes) or 'nothing'}: {found.said}" if found.causes else "nothing"
            print(f"| {name} | {'yes' if is_right else 'NO'} | {what} |", flush=True)
            for line in found.lines:
                print(f"    {line}", flush=True)
    print(f"{len(asked.only) - wrong} of {len(asked.only)}")
    return int(wrong > 0)


def seen(name: str, planted: Planted, folder: Path) -> Seen:
    """Trains, and asks."""
    words = shlex.split(planted.words.replace("PLANTED", str(HERE)))
    command = [PACELINE, "run", *words, "--run", name, "--fresh"]
    with (
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run,
        full(folder / "runs" / name / "server-0") if planted.fills_disk else nullcontext(),
    ):
        output = run.communicate(timeout=600)[0]
    lines = [line for line in output.splitlines() if line.startswith(("cause:", "Next,"))]
    explain = [PACELINE, "doctor", name, "--json"]
    told = json.loads(subprocess.run(explain, cwd=folder, capture_output=True, text=True, check=True).stdout)
    said = told["causes"][0]["said"] if told["causes"] else ""
    return Seen(lines, [each["cause"] for each in told["causes"]], said)


@contextmanager
def full(place: Path) -> Iterator[None]:
    """A server's folder is on a full disk, from its first snapshot on. Takes root."""
    while not list(place.glob("snapshot-*.json")):
        time.sleep(0.1)
    subprocess.run(["mount", "-t", "tmpfs", "-o", _SMALL, "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


if __name__ == "__main__":
    sys.exit(main())
