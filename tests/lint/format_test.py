"""Fails when a C++ or C file differs from what clang-format makes of it. Usage: format_test.py CLANG_FORMAT"""

from __future__ import annotations

import subprocess
import sys

from sources import ROOT, files


def main() -> int:
    """Lists the files that are not formatted."""
    names = [str(path) for path in files(".hpp", ".cpp", ".h", ".c")]
    run = subprocess.run([sys.argv[1], "--dry-run", *names], capture_output=True, text=True, cwd=ROOT, check=False)
    bad = sorted({line.split(":")[0] for line in run.stderr.splitlines() if "clang-format-violations" in line})
    for name in bad:
        print(f"not formatted: {name}; run clang-format -i on it")
    return 1 if bad or run.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
