"""clang-tidy by .clang-tidy, over all of our C++ or over the lines that differ from a base commit.

Usage: tidy.py --build DIR [--all | --locks | --base COMMIT] [--jobs N] [PATH ...]
  --build DIR    a configured build (compile_commands.json); what the compilers include is generated there first
  --all          every source, or every source below the PATHs
  --locks        every source of a library that names a lock, by the analysis of threads alone
                 (base/sync/thread_annotations.hpp): the compiler has it, and needs three quarters of clang-tidy's time.
                 Tests share no state with others; --all and changed lines have them
  --base COMMIT  only findings in lines that differ from it; default: TPU_TIDY_BASE, else where the branch left main, on
                 main itself its last RECENT commits. Without any (an export, a clone of one commit): exit code 77,
                 "skipped".
A changed header is looked at through one source that includes it. Sources of a library are read at once, as unity
builds compile them (docs/adr/0018-unity-builds.md); where that finds something, each of them is read alone. With --all
each is read alone from the start: an unused using-declaration hides behind other sources that use the name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from joined_names_test import UNJOINED, alone, owner
from sources import ROOT

PROGRAM = "clang-tidy-16"  # 14 cannot parse C++20's captured structured bindings
COMPILER = "clang++-16"  # comes with it
SOURCES = (".cpp", ".c")
HEADERS = (".hpp", ".h")
SKIPPED = 77
LOCKS = re.compile(r"\bMutexLock\b|\bMutexUnlock\b|\bFifoMutex\b|\bTPU_(?:GUARDED_BY|REQUIRES)\b|"
                   r"\bDoor::Entry\b|\bboard_impl\.hpp\b")
# Tests of the classes that share the state of a board call them from one thread, without the board lock.
ONE_THREAD = ROOT / "tests/unit/driver"
LOCK_CHECKS = ["-fsyntax-only", "-Wno-everything", "-Werror=thread-safety", "-fno-caret-diagnostics"]
JOINED = 24  # sources that clang-tidy reads at once: enough for their headers to count little
JOINED_LOCKS = 64  # with one check each of them takes little
RECENT = 10  # more than one integration of a few commits brings
# What g++ takes and clang does not, and what belongs to precompiled headers.
GCC_ONLY = re.compile(r"-W(no-)?(restrict|tsan|subobject-linkage|maybe-uninitialized|invalid-pch)$|"
                      r"-Woverloaded-virtual$|-fno-tree-loop-optimize$")
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def git(*words: str) -> str | None:
    """Output of git, None when it fails."""
    run = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return run.stdout.strip() if run.returncode == 0 else None


def default_base() -> str | None:
    """The commit that this branch started from; on main, the one before its last RECENT."""
    head = git("rev-parse", "HEAD")
    for main in ("origin/main", "main"):
        base = git("merge-base", "HEAD", main)
        if base and base != head:
            return base
    commits = (git("rev-list", "--first-parent", f"--max-count={RECENT + 1}", "HEAD") or "").split()
    return commits[-1] if len(commits) > 1 else None


def changed_lines(base: str) -> dict[Path, list[list[int]]]:
    """File -> ranges of lines that are not in the base, uncommitted ones included."""
    found: dict[Path, list[list[int]]] = {}
    ranges: list[list[int]] = []
    for line in (git("diff", "--unified=0", "--no-color", "--diff-filter=d", base) or "").splitlines():
        if line.startswith("+++ b/"):
            ranges = found.setdefault(ROOT / line.removeprefix("+++ b/"), [])
        elif hunk := HUNK.match(line):
            first, count = int(hunk.group(1)), int(hunk.group(2) or 1)
            if count:
                ranges.append([first, first + count - 1])
    return {path: lines for path, lines in found.items() if lines and path.suffix in SOURCES + HEADERS}


def plain(command: str, folder: str) -> list[str]:
    """Arguments of a compile command that clang takes too, without output and input."""
    words = shlex.split(command)
    kept: list[str] = []
    skip = False
    for n, word in enumerate(words):
        if skip:
            skip = False
        elif word in ("-o", "-c") or (word == "-include" and "cmake_pch" in words[n + 1]):
            skip = True
        elif (word.startswith("-") or words[n - 1] in ("-isystem", "-include", "-I")) and not GCC_ONLY.match(word):
            kept.append(word)
    return [*kept, "-Wthread-safety", "-Wno-unknown-warning-option", "-Wno-unused-command-line-argument",
            f"-working-directory={folder}"]


def compile_commands(build: Path) -> dict[Path, list[str]]:
    """Source -> arguments; of a unity build the arguments of the file that includes the source."""
    commands: dict[Path, list[str]] = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = Path(entry["file"])
        arguments = plain(entry["command"], entry["directory"])
        sources = [path]
        if path.name.startswith("unity_"):
            sources = [Path(name) for name in re.findall(r'#include "([^"]+)"', path.read_text(encoding="utf-8"))]
        for source in sources:
            # Sources that are compiled once more on emulated instructions.
            again = "simd_emulation" in entry["command"] and ROOT / "tests" not in source.parents
            if ROOT in source.parents and build not in source.parents and not again:
                unlocked = ["-Wno-thread-safety-analysis"] if ONE_THREAD in source.parents else []
                commands.setdefault(source, [*arguments, *unlocked])
    return commands


def includer(header: Path, commands: dict[Path, list[str]]) -> Path | None:
    """A source to see the header through: the one of its name, or the first that names it."""
    same = header.with_suffix(".cpp")
    if same in commands:
        return same
    needle = re.compile(rf'#include "[^"]*\b{re.escape(header.name)}"')
    return next((path for path in sorted(commands) if needle.search(path.read_text(encoding="utf-8"))), None)


def names_locks(source: Path) -> bool:
    """Whether a source, or the header of its name, uses an annotated lock."""
    header = source.with_suffix(".hpp")
    return any(LOCKS.search(path.read_text(encoding="utf-8")) for path in (source, header) if path.is_file())


def generate(build: Path) -> None:
    """Makes the headers that sources include: those of spec/, of FlatBuffers and of Verilator."""
    command = ["ninja", "-C", str(build), "-t", "targets", "all"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    headers = [line.split(": ")[0] for line in listed.stdout.splitlines()
               if line.endswith(": CUSTOM_COMMAND") and line.split(": ")[0].endswith(HEADERS)]
    run = subprocess.run(["ninja", "-C", str(build), *headers], capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"cannot generate the headers that the sources include:\n{run.stdout[-2000:]}")


def groups(sources: set[Path], commands: dict[Path, list[str]], most: int) -> list[list[Path]]:
    """Sources that can be read as one: of a library, with the same arguments, at most `most`."""
    found: dict[tuple[Path, tuple[str, ...]], list[Path]] = {}
    for path in sorted(sources):
        folder = owner(path)
        lone = path.relative_to(ROOT).parts[0] in UNJOINED or path.name in alone(folder) or path.suffix != ".cpp"
        found.setdefault((path if lone else folder, tuple(commands[path])), []).append(path)
    return [group[first : first + most] for group in found.values() for first in range(0, len(group), most)]


def joined(sources: list[Path], folder: str) -> Path:
    """A source that includes all of them; the only one itself."""
    if len(sources) == 1:
        return sources[0]
    source = Path(folder) / "joined.cpp"
    source.write_text("".join(f'#include "{path}"\n' for path in sources), encoding="utf-8")
    return source


def check_locks(sources: list[Path], arguments: list[str]) -> str:
    """What the analysis of threads finds in sources that are read as one, and in the headers that they include."""
    with tempfile.TemporaryDirectory() as folder:
        command = [COMPILER, *arguments, *LOCK_CHECKS, str(joined(sources, folder))]
        run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if run.returncode and not run.stderr.strip():
        return f"{', '.join(map(str, sources))}: {COMPILER} failed with exit code {run.returncode}"
    return run.stderr.strip()


def check(sources: list[Path], arguments: list[str], options: list[str], *, again: bool) -> str:
    """Findings in sources that are read as one, and in the headers that they include. With `again`, what is found in
    several sources counts if it is found in one of them alone: names of one may shadow those of another."""
    with tempfile.TemporaryDirectory() as folder:
        source = joined(sources, folder)
        if len(sources) > 1:
            options = [*options, f"--header-filter=^{re.escape(str(ROOT))}/"]
        (Path(folder) / "compile_commands.json").write_text(json.dumps(
            [{"directory": folder, "file": str(source), "arguments": ["clang", *arguments, "-c", str(source)]}]))
        command = [PROGRAM, "--quiet", "-p", folder, f"--config-file={ROOT / '.clang-tidy'}", *options, str(source)]
        run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if again and len(sources) > 1 and (run.returncode or run.stdout.strip()):
        return "\n".join(filter(None, (check([path], arguments, options, again=False) for path in sources)))
    if run.returncode and not run.stdout.strip():
        return f"{', '.join(map(str, sources))}: {PROGRAM} failed: {run.stderr[-2000:]}"
    return run.stdout.strip()


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--locks", action="store_true")
    parser.add_argument("--base", default=os.environ.get("TPU_TIDY_BASE") or None)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("path", type=Path, nargs="*")
    args = parser.parse_args()
    if shutil.which(PROGRAM) is None:
        print(f"{PROGRAM} is not installed; sim_scripts/setup --tests installs it")
        return 1
    build = args.build.resolve()
    commands = compile_commands(build)
    options = []
    if args.all or args.locks:
        roots = [path.resolve() for path in args.path] or [ROOT]
        wanted = {path for path in commands for root in roots if path == root or root in path.parents}
        if args.locks:
            wanted = {path for path in wanted
                      if names_locks(path) and path.relative_to(ROOT).parts[0] not in UNJOINED}
    else:
        base = args.base or default_base()
        if base is None:
            print("skipped: no base commit to compare with (no git history here)")
            return SKIPPED
        if git("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}") is None:
            print(f"{base} is no commit of this clone: fetch it, or name another by --base or TPU_TIDY_BASE")
            return 1
        changed = changed_lines(base)
        lines = json.dumps([{"name": str(path), "lines": ranges} for path, ranges in changed.items()])
        options = [f"--line-filter={lines}"]
        seen = {path if path in commands else includer(path, commands) for path in changed}
        wanted = {path for path in seen if path is not None}
        print(f"{len(changed)} files differ from {base[:12]}")
    if wanted:
        generate(build)
    read = groups(wanted, commands, 1 if args.all else JOINED_LOCKS if args.locks else JOINED)
    read.sort(key=len, reverse=True)  # those that take longest first

    def result_of(group: list[Path]) -> str:
        arguments = commands[group[0]]
        return check_locks(group, arguments) if args.locks else check(group, arguments, options, again=True)

    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(result_of, read))
    findings = sorted({line for text in results for line in text.splitlines() if re.search(r"(error|failed): ", line)})
    for text in dict.fromkeys(results):
        if text:
            print(text)
    print(f"{COMPILER if args.locks else PROGRAM}: {len(wanted)} sources, {len(findings)} findings")
    return 1 if findings or any(results) else 0


if __name__ == "__main__":
    sys.exit(main())
