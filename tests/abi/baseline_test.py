"""No function for newer processors has a name that code for all processors may take.

Objects that are compiled for AVX2 and more define no inline functions of shared headers, or have names of their own for
them (cmake/OwnInstructions.cmake).

Usage: baseline_test.py --build DIR. The build has to be optimized: others inline nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

NEWER = re.compile(r" (?:-mavx\S*|-mamx\S*|-march=x86-64-v[34]) ")
OBJECT = re.compile(r" -o ((?:\S+/)?)CMakeFiles/(\S+)\.dir/(\S+)")
OWN_NAME = ".x86_64_v3"
UNSHIPPED = ("tests/", "benchmarks/")


def newer_objects(build: Path) -> dict[Path, set[str]]:
    """Objects for newer processors of shipped libraries, by library; libraries that are not built are left out."""
    found: dict[Path, set[str]] = {}
    for entry in json.loads((build / "compile_commands.json").read_text("utf-8")):
        place = OBJECT.search(entry["command"])
        if not NEWER.search(entry["command"]) or place is None or place[1].startswith(UNSHIPPED):
            continue
        library = build / place[1] / f"lib{place[2]}.a"
        if library.exists():
            found.setdefault(library, set()).add(Path(place[3]).name)
    return found


def faults(library: Path, objects: set[str]) -> list[str]:
    """Weak functions of these objects, and tables of virtual functions of classes that others have."""
    errors, current = [], ""
    own_class = f"V{library.stem.removeprefix('libtpu_')}"
    tables = (f"_ZTV{len(own_class)}{own_class}",)
    lines = subprocess.run(["nm", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    for line in lines.splitlines():
        if line.endswith(":"):
            current = line[:-1]
        words = line.split()
        if current not in objects or len(words) != 3:
            continue
        _, kind, name = words
        if (kind == "W" and not name.endswith(OWN_NAME)) or \
                (kind == "V" and name.startswith("_ZTV") and name not in tables):
            errors.append(f"{library.name}({current}): the linker may take {name} for code that all processors run; "
                          "give it internal linkage, or a name by cmake/OwnInstructions.cmake")
    return errors


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    libraries = newer_objects(parser.parse_args().build.resolve())
    if not libraries:
        print("no library has objects for newer processors: build the product first")
        return 1
    errors = [error for library, objects in sorted(libraries.items()) for error in faults(library, objects)]
    count = sum(map(len, libraries.values()))
    print("\n".join(errors) if errors else f"{count} objects for newer processors in {len(libraries)} libraries: "
          "no function that others may take")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
