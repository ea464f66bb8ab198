"""Refuses targets whose compilation has become a tenth more expensive than tests/lint/compile_cost.toml allows.

Usage: compile_cost_test.py --build build/ci [--update]

Measured times differ from run to run; here the cost is computed, so that two builds of the same sources agree. The
model is what `sim_scripts/build_cost.py` measured over the 110 objects of a release build (correlation 0.95): a unit
for 9.4 MB of sources and headers that an object reads, and a unit for 79 kB of machine code in it. Both figures come
from the finished build: its dependency log, and the sections of its objects.

--update writes the list again. A commit that does so says why a target has become more expensive.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

from sources import ROOT

LIST = Path(__file__).with_name("compile_cost.toml")
UNITS_PER_BYTE_READ = 1 / 9.4e6
UNITS_PER_BYTE_OF_CODE = 1 / 79e3
SLACK, SMALLEST = 0.10, 0.25  # a target may grow by a tenth, a small one by a quarter of a unit
SKIPPED = 77
OBJECT = re.compile(r"^(?!tests/|benchmarks/)\S*CMakeFiles/([^/]+)\.dir/\S+\.o$")
HEAD = """# Computed cost of compiling each target of a unity build, in units (sim_scripts/build_cost.py). Checked and
# written by tests/lint/compile_cost_test.py. The list is for this compiler and this batch size.
"""


def settings(build: Path) -> dict[str, str]:
    """What the figures depend on: compiler and batch size; empty where the build joins no sources or is no release."""
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (build / "CMakeCache.txt").read_text(encoding="utf-8"), re.MULTILINE))
    if cache.get("CMAKE_UNITY_BUILD") != "ON" or cache.get("CMAKE_BUILD_TYPE") != "Release":
        return {}
    version = subprocess.run([cache["CMAKE_CXX_COMPILER"], "-dumpfullversion"], check=True, capture_output=True,
                             text=True).stdout.strip()
    return {"compiler": f"g++ {version}", "batch": cache.get("CMAKE_UNITY_BUILD_BATCH_SIZE", "")}


def read_files(build: Path) -> dict[str, list[str]]:
    """Object -> every file that its compilation read."""
    log = subprocess.run(["ninja", "-C", str(build), "-t", "deps"], check=True, capture_output=True, text=True).stdout
    found: dict[str, list[str]] = {}
    files: list[str] = []
    for line in log.splitlines():
        if line.startswith(" "):
            files.append(line.strip())
        elif ": #deps" in line:
            files = found.setdefault(line.partition(":")[0], [])
    return found


def code_bytes(objects: list[Path]) -> list[int]:
    """Bytes of machine code in each object."""
    command = ["size", "--format=sysv", *map(str, objects)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    counts: list[int] = []
    for line in text.splitlines():
        if line.rstrip().endswith(":") and ".o " in line:
            counts.append(0)
        elif line.startswith(".text"):
            counts[-1] += int(line.split()[1])
    return counts


def costs(build: Path) -> dict[str, float]:
    """Target -> units."""
    sizes: dict[str, int] = {}

    def size(name: str) -> int:
        if name not in sizes:
            path = build / name
            sizes[name] = path.stat().st_size if path.exists() else 0
        return sizes[name]

    logged = read_files(build)
    objects = {name: match[1] for name in logged if (match := OBJECT.match(name)) and (build / name).exists()}
    units: dict[str, float] = defaultdict(float)
    for name, code in zip(objects, code_bytes([build / name for name in objects]), strict=True):
        read = sum(size(file) for file in set(logged[name]))
        units[objects[name]] += read * UNITS_PER_BYTE_READ + code * UNITS_PER_BYTE_OF_CODE
    return dict(units)


def errors(found: dict[str, float], listed: dict[str, float]) -> list[str]:
    """One line for each target that grew, and for each that the list lacks."""
    lines = []
    for target, units in sorted(found.items()):
        if target not in listed:
            lines.append(f"{target}: {units:.2f} units, not listed")
        elif units > max(listed[target] * (1 + SLACK), listed[target] + SMALLEST):
            lines.append(f"{target}: {units:.2f} units, expected at most {1 + SLACK:.1f} x {listed[target]:.2f}")
    return lines


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--list", type=Path, default=LIST)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    build = args.build.resolve()
    mine = settings(build)
    if not mine:
        print(f"{build} is not a release build that joins sources: nothing to compare")
        return SKIPPED
    found = costs(build)
    if args.update:
        rows = "".join(f"{target} = {units:.2f}\n" for target, units in sorted(found.items()))
        head = "".join(f'{key} = "{value}"\n' for key, value in mine.items())
        args.list.write_text(f"{HEAD}\n{head}\n[units]\n{rows}", encoding="utf-8")
        return 0
    table = tomllib.loads(args.list.read_text(encoding="utf-8"))
    if any(table[key] != value for key, value in mine.items()):
        print(f"the list is for {table['compiler']} and batches of {table['batch']}, the build has {mine}")
        return SKIPPED
    lines = errors(found, table["units"])
    print(f"{sum(found.values()):.1f} units in {len(found)} targets, listed {sum(table['units'].values()):.1f}")
    if lines:
        print("\n".join(lines))
        print(f"reduce what these targets include and instantiate (sim_scripts/header_cost.py), or run "
              f"{Path(__file__).resolve().relative_to(ROOT)} --build {args.build} --update and say why in the commit")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
