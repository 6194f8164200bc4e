"""`python -m tools.prose [PAGE...] [--counts] [--less]`: where README, docs and the words in code break the style more often
than before."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.prose import left
from tools.prose.code import code_pages, read_code
from tools.prose.pages import ROOT, Page, pages, read_page
from tools.prose.rules import ADVICE, Finding, findings, findings_of_words, style
from tools.prose.wrap import wrapped

RULES = ("sentence", "cell", "phrase", "word", "line", "page")


def main() -> int:
    """0 where no page breaks the style more often than left.yaml says, and none less often."""
    parser = argparse.ArgumentParser(prog="python -m tools.prose", description=__doc__)
    parser.add_argument(
        "page", nargs="*", type=Path, help="show all findings of these pages or Python files, and advice"
    )
    parser.add_argument("--counts", action="store_true", help="a table: how often each page breaks each rule")
    parser.add_argument("--less", action="store_true", help="keep the numbers of today, which must not be larger")
    parser.add_argument("--wrap", action="store_true", help="wrap paragraphs that have a line over the limit")
    asked = parser.parse_args()
    if asked.wrap:
        return _wrap(asked.page or [ROOT / page.name for page in pages()])
    if asked.page:
        return _show([finding for path in asked.page for finding in findings(_read(path))])
    found = [finding for page in pages() for finding in findings(page)]
    found += [finding for page in code_pages() for finding in findings_of_words(page)]
    now, before = left.counts(found), left.read()
    if asked.counts:
        return _table(now)
    if not asked.less:
        return _compare(found, now, before)
    if worse := left.grown(now, before):
        sys.exit("\n".join(["Not kept, because the pages got worse:", *worse]))
    left.write(now)
    return 0


def _wrap(paths: Iterable[Path]) -> int:
    for path in paths:
        before, after = path.read_text(encoding="utf-8"), wrapped(read_page(path), style()["limits"]["line_characters"])
        if path.read_text(encoding="utf-8").startswith("---\n"):
            print(f"{path}: not wrapped, because it has a front matter")
        elif after != before:
            path.write_text(after, encoding="utf-8")
            print(f"{path}: wrapped")
    return 0


def _read(path: Path) -> Page:
    name = path.resolve().relative_to(ROOT).as_posix()
    return read_code(path, name) if path.suffix == ".py" else read_page(path)


def _show(found: list[Finding]) -> int:
    print("\n".join(map(str, found)))
    counted = sum(finding.rule != ADVICE for finding in found)
    print(f"{counted} findings, {len(found) - counted} pieces of advice")
    return 0


def _compare(found: list[Finding], now: left.Counts, before: left.Counts) -> int:
    worse = better = 0
    for page, rule, is_now, was in left.differences(now, before):
        if is_now > was:
            worse += 1
            print(f"{page}: {rule}: {is_now}, but {was} were left. One of these is new:")
            print(
                "\n".join(f"  {finding}" for finding in found if (left.row(finding.page), finding.rule) == (page, rule))
            )
        elif page.endswith("/"):  # a room of the code: many hands change it at a time, so a fall may be kept later
            continue
        else:
            better += 1
            print(f"{page}: {rule}: {is_now}, and tools/prose/left.yaml says {was}")
    if better:
        print("Pages got better, or have moved. Keep that: python -m tools.prose --less")
    return int(bool(worse or better))


def _table(now: left.Counts) -> int:
    print(f"{'page':<45}" + "".join(f"{rule:>10}" for rule in RULES))
    for page, row in sorted(now.items(), key=lambda item: -sum(item[1].values())):
        print(f"{page:<45}" + "".join(f"{row.get(rule, ''):>10}" for rule in RULES))
    print(f"{'all':<45}" + "".join(f"{sum(row.get(rule, 0) for row in now.values()):>10}" for rule in RULES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
