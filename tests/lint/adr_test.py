"""Decision records: numbers are unique, the index lists each record once, and each reference names a record.

A record is docs/adr/NNNN-slug.md with the heading `# N. Title`; the index by theme is docs/adr/README.md. References
are `ADR N` and docs/adr/NNNN, with or without the slug, in documents and in comments of all sources.
"""

from __future__ import annotations

import re
import sys
from collections import Counter

from sources import ROOT, files

FOLDER = ROOT / "docs/adr"
OWN_TEST = ROOT / "tests/lint/words_tools_test.py"  # its trees have records of their own
INDEX = FOLDER / "README.md"
FILE = re.compile(r"(\d{4})-[a-z0-9]+(?:-[a-z0-9]+)*\.md")
HEADING = re.compile(r"# (\d+)\. (\S.*)")
ENTRY = re.compile(r"\[(\d+)\. ([^\]]+)\]\(([^)#]+)\)")
BY_NUMBER = re.compile(r"\bADRs? ([\d]+(?:(?:, | and |, and )[\d]+)*)")
BY_PATH = re.compile(r"\badr/(\d{4})((?:-[a-z0-9-]+)?)(?:\.md)?")
TEXT = ("", ".md", ".hpp", ".cpp", ".h", ".c", ".S", ".ld", ".sv", ".svh", ".vlt", ".py", ".toml", ".txt", ".cmake",
        ".in", ".yml", ".fbs", ".proto")


def records() -> tuple[dict[int, tuple[str, str]], list[str]]:
    """By number: file name and title; and what is wrong with files and headings."""
    found: dict[int, tuple[str, str]] = {}
    errors = []
    for path in files(".md"):
        if path.parent != FOLDER or path == INDEX:
            continue
        name = FILE.fullmatch(path.name)
        heading = HEADING.fullmatch(path.read_text(encoding="utf-8").split("\n", 1)[0])
        if name is None:
            errors.append(f"docs/adr/{path.name}: expected a name such as 0007-short-title.md")
        elif heading is None or int(heading[1]) != int(name[1]):
            errors.append(f"docs/adr/{path.name}: expected the heading '# {int(name[1])}. Title'")
        elif int(name[1]) in found:
            errors.append(f"docs/adr/{path.name}: {found[int(name[1])][0]} has the same number; take the next free one")
        else:
            found[int(name[1])] = (path.name, heading[2])
    return found, errors


def index_errors(known: dict[int, tuple[str, str]]) -> list[str]:
    """How the index differs from the records."""
    entries = ENTRY.findall(" ".join(INDEX.read_text(encoding="utf-8").split())) if INDEX.is_file() else []
    errors = []
    for number, title, target in entries:
        if known.get(int(number)) != (target, title):
            errors.append(f"docs/adr/README.md: the entry '{number}. {title}' ({target}) differs from the record")
    count = Counter(int(number) for number, _, _ in entries)
    errors += [f"docs/adr/README.md: lists {number} {count[number]} times, expected once: add "
               f"[{number}. {title}]({name}) to its theme" for number, (name, title) in sorted(known.items())
               if count[number] != 1]
    return errors


def reference_errors(known: dict[int, tuple[str, str]]) -> list[str]:
    """References to records that do not exist."""
    slugs = {int(name[:4]): name[4:-len(".md")] for name, _ in known.values()}
    errors = []
    for path in files(*TEXT):
        if path == OWN_TEST:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        where = path.relative_to(ROOT).as_posix()
        for match in BY_NUMBER.finditer(text):
            errors += [f"{where}:{text.count(chr(10), 0, match.start()) + 1}: ADR {number} does not exist"
                       for number in re.findall(r"\d+", match[1]) if int(number) not in slugs]
        for match in BY_PATH.finditer(text):
            expected = slugs.get(int(match[1]))
            if expected is None or match[2] not in ("", expected):
                line = text.count("\n", 0, match.start()) + 1
                hint = "" if expected is None else f"; its name is {match[1]}{expected}.md"
                errors.append(f"{where}:{line}: docs/adr/{match[1]}{match[2]} does not exist{hint}")
    return errors


def main() -> int:
    """Prints what is wrong."""
    known, errors = records()
    errors += index_errors(known) + reference_errors(known)
    print("\n".join(errors) if errors else f"decision records: {len(known)}, all in the index, all references good")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
