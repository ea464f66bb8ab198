#!/usr/bin/env python3
"""What a build costs the compiler: CPU seconds and units, by target and by source.

Usage: sim_scripts/build_cost.py [--build build/cost] [--preset release] [--target NAME ...] [--jobs N] [--top N]

Configures and builds into a folder of its own, without ccache. A unit is the CPU time of one
`g++ -O2 -std=c++20 -c` of a ten-line file that uses <regex>, <map> and <functional>, on the same host, taken before
and after the build: figures of different hosts and compilers can be compared. Sources that the folder holds already
compiled are not compiled again; their earlier cost is shown.
"""

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNIT = """#include <functional>
#include <map>
#include <regex>
#include <string>
std::map<std::string, std::function<bool(const std::string&)>> table;
void add(const std::string& name) {
  table[name] = [pattern = std::regex(name)](const std::string& text) {
    return std::regex_match(text, pattern);
  };
}
"""


def cpu_of(command: list[str]) -> tuple[int, float]:
    """Exit status of the command, and its CPU seconds (user and system, children included)."""
    child = subprocess.Popen(command)
    _, status, usage = os.wait4(child.pid, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def launch(log: str, command: list[str]) -> int:
    """Runs one compilation in place of CMake's compiler launcher and appends its cost to the log."""
    code, seconds = cpu_of(command)
    if code == 0 and "-o" in command:
        line = f"{seconds:.3f}\t{command[command.index('-o') + 1]}\n"
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(line)
    return code


def unit_seconds(compiler: str, runs: int = 5) -> float:
    """CPU seconds of one unit on this host: the median of some runs."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "unit.cpp")
        source.write_text(UNIT, encoding="utf-8")
        command = [compiler, "-O2", "-std=c++20", "-c", str(source), "-o", str(source.with_suffix(".o"))]
        return statistics.median(cpu_of(command)[1] for _ in range(runs))


def costs(log: Path) -> dict[str, float]:
    """Object file -> CPU seconds of its latest compilation."""
    found = {}
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else []:
        seconds, name = line.split("\t")
        found[name] = float(seconds)
    return found


def target_of(name: str) -> str:
    """The CMake target of an object file."""
    match = re.search(r"CMakeFiles/([^/]+)\.dir/", name)
    return match[1] if match else "other"


def report(found: dict[str, float], rest: float, unit: float, top: int) -> None:
    """Prints the tables: whole build, targets and sources, most expensive first."""
    compiled = sum(found.values())
    print(f"unit: {unit:.2f} s CPU; compilers {compiled:.0f} s = {compiled / unit:.1f} units; "
          f"all other steps of this build {rest:.0f} s = {rest / unit:.1f} units")
    targets: dict[str, list[float]] = defaultdict(list)
    for name, seconds in found.items():
        targets[target_of(name)].append(seconds)
    print("\nunits  seconds  sources  target")
    for name, each in sorted(targets.items(), key=lambda item: -sum(item[1])):
        print(f"{sum(each) / unit:5.2f} {sum(each):8.1f} {len(each):8}  {name}")
    print("\nunits  seconds  object")
    for name, seconds in sorted(found.items(), key=lambda item: -item[1])[:top]:
        print(f"{seconds / unit:5.2f} {seconds:8.1f}  {name}")


def main() -> int:
    """Entry point; with --launch the compiler launcher of such a build."""
    if len(sys.argv) > 3 and sys.argv[1] == "--launch":
        return launch(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/cost")
    parser.add_argument("--preset", default="release")
    parser.add_argument("--target", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--top", type=int, default=25)
    args = parser.parse_args()
    build = (ROOT / args.build).resolve()
    build.mkdir(parents=True, exist_ok=True)
    log = build / "compile_cost.tsv"
    launcher = f"{sys.executable};{Path(__file__).resolve()};--launch;{log}"
    before = unit_seconds("g++")
    subprocess.run(["cmake", "--preset", args.preset, "-B", str(build), f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}",
                    f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    old = costs(log)
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["cmake", "--build", str(build), "-j", str(args.jobs)]
    code = subprocess.run([*command, *(["--target", *args.target] if args.target else [])], check=False).returncode
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    whole = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    found = costs(log)
    rest = whole - sum(seconds for name, seconds in found.items() if old.get(name) != seconds)
    report(found, rest, statistics.mean([before, unit_seconds("g++")]), args.top)
    return code


if __name__ == "__main__":
    sys.exit(main())
