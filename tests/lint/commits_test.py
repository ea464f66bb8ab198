"""Commits since SINCE follow the rules of tests/lint/commit_message.py, 95 in 100 of them at least.

A message cannot be changed once it is published, so a few faults pass. Prints each of them. Exit code 77, with the
reason, where git or the commits are missing. Usage: commits_test.py [SINCE]
"""

from __future__ import annotations

import subprocess
import sys

from commit_message import changed_lines, problems
from sources import ROOT

SINCE = "77afac9327011108ba39d940ebd0d859f0370bea"  # the last commit before the rules
SHARE = 0.95
SKIPPED = 77


def git(*words: str) -> str:
    """What git prints."""
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout


def main() -> int:
    """Counts the commits that break a rule."""
    since = sys.argv[1] if len(sys.argv) > 1 else SINCE
    try:
        git("merge-base", "--is-ancestor", since, "HEAD")
    except (OSError, subprocess.CalledProcessError) as error:
        reason = "git is not installed" if isinstance(error, OSError) else f"HEAD has no ancestor {since} in this clone"
        print(f"skipped: {reason} (a shallow clone, or an export without history)")
        return SKIPPED
    log = git("log", "--no-merges", "--format=%x01%h%x02%B%x02", "--numstat", f"{since}..HEAD")
    commits = [entry.split("\x02") for entry in log.split("\x01")[1:]]
    faults = 0
    for name, message, numstat in commits:
        found = problems(message, changed_lines(numstat))
        faults += bool(found)
        for problem in found:
            print(f"{name} {message.splitlines()[0]}: {problem}")
    print(f"commit messages: {len(commits) - faults} of {len(commits)} follow docs/style.md#commits, "
          f"expected at least {SHARE:.0%}")
    return 1 if faults > (1 - SHARE) * len(commits) else 0


if __name__ == "__main__":
    sys.exit(main())
