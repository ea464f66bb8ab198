"""Refuses a switch over op kinds whose `default` may ignore a new kind in silence.

A switch over compiler::Kind names the groups of the table that share a branch (`TPU_CASES(SOURCE, MATRIX)`), so that
the compiler finds a new kind. A `default` must throw, or say in a comment behind it what becomes of other kinds.
"""

from __future__ import annotations

import re
import sys

from sources import ROOT, files

SWITCH = re.compile(r"^( *)(?:.*\W)?switch \(.*\{$")
KINDS = re.compile(r"^\s+X\((k\w+), \"", re.MULTILINE)
LABEL = re.compile(r"\bcase Kind::(k\w+):|TPU_CASES\(")
LOUD = re.compile(r"\b(?:throw|fail|fail_unknown_kind|refuse|refuse_complex|unsupported)\b")


def faults(text: str, kinds: set[str]) -> list[int]:
    """Numbers of the lines with such a default."""
    lines = text.split("\n")
    found = []
    for start, line in enumerate(lines):
        head = SWITCH.match(line)
        if not head:
            continue
        indent = len(line) - len(line.lstrip())
        end = next((i for i in range(start + 1, len(lines)) if lines[i].startswith(" " * indent + "}")), len(lines))
        labels = [m for i in range(start, end) for m in LABEL.finditer(lines[i])]
        if not any(m[1] is None or m[1] in kinds for m in labels):
            continue
        for i in range(start + 1, end):
            if lines[i].startswith(" " * (indent + 2) + "default:") and "//" not in lines[i] and not LOUD.search(
                    "\n".join(lines[i:end])):
                found.append(i + 1)
    return found


def main() -> int:
    kinds = set(KINDS.findall((ROOT / "compiler/ir/op_kinds.hpp").read_text()))
    errors = [f"{path.relative_to(ROOT)}:{line}: this default may ignore a new kind of op; name the groups of "
              "compiler/ir/op_kinds.hpp with TPU_CASES(..), throw, or say in a comment what becomes of other kinds"
              for path in files(".cpp", ".hpp")
              if path.relative_to(ROOT).parts[0] == "compiler"
              for line in faults(path.read_text(), kinds)]
    print("\n".join(errors))
    return 1 if errors or not kinds else 0


if __name__ == "__main__":
    sys.exit(main())
