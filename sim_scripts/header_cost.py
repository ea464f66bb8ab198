#!/usr/bin/env python3
"""What each header costs the compiler: CPU seconds to parse it alone, and in how many sources it ends up.

Usage: sim_scripts/header_cost.py [--build build/dev] [--only PATTERN] [--jobs N] [--check]

Needs a configured build folder (its compile_commands.json; a preset without unity builds, as dev) and nothing but the
compiler of that build. Every header is parsed as its own source with the flags of the first source that includes it,
so a header that leaves out an include of its own shows up as an error: --check lists those alone and fails.
Columns: seconds alone, sources that include it directly or not, their product, the header.
"""

import argparse
import json
import os
import re
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+([<"])([^>"]+)[>"]', re.MULTILINE)
NOT_ALONE = {"foreach_target.h", "highway.h"}  # included again and again by design


class Source:
    """One entry of the compilation database."""

    def __init__(self, entry: dict[str, str]) -> None:
        self.path = Path(entry["directory"], entry["file"]).resolve()
        words = shlex.split(entry["command"])
        while Path(words[0]).name in ("ccache", "sccache"):
            words = words[1:]
        self.compiler = words[0]
        self.flags = [w for w in words[1:] if w.startswith(("-D", "-f", "-m", "-std", "-I"))]
        self.folders = [Path(w[2:]) for w in words if w.startswith("-I")]
        for at, word in enumerate(words):
            if word in ("-isystem", "-include"):
                self.flags += [word, words[at + 1]]


class Headers:
    """Include graph of the project's own files, by name; headers of the system are its leaves."""

    def __init__(self) -> None:
        self.texts: dict[Path, list[tuple[str, str]]] = {}
        self.users: dict[str, list[Source]] = {}

    def includes(self, path: Path) -> list[tuple[str, str]]:
        """Pairs (bracket, name) of a file."""
        if path not in self.texts:
            self.texts[path] = INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace"))
        return self.texts[path]

    def reached(self, source: Source) -> Iterator[str]:
        """The headers of a source: paths of ours, <names> of the system's that ours include directly."""
        seen: set[str] = set()
        waiting = [source.path]
        while waiting:
            path = waiting.pop()
            for bracket, name in self.includes(path):
                found = None
                if bracket == '"':
                    places = (folder / name for folder in (path.parent, *source.folders))
                    found = next((p.resolve() for p in places if p.is_file()), None)
                key = f"<{name}>" if found is None else str(found)
                if key in seen:
                    continue
                seen.add(key)
                yield key
                if found is not None and found.suffix in (".hpp", ".h"):
                    waiting.append(found)

    def add(self, source: Source) -> None:
        for key in self.reached(source):
            self.users.setdefault(key, []).append(source)


def parse_alone(header: str, source: Source) -> tuple[float, str]:
    """CPU seconds to parse a header as a source of its own, and the first error."""
    line = f"#include {header}" if header.startswith("<") else f'#include "{header}"'
    command = [source.compiler, *source.flags, "-w", "-fsyntax-only", "-x", "c++", "-"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(line + "\n")
    process.stdin.close()
    error = next((text.strip() for text in process.stderr if "error" in text), "")
    process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return seconds_of(usage), error or ("the compiler failed" if process.returncode else "")


def seconds_of(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default="build/dev", help="configured build folder (default build/dev)")
    parser.add_argument("--only", default="", help="only headers whose path matches this regular expression")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    parser.add_argument("--check", action="store_true", help="only list headers that do not compile alone; fail if any")
    args = parser.parse_args()
    database = ROOT / args.build / "compile_commands.json"
    if not database.is_file():
        print(
            f"header_cost: there is no {database}; configure first: cmake --preset dev, and build tpu_spec_headers",
            file=sys.stderr,
        )
        return 2
    headers = Headers()
    for entry in json.loads(database.read_text(encoding="utf-8")):
        path = Path(entry["directory"], entry["file"]).resolve()
        if path.suffix == ".cpp" and path.is_relative_to(ROOT) and "Unity" not in path.parts and path.is_file():
            headers.add(Source(entry))
    alone = [key for key in headers.users if Path(key.strip("<>")).name not in NOT_ALONE]
    wanted = sorted(key for key in alone if re.search(args.only, key))
    if args.check:
        wanted = [key for key in wanted if key.startswith(str(ROOT)) and not key.endswith((".inc", ".cpp"))]
    with ThreadPoolExecutor(args.jobs) as pool:
        found = list(pool.map(lambda key: parse_alone(key, headers.users[key][0]), wanted))
    rows = sorted(
        ((cost, len(headers.users[key]), key, error) for key, (cost, error) in zip(wanted, found, strict=True)),
        key=lambda row: -row[0] * row[1],
    )
    bad = [(key, error) for _, _, key, error in rows if error]
    if not args.check:
        print("alone s  sources  product s  header")
        for cost, sources, key, _ in rows:
            print(f"{cost:7.2f}  {sources:7}  {cost * sources:9.1f}  {key.removeprefix(f'{ROOT}/')}")
    for key, error in bad:
        print(f"{key.removeprefix(f'{ROOT}/')}: does not compile alone: {error}", file=sys.stderr)
    return 1 if bad and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
