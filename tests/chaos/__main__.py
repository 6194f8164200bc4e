"""`make chaos`: tries the promises of docs/failures/promises-and-failures.md for hours, with a seed for each try. What was run
is written down in build/chaos/results.jsonl, of which `report` makes the reliability report."""

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path

from tests.chaos import bits as lock_step
from tests.chaos import networks, report, schedules
from tests.chaos.kills import Kill
from tests.chaos.results import write_down
from tests.chaos.rounds import FORMS, KINDS, Round, can_retain, deaths
from tests.chaos.soak import Soak
from tests.fuzz import heads
from tests.fuzz.cases import Reader, Spent, run, scratch
from tests.fuzz.readers import READERS
from tests.mutants.__main__ import main as planted

RETAINED = (None, 0, 6000)
"""checkpoint.retain in turn: as by default, nothing, and about three pushes (bytes)."""

FUZZERS = (*READERS, *heads.HEADS)


def main(words: list[str]) -> int:
    """Runs what is asked for; 1 where anything went wrong."""
    asked = arguments(words)
    if asked.seed is None:
        asked.seed = random.SystemRandom().randrange(10**6)
        asked.is_replay = False
    return int(not asked.run(asked))


def arguments(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parts = parser.add_subparsers(required=True)

    def part(name: str, run: object, text: str, *, with_kinds: bool = False) -> argparse.ArgumentParser:
        one = parts.add_parser(name, help=text, description=text)
        one.add_argument("--seed", type=int, help="the first one; default: drawn, and printed with each result")
        if with_kinds:
            one.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)}; default: all")
            one.add_argument("--keep", action="store_true", help="keeps the folders of runs that went well, too")
        one.set_defaults(run=run, is_replay=True)
        return one

    one = part("rounds", rounds, "runs of real processes, killed at random instants", with_kinds=True)
    one.add_argument("--rounds", type=int, default=4, help="of each kind; with --seed one")
    one.add_argument("--kills", type=int, default=5, help="in each round")
    one.add_argument("--retain", type=int, help="checkpoint.retain; default: in turn, one round after the other")
    one = part("points", points, "runs whose servers die at each point of their work on a push")
    one.add_argument("--keep", action="store_true", help="keeps the folders of runs that went well, too")
    one = part("bits", bits, "runs in lock-step that must end with the bits of one that is left alone")
    one.add_argument("--keep", action="store_true", help="keeps the folders of runs that went well, too")
    one = part("soak", soak, "a long run with a fault every 5 to 15 s", with_kinds=True)
    one.add_argument("--seconds", type=float, default=3600)
    one = part("schedules", virtual, "runs in virtual time, in which servers are killed, too")
    one.add_argument("--number", type=int, default=10_000, help="for each policy")
    one.add_argument("--processes", type=int, default=2)
    one = part(
        "fuzz", fuzz, "damaged files, and heads with anything in them: each reader and server must refuse or bear them"
    )
    one.add_argument("--cases", type=int, default=250_000, help="for each reader")
    one.add_argument("readers", nargs="*", metavar="reader", help=f"of: {', '.join(FUZZERS)}; default: all")
    one = part(
        "networks", disturbed, "runs on networks that lose, delay, forget or drop what is sent; needs root and nftables"
    )
    one.add_argument("--policies", nargs="+", choices=networks.POLICIES, default=list(networks.POLICIES))
    one.add_argument("--only", nargs="+", choices=networks.DISTURBANCES, default=list(networks.DISTURBANCES))
    one = part("all", everything, "all of the above, then the mutants and the report", with_kinds=True)
    one.add_argument("--rounds", type=int, default=29, help="of each kind")
    one.add_argument("--kills", type=int, default=5, help="in each round")
    one.add_argument("--seconds", type=float, default=3600, help="of the long run")
    one.add_argument("--number", type=int, default=10_000, help="schedules for each policy")
    one.add_argument("--cases", type=int, default=250_000, help="damaged files for each reader")
    one.add_argument("--processes", type=int, default=2)
    one.set_defaults(retain=None, readers=[])
    part("report", lambda asked: report.write() is None, "writes the reliability report")
    asked = parser.parse_args(words)
    unknown = set(getattr(asked, "kinds", ())) - set(KINDS)
    if unknown:
        parser.error(f"there is no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    if unread := set(getattr(asked, "readers", ())) - set(FUZZERS):
        parser.error(f"there is no reader {', '.join(sorted(unread))}; there are {', '.join(FUZZERS)}")
    return asked


def everything(asked: argparse.Namespace) -> bool:
    """One part after the other, also after one that fails; with a seed, the rounds of that seed alone."""
    if asked.is_replay:
        return rounds(asked)
    good = [
        virtual(asked),
        fuzz(asked),
        points(asked),
        rounds(asked),
        bits(asked),
        soak(argparse.Namespace(**vars(asked) | {"kinds": ["ssp"]})),
    ]
    good.append(not planted([]))
    report.write()
    return all(good)


def rounds(asked: argparse.Namespace) -> bool:
    """A number of rounds of each kind; of one seed just one of each."""
    results = [one_round(kind, seed, retain, asked) for kind, seed, retain in plan(asked)]
    bad = results.count(False)
    print(f"{len(results)} rounds, {bad} of them not good", flush=True)
    return not bad


def plan(asked: argparse.Namespace) -> Iterator[tuple[str, int, int | None]]:
    """Kind, seed and retention of each round."""
    seeds = count(asked.seed)
    for number in range(1 if asked.is_replay else asked.rounds):
        for kind in asked.kinds or KINDS:
            retain = asked.retain
            if retain is None and not asked.is_replay and can_retain():
                retain = RETAINED[number % len(RETAINED)]
            yield kind, asked.seed if asked.is_replay else next(seeds), retain


def one_round(kind: str, seed: int, retain: int | None, asked: argparse.Namespace) -> bool:
    """Runs it and writes down what became of it; returns whether it was good."""
    return tried("round", Round(KINDS[kind], seed, new_folder(kind, seed), retain), asked.kills, asked.keep)


def points(asked: argparse.Namespace) -> bool:
    """One run for each form of a push, on each transport."""
    results = []
    for seed, (kind, variant) in zip(count(asked.seed), FORMS.values(), strict=False):
        one = Round(kind, seed, new_folder(kind.name, seed), variant=variant)
        results.append(tried("round", one, deaths(), asked.keep))
    return all(results)


def bits(asked: argparse.Namespace) -> bool:
    """The final slices of runs in lock-step, dense and sparse."""
    results = [same_bits(form, asked.keep) for form in lock_step.FORMS]
    return all(results)


def same_bits(form: str, keep: bool) -> bool:
    """Whether all slices are those of the run that is left alone."""
    folder, slices, why = Path(tempfile.mkdtemp(prefix=f"chaos-bits-{form}-")), dict[str, tuple[str, ...]](), ""
    try:
        for name, found in lock_step.run(form, folder):
            slices[name] = found
            print(f"     {form}, {name}: {'; '.join(found)}", flush=True)
    except AssertionError as error:
        why = str(error)[:2000] or "an assertion failed"
    good = len(set(slices.values())) == 1 and not why
    print(f"{'ok  ' if good else 'BITS'} {form}{f'; did not go on: {why}; logs: {folder}' if why else ''}", flush=True)
    if good and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    write_down("bits", {"form": form, "slices": slices, "good": good, "why": why})
    return good


def soak(asked: argparse.Namespace) -> bool:
    """One long run of each kind that is named; default: ssp."""
    results = [one_soak(kind, asked) for kind in asked.kinds or ["ssp"]]
    return all(results)


def one_soak(kind: str, asked: argparse.Namespace) -> bool:
    """Runs it, and looks at what its processes held meanwhile."""
    one = Soak(KINDS[kind], asked.seed, new_folder(kind, asked.seed), asked.seconds)
    good = tried("soak", one, 0, asked.keep)
    if not one.held.samples:
        return False
    growths = one.held.growths()
    for name, growth in growths.items():
        print(f"     {name}: {growth.first:,.0f} at first, {growth.last:,.0f} at last", flush=True)
    write_down("held", {"kind": kind, "seed": asked.seed, **{name: asdict(each) for name, each in growths.items()}})
    return good and all(growth.is_flat for growth in growths.values())


def new_folder(kind: str, seed: int) -> Path:
    """For the processes of one run."""
    return Path(tempfile.mkdtemp(prefix=f"chaos-{kind}-{seed}-"))


def tried(what: str, one: Round, kills: int | Sequence[Kill], keep: bool) -> bool:
    """Runs a round; prints and writes down what became of it, and keeps the logs where it was not good."""
    why = ""
    try:
        one.run(kills)
    except AssertionError as error:
        why = str(error)[:2000] or "an assertion failed"
    result, folder = one.result, one.cluster.folder
    good = result.is_good and not why
    print(f"{result}{'; did not go on: ' + why if why else ''}", flush=True)
    if good and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"     kills: {'; '.join(map(str, result.kills))}\n     logs: {folder}", flush=True)
    write_down(what, asdict(result) | {"good": good, "why": why})
    return good


def disturbed(asked: argparse.Namespace) -> bool:
    """Each disturbance of the network under each policy."""
    if why := networks.why_not():
        print(f"SKIPPED: {why}", flush=True)
        return True
    cells = networks.run(asked.policies, asked.only)
    for one in cells:
        write_down("network", asdict(one) | {"good": not one.why})
    print(
        f"{len(cells)} runs on disturbed networks, {sum(bool(one.why) for one in cells)} of them not good", flush=True
    )
    return not any(one.why for one in cells)


def virtual(asked: argparse.Namespace) -> bool:
    """Schedules in virtual time."""
    done, failures = schedules.run(asked.number, asked.seed, asked.processes)
    print(f"{done.total()} schedules from seed {asked.seed} on, {len(failures)} of them not good", flush=True)
    write_down("schedules", {"seed": asked.seed, "done": dict(done), "failures": failures})
    return not failures


def fuzz(asked: argparse.Namespace) -> bool:
    """Damaged files for each reader, and heads for a server, one after the other."""
    good = [fuzzed(name, asked) for name in asked.readers or FUZZERS]
    return all(good)


def fuzzed(name: str, asked: argparse.Namespace) -> bool:
    """The cases for one reader; ends with the first that is not refused as it must be."""
    with scratch() as folder:
        why, facts, dice = (
            "",
            {"reader": name, "seed": asked.seed, "cases": asked.cases},
            random.Random(f"{name} {asked.seed}"),
        )
        try:
            if name in heads.HEADS:
                spent = heads.run(heads.HEADS[name], asked.cases, dice, folder)
            else:
                spent = damaged_files(READERS[name](folder), asked.cases, dice)
            facts |= {"cpu_s": round(spent.seconds, 1), "slowest_s": round(spent.slowest, 3), "said": dict(spent.said)}
        except AssertionError as error:
            why = str(error)
    print(f"{'BAD ' if why else 'ok  '} {name}, seed {asked.seed}: {why or facts}", flush=True)
    write_down("fuzz", facts | {"good": not why, "why": why})
    return not why


def damaged_files(reader: Reader, count: int, dice: random.Random) -> Spent:
    """Files for one reader."""
    for form in reader:
        form.read(form.whole)  # what is loaded or compiled at the first time is no case's
    return run(reader, count, dice)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
