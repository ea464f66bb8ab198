#!/usr/bin/env python3
"""Breaks the long lines of Markdown pages at 120 columns: paragraphs and list items that have one are filled anew.

Headings, tables, code blocks and link definitions stay as they are; a code span is not broken. The rendered page does
not change. Usage: sim_scripts/wrap.py PAGE...
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

COLUMNS = 120
ITEM = re.compile(r"(\s*(?:[-*+]|\d+[.)]) +)\S")
FIXED = re.compile(r"\s*(?:#{1,6} |\||>|<|!\[|\[[^\]]+\]: |$)")
FENCE = re.compile(r"\s*(```|~~~)")
GLUE = "\0"  # a space where no line is broken: in a code span, and in front of what opens a list where it starts a line
MARK = re.compile(r" (?=(?:[-*+]|#+|\d+[.)]) |[>|])")


def fill(lines: list[str]) -> list[str]:
    """A paragraph or list item in lines of at most COLUMNS, if it has a longer one."""
    if all(len(line) <= COLUMNS for line in lines):
        return lines
    item = ITEM.match(lines[0])
    first = item[1] if item else re.match(r"\s*", lines[0])[0]
    rest = " " * len(first)
    text = " ".join(" ".join([lines[0][len(first):], *lines[1:]]).split())
    text = re.sub(r"`[^`]*`", lambda span: span[0].replace(" ", GLUE), text)
    filled = textwrap.wrap(MARK.sub(GLUE, text), COLUMNS, initial_indent=first, subsequent_indent=rest,
                           break_long_words=False, break_on_hyphens=False)
    return [line.replace(GLUE, " ") for line in filled]


def wrap(text: str) -> str:
    """A page with its long lines broken."""
    done: list[str] = []
    block: list[str] = []
    fenced = False
    for line in [*text.splitlines(), ""]:
        fence = FENCE.match(line)
        fixed = fenced or fence or FIXED.match(line) or (not block and line.startswith("    ") and not ITEM.match(line))
        if fixed or ITEM.match(line):
            done += fill(block) if block else []
            block = []
        if fixed:
            done.append(line)
        else:
            block.append(line)
        fenced ^= bool(fence)
    return "\n".join(done[:-1]) + "\n"


def main() -> int:
    """Rewrites the pages."""
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(wrap(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
