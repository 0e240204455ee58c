"""Checks out and compiles another commit of this repository, with its own scripts and environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cluster import ROOT, BenchFailed


def git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchFailed(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def build_revision(revision: str) -> tuple[str, Path]:
    """The commit's short hash and its compiled gmqttd, built by the first call.

    The checkout is a worktree in run/revisions; `git worktree remove` deletes it."""
    try:
        commit = git("rev-parse", "--verify", "--short=12", f"{revision}^{{commit}}")
    except BenchFailed:
        raise BenchFailed(f"--against {revision}: no commit of this repository has that name") from None
    folder = ROOT / "run" / "revisions" / commit
    if not folder.exists():
        git("worktree", "add", "--quiet", "--force", "--detach", str(folder), commit)
    # The build writes to stderr, because stdout is for the table.
    if subprocess.run(["scripts/build_fast"], cwd=folder, stdout=2, check=False).returncode:
        raise BenchFailed(f"--against {revision}: its scripts/build_fast failed in {folder.relative_to(ROOT)}")
    return commit, folder / ".venv-fast" / "bin" / "gmqttd"
