#!/usr/bin/env python3
"""The table "What works" of docs/tensorflow.md, made from the programs that test it.

Usage: tensorflow_support.py [--check]
A row is a call of `works(what, state)` in a program of tests/tensorflow/programs, behind the checks that show it: a
program that passes has passed all of its rows. Only programs of tests/tensorflow/CMakeLists.txt count. With --check
nothing is written, and the exit code is 1 if the page has another table.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests/tensorflow"
PAGE = ROOT / "docs/tensorflow.md"
BEGIN, END = "<!-- made by sim_scripts/tensorflow_support.py -->\n", "<!-- end -->\n"


def programs_of(listing: str, there: set[str]) -> list[str]:
    """Programs that tests run, in the order of their tests: the names behind PROGRAM."""
    found: list[str] = []
    for names in re.findall(r"\bPROGRAM ([^)]*)\)", listing):
        found += [name for name in names.split() if name in there and name not in found]
    return found


def rows_of(source: str, name: str) -> list[tuple[str, str]]:
    """The calls of `works` at the top of a program, where it cannot get around them."""
    rows = []
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "works"]
    top = [node.value for node in tree.body if isinstance(node, ast.Expr)]
    for call in calls:
        if call not in top:
            sys.exit(f"tensorflow_support: {name}.py:{call.lineno}: works() in a branch or a function; call it at the "
                     "top of the program, behind its checks")
        what, state = (ast.literal_eval(argument) for argument in call.args)
        rows.append((what, state))
    return rows


def table(folder: Path = TESTS) -> str:
    sources = {path.stem: path.read_text("utf-8") for path in (folder / "programs").glob("*.py")}
    lines = ["| What | State | Test |", "|---|---|---|"]
    for name in programs_of((folder / "CMakeLists.txt").read_text("utf-8"), set(sources)):
        lines += [f"| {what} | {state} | `{name}` |" for what, state in rows_of(sources[name], name)]
    return "\n".join(lines) + "\n"


def with_table(page: str, made: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        sys.exit(f"tensorflow_support: the page has no lines {BEGIN.strip()} and {END.strip()}")
    return before + BEGIN + made + END + after


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    page = PAGE.read_text("utf-8")
    made = with_table(page, table())
    if parser.parse_args().check:
        if made != page:
            print(f"{PAGE.relative_to(ROOT)}: not the table of the programs; run sim_scripts/tensorflow_support.py")
        return int(made != page)
    PAGE.write_text(made, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
