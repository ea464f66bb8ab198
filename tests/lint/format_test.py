"""Fails when a C++ or C file differs from what clang-format makes of it, or prints text that it should not.

Usage: format_test.py CLANG_FORMAT
"""

from __future__ import annotations

import re
import subprocess
import sys

from sources import ROOT, files

COLUMNS = 100
# Commands show text of files and other processes: it goes through base/terminal, which makes it printable.
COMMANDS = ("analysis", "cli", "host_driver", "training", "monitor", "compiler", "client")
RAW_PRINT = re.compile(r"\bfmt::print\(")
# Locks whose members clang's analysis of threads knows (base/sync/mutex.hpp).
ANNOTATED = ("client", "host_driver", "pjrt_plugin", "tlm_model/kernel/job_pool")
RAW_LOCK = re.compile(r"\bstd::(?:mutex|lock_guard|unique_lock|scoped_lock|condition_variable)\b")
COMMENT = re.compile(r"\s*(//|/?\*)")


def long_comments() -> list[str]:
    """Comment lines that are too long: clang-format leaves comments alone, so that it cannot destroy drawings."""
    return [f"{path.relative_to(ROOT)}:{number}" for path in files(".hpp", ".cpp", ".h", ".c")
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if len(line) > COLUMNS and COMMENT.match(line)]


def raw_prints() -> list[str]:
    """Lines of commands that print what a file may have a part in as it is."""
    return [f"{path.relative_to(ROOT)}:{number}" for path in files(".hpp", ".cpp")
            if path.relative_to(ROOT).parts[0] in COMMANDS
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if RAW_PRINT.search(line)]


def raw_locks() -> list[str]:
    """Lines with locks of the standard library, which have no annotations."""
    found = []
    for path in files(".hpp", ".cpp"):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(ANNOTATED):
            lines = path.read_text(encoding="utf-8").splitlines()
            found += [f"{name}:{number}" for number, line in enumerate(lines, 1) if RAW_LOCK.search(line)]
    return found


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
    raw = raw_prints()
    for name in raw:
        print(f"{name}: fmt::print; use spec::print of terminal/printable_text.hpp")
    locks = raw_locks()
    for name in locks:
        print(f"{name}: a lock without annotations; use base::Mutex, MutexLock and CondVar of sync/mutex.hpp")
    return 1 if bad or long or raw or locks or run.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
