"""Fails when a C++ or C file differs from what clang-format makes of it. Usage: format_test.py CLANG_FORMAT"""

from __future__ import annotations

import re
import subprocess
import sys

from sources import ROOT, files

COLUMNS = 100
COMMENT = re.compile(r"\s*(//|/?\*)")


def long_comments() -> list[str]:
    """Comment lines that are too long: clang-format leaves comments alone, so that it cannot destroy drawings."""
    return [f"{path.relative_to(ROOT)}:{number}" for path in files(".hpp", ".cpp", ".h", ".c")
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if len(line) > COLUMNS and COMMENT.match(line)]


def main() -> int:
    """Lists the files that are not formatted."""
    names = [str(path) for path in files(".hpp", ".cpp", ".h", ".c")]
    run = subprocess.run([sys.argv[1], "--dry-run", *names], capture_output=True, text=True, cwd=ROOT, check=False)
    bad = sorted({line.split(":")[0] for line in run.stderr.splitlines() if "clang-format-violations" in line})
    for name in bad:
        print(f"not formatted: {name}; run clang-format -i on it")
    long = long_comments()
    for name in long:
        print(f"{name}: a comment of more than {COLUMNS} columns; break it by hand")
    return 1 if bad or long or run.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
