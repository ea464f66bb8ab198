"""The rules of a commit message (docs/style.md#commits): `area: imperative summary`, and a body for larger changes.

As a program it checks the message in a file against the staged change: sim_scripts/hooks/commit-msg calls it so.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HEADLINE_COLUMNS = 72
LINES_WITHOUT_BODY = 20
HEADLINE = re.compile(r"(?P<area>[A-Za-z0-9_.\-][A-Za-z0-9_./\-]*): (?P<summary>\S.*)")
# What git writes itself, and marks of commits that will be joined with others.
OF_GIT = re.compile(r"Merge |Revert \"|fixup! |squash! |amend! ")
# Verbs that end like a plural, a participle or a past form.
VERBS = {"access", "address", "assess", "bias", "bless", "bring", "bypass", "canvas", "class", "compress", "cross",
         "decompress", "discuss", "dismiss", "embed", "exceed", "express", "feed", "focus", "guess", "harness",
         "miss", "need", "pass", "ping", "press", "process", "reprocess", "ring", "seed", "shed", "speed", "spring",
         "string", "stress", "suppress", "swing", "toss", "trespass", "witness"}
OTHER_WORDS = {"a", "all", "also", "an", "and", "any", "as", "at", "both", "by", "each", "every", "for", "from", "how",
               "if", "in", "it", "its", "less", "many", "more", "no", "not", "now", "of", "on", "one", "only", "or",
               "our", "same", "several", "so", "some", "that", "the", "then", "there", "these", "this", "those", "to",
               "two", "what", "when", "where", "which", "who", "why", "with"}


def imperative(summary: str) -> bool:
    """Whether a summary seems to start with a verb in the imperative."""
    word = re.split(r"[\s,;:]", summary, maxsplit=1)[0]
    if not re.fullmatch(r"[a-z]+(?:-[a-z]+)*", word) or word in OTHER_WORDS:
        return False
    return word in VERBS or not re.search(r"(?:s|ed|ing)$", word)


def problems(message: str, lines: int) -> list[str]:
    """What is wrong with the message of a change of so many lines (added plus deleted)."""
    headline, _, rest = message.strip("\n").partition("\n")
    if OF_GIT.match(headline):
        return []
    found = []
    if len(headline) > HEADLINE_COLUMNS:
        found.append(f"the headline has {len(headline)} columns; expected at most {HEADLINE_COLUMNS}")
    match = HEADLINE.fullmatch(headline)
    if match is None:
        found.append("expected 'area: summary', where the area is one folder, such as compiler/plan")
    elif not imperative(match["summary"]):
        found.append(f"expected a verb in the imperative, in lower case, found '{match['summary'].split()[0]}' "
                     "(write 'add', not 'adds', 'added' or 'adding')")
    elif headline.endswith("."):
        found.append("the headline ends with a period")
    if rest and rest.split("\n", 1)[0].strip():
        found.append("expected an empty line after the headline")
    if lines > LINES_WITHOUT_BODY and not rest.strip():
        found.append(f"the change has {lines} lines and the message has no body; say why in a few sentences")
    return found


def changed_lines(numstat: str) -> int:
    """Added plus deleted lines, from the output of `git diff --numstat`. Binary files count as none."""
    return sum(int(word) for line in numstat.splitlines() for word in line.split("\t")[:2] if word.isdigit())


def main() -> int:
    """Prints what is wrong with the message in the file."""
    text = Path(sys.argv[1]).read_text(encoding="utf-8").split("\n# ------------------------ >8", 1)[0]
    message = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    if not message.strip():
        return 0  # git refuses it
    staged = subprocess.run(["git", "diff", "--cached", "--numstat"], check=True, capture_output=True, text=True).stdout
    found = problems(message, changed_lines(staged))
    for problem in found:
        print(f"commit-msg: {problem}", file=sys.stderr)
    if found:
        print("commit-msg: docs/style.md#commits has the rules; your message is kept in .git/COMMIT_EDITMSG",
              file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
