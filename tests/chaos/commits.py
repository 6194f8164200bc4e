"""Which commit a try was made on, and what became of that commit: a tree is often tried before it lands, and rebased then."""

import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

MOST = 400
"""Commits of the present branch among which one that was tried is looked for."""


def git(root: Path, *words: str, text: str = "") -> str:
    """What git prints; '' where it fails, as outside of a clone."""
    done = subprocess.run(["git", *words], cwd=root, input=text, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def tried_on(root: Path) -> dict[str, str]:
    """`commit`: the present one's first letters, with -dirty where files differ from it. `patch`: git's number of the newest
    change, which is that of these files, or that of the commit; a rebase leaves it as it is."""
    words = ["describe", "--always", "--abbrev=8", "--exclude", "*", "--dirty"]
    commit = git(root, *words).strip() or "unknown"
    change = git(root, "diff", "HEAD") if commit.endswith("-dirty") else git(root, "show", "HEAD")
    return {"commit": commit, "patch": git(root, "patch-id", "--stable", text=change).partition(" ")[0]}


def named(facts: Iterable[dict[str, Any]], root: Path) -> str:
    """The commits of these results, in order; one that is not on the present branch with the one that it became."""
    found = {(one["commit"], one.get("patch", "")): "" for one in facts}
    away = {commit for commit, _ in found if not _is_here(commit, root)}
    patches = _patches(root, git(root, "rev-parse", "HEAD").strip()) if away else {}
    for commit, patch in found:
        if commit in away:
            found[commit, patch] = f" (now `{patches[patch]}`)" if patch in patches else ""
    return ", ".join(dict.fromkeys(f"`{commit}`{now}" for (commit, _), now in found.items()))


def _is_here(commit: str, root: Path) -> bool:
    """Whether the present branch has it; never so of files that differ from it."""
    return git(root, "merge-base", commit, "HEAD") == git(root, "rev-parse", "--verify", f"{commit}^{{commit}}") != ""


@cache
def _patches(root: Path, head: str) -> dict[str, str]:
    """Of the newest commits up to this one: their first letters by the number of their change."""
    log = git(root, "log", "--patch", f"--max-count={MOST}", head)
    lines = git(root, "patch-id", "--stable", text=log).split("\n")
    return {patch: commit[:8] for patch, _, commit in (line.partition(" ") for line in lines) if patch}
