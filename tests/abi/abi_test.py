"""The interfaces of C and C++ change as the version says (docs/releases.md), compared with the record of the last
version.

C: abidiff (Debian's abigail-tools) compares tpu/tpu.h with tests/abi/c.abi: calls, structs, enums. C++: the symbols
that libtpuboard.so shows, and size and members of the public classes, are compared with tests/abi/cpp.txt.

What is gone or changed needs a new minor version before 1.0, else a new major one. What is new needs a new patch
version before 1.0, else a new minor one. A version that is not released (no tag) may change its own record:
--update.

Usage: abi_test.py --build DIR [--only c|cpp] [--update]
Exit code: 77 if abigail-tools or the library are missing.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/abi"
RECORD = {"c": HERE / "c.abi", "cpp": HERE / "cpp.txt"}
VERSION = HERE / "version.txt"
SKIPPED = 77
DECLARATION = re.compile(r"^(?!typedef|extern)[\w ]+[\w*] \**tpu_\w+\((?:[^;{}()]|\([^()]*\))*\);", re.MULTILINE)
CLASS = re.compile(r"^(?<!>\n)(?:class|struct) (\w+)[^;{]*{", re.MULTILINE)  # of no template
DUMP = ("abidw", "--no-comp-dir-path", "--no-corpus-path", "--no-show-locs")
FLAGS = ("-g", "-w", "-shared", "-fPIC")
# What abidiff returns: 4 = a difference, 8 = an incompatible one.
CHANGED, BROKEN = 4, 8


def output_of(*command: str | Path) -> str:
    """Standard output; the text of a failure is in the exception."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"abi: {' '.join(map(str, command[:3]))} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def c_dump(work: Path, header: Path = ROOT / "c_api/include") -> str:
    """ABI of the C header: a library that defines every call of it, with debug information."""
    plain = output_of("gcc", "-E", "-P", header / "tpu/tpu.h")
    calls = DECLARATION.findall(plain)
    source, library = work / "calls.c", work / "libcalls.so"
    source.write_text('#include "tpu/tpu.h"\n' + "\n".join(f"{call[:-1]} {{ __builtin_trap(); }}" for call in calls),
                      "utf-8")
    output_of("gcc", *FLAGS, "-I", header, source, "-o", library)
    return output_of(*DUMP, library)


def class_layouts(dump: str, wanted: set[str]) -> list[str]:
    """A line for each class with its size in bits and its members with their offsets."""
    lines = set()

    def visit(node: ET.Element, scope: tuple[str, ...]) -> None:
        for child in node:
            name = child.get("name", "")
            if child.tag == "namespace-decl":
                visit(child, (*scope, name))
            elif child.tag == "class-decl" and scope[:1] == ("tpu",) and name in wanted and child.get("size-in-bits"):
                members = [f"{variable.get('name')}@{member.get('layout-offset-in-bits')}"
                           for member in child.findall("data-member") for variable in member.findall("var-decl")
                           if member.get("layout-offset-in-bits") is not None]
                lines.add(f"class {'::'.join((*scope, name))} {child.get('size-in-bits')} {' '.join(members)}".rstrip())
            if child.tag == "abi-instr":
                visit(child, scope)

    visit(ET.fromstring(dump), ())
    return sorted(lines)


def cpp_dump(work: Path, build: Path) -> str:
    """Symbols and class layouts of the C++ interface."""
    library = build / "host_driver/libtpuboard.so"
    names = set()
    for folder in ("host_driver/include/tpu", "base/include/tpu"):
        for path in (ROOT / folder).glob("*.hpp"):
            names |= set(CLASS.findall(path.read_text("utf-8")))
    source, made = work / "all.cpp", work / "liball.so"
    # A pointer to each class that tpu.hpp shows keeps its layout in the debug information.
    listed = set(re.findall(r"^using driver::(\w+);", (ROOT / "host_driver/include/tpu/tpu.hpp").read_text("utf-8"),
                            re.MULTILINE))
    keeps = "\n".join(f"tpu::driver::{name}* keep_{name};" for name in sorted(names & listed))
    source.write_text(f'#include "tpu/tpu.hpp"\n{keeps}\n', "utf-8")
    includes = [ROOT / "host_driver/include", ROOT / "base/include", ROOT / "spec/sim", build / "host_driver/include",
                build / "spec/include"]
    output_of("g++", "-std=c++20", *FLAGS, *(f"-I{path}" for path in includes), source, "-o", made)
    symbols = [line.split()[2] for line in output_of("nm", "-D", "--defined-only", library).splitlines()]
    return "\n".join([*(f"symbol {symbol}" for symbol in sorted(symbols)),
                      *class_layouts(output_of(*DUMP, made), names)]) + "\n"


def compare_c(work: Path, dump: str) -> tuple[str, str]:
    """How the C interface differs: "", "new" or "broken", and the report."""
    now = work / "now.abi"
    now.write_text(dump, "utf-8")
    done = subprocess.run(["abidiff", str(RECORD["c"]), str(now)], check=False, capture_output=True, text=True)
    if done.returncode & ~(CHANGED | BROKEN):
        raise SystemExit(f"abi: abidiff failed:\n{done.stderr}")
    # abidiff calls a removed or changed call a difference that may be compatible.
    counts = re.findall(r"changes summary: (\d+) Removed, (\d+) Changed", done.stdout)
    broken = done.returncode & BROKEN or any(count != "0" for each in counts for count in each)
    return ("broken" if broken else "new" if done.returncode else ""), done.stdout


def compare_cpp(dump: str) -> tuple[str, str]:
    """How the C++ interface differs."""
    old, now = set(RECORD["cpp"].read_text("utf-8").splitlines()), set(dump.splitlines())
    gone, new = sorted(old - now), sorted(now - old)
    report = "\n".join([*(f"- {line}" for line in gone), *(f"+ {line}" for line in new)])
    return ("broken" if gone else "new" if new else ""), report


def enough(change: str, recorded: tuple[int, ...], now: tuple[int, ...]) -> bool:
    """Whether the version was raised as the change asks for."""
    parts = {"new": 2, "broken": 1} if now[0] == 0 else {"new": 1, "broken": 0}
    return now[:parts[change] + 1] > recorded[:parts[change] + 1] if change else True


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--only", choices=("c", "cpp"))
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    build = options.build.resolve()
    kinds = [options.only] if options.only else ["c", "cpp"]
    if shutil.which("abidw") is None or ("cpp" in kinds and not (build / "host_driver/libtpuboard.so").exists()):
        print("abi: abidw or libtpuboard.so is missing: sim_scripts/setup --tests; build tpu_driver_shared")
        return SKIPPED
    found = re.search(r"project\(tpuboard VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text("utf-8"))
    assert found is not None
    version, errors = found[1], []
    recorded = VERSION.read_text("ascii").strip() if VERSION.exists() else version
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        dumps = {kind: c_dump(work) if kind == "c" else cpp_dump(work, build) for kind in kinds}
        if options.update:
            for kind, dump in dumps.items():
                RECORD[kind].write_text(dump, "utf-8")
            VERSION.write_text(f"{version}\n", "ascii")
            return 0
        for kind, dump in dumps.items():
            change, report = compare_c(work, dump) if kind == "c" else compare_cpp(dump)
            if not enough(change, *(tuple(map(int, each.split("."))) for each in (recorded, version))):
                errors.append(f"the interface of {kind} is {change} against the record of {recorded}:\n{report}\n"
                              f"raise the version (docs/releases.md), or, if {version} is not released, run "
                              f"tests/abi/abi_test.py --build {options.build} --only {kind} --update")
    print("\n".join(errors) if errors else f"the interfaces are as version {version} says")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
