"""Reads every #include and refuses edges that the architecture does not have (docs/architecture.md).

Also refused: a project header by its bare name (`"hart.hpp"` for `"hart/hart.hpp"`), which hides the edge.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sources import ROOT, files

INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)

# folder -> folders whose headers it may include, besides its own. tests, benchmarks and examples may include anything.
# The includes between top folders make no circle.
ALLOWED = {
    "base": set(),
    "spec": {"base"},
    "rtl": set(),
    "firmware": {"spec"},
    "firmware/fake": {"spec", "base"},
    "firmware/image": {"spec", "base"},
    "tlm_model": {"rtl/run", "firmware/image", "spec", "base"},
    "compiler": {"spec", "base"},
    "host_driver": {"firmware/image", "spec", "base"},
    "host_driver/transport/null": {"firmware/fake", "spec", "base"},
    "host_driver/transport/sim": {"tlm_model", "spec", "base"},
    "analysis": {"spec", "base"},
    "monitor": {"host_driver/include", "base"},
    "training": {"host_driver/include", "host_driver/figures", "base"},
    "client": {"monitor", "compiler", "host_driver/include", "host_driver/options", "spec", "base"},
    "cli": {"analysis", "training", "monitor", "compiler", "tlm_model/replay", "host_driver/include",
            "host_driver/figures", "host_driver/options", "spec", "base"},
    "tf_plugin": {"pjrt_plugin", "client", "host_driver/include", "spec", "base"},
    "pjrt_plugin": {"client", "host_driver/include", "spec", "base"},
    "c_api": {"client", "analysis", "host_driver/include", "spec", "base"},
}
# Blocks of the model -> blocks whose headers they may include. Every block stands here; only board and chip wire.
BLOCKS = {
    "kernel": set(),
    "probe": {"kernel"},
    "faults": {"kernel", "probe"},
    "replay": {"mxu"},
    "waves": {"kernel", "probe", "mxu"},  # of mxu the record of its ports
    "timeline": {"kernel", "probe"},
    "hart": set(),
    "debug": {"hart"},
    "vpu": set(),
    "mxu": {"kernel"},
    "hbm": {"kernel"},
    "wire": set(),
    "ici": {"kernel", "wire"},
    "pcie": {"kernel", "probe"},
    "mgmt": {"kernel", "probe", "hart"},
    "core": {"kernel", "probe", "mxu", "vpu"},
    "chip": {"core", "hbm", "mgmt", "pcie"},
    "board": {"kernel", "probe", "faults", "waves", "timeline", "debug", "mxu", "wire", "ici", "pcie", "mgmt", "core",
              "chip"},
}
# Rooms of the compiler, the same way. `entry` puts them together.
ROOMS = {
    "ir": set(),
    "import": {"ir"},
    "pass": {"ir"},
    "passes": {"ir", "pass"},
    "partition": {"ir", "passes"},
    "legalize": {"ir", "passes"},
    "program": {"ir"},
    "vpu": {"ir", "program"},
    "kernel": {"ir", "pass", "program", "vpu"},
    "plan": {"ir", "program", "vpu", "kernel"},
    "emit": {"ir", "program", "vpu", "kernel", "plan"},
    "asm": {"ir"},
    "export": {"ir"},
    "instrument": {"ir", "passes", "legalize"},
    "entry": {"ir", "import", "pass", "passes", "partition", "legalize", "program", "vpu", "kernel", "plan", "emit",
              "export", "instrument"},
    "reference": {"ir", "import", "passes", "instrument", "entry"},
    "cli": {"ir", "pass", "import", "asm", "entry"},
}
# Rooms of the driver, in the order of their dependencies: each sees some of those above it. What stands in src/ itself
# (handles of the public interface) sees all.
DRIVER = {
    "turn": set(),
    "health": set(),
    "memory": set(),
    "texts": set(),
    "handles": {"health"},
    "rings": {"memory"},
    "events": {"health", "handles"},
    "operations": {"turn", "health", "memory", "rings", "events", "handles"},
    "transfers": {"turn", "health", "memory", "operations", "handles"},
    "residency": {"operations", "transfers"},
    "feeds": {"turn", "memory", "operations", "transfers", "residency"},
    "host_calls": {"turn", "memory", "operations", "transfers", "residency"},
    "launches": {"operations", "transfers", "residency", "feeds", "texts", "handles"},
    "completions": {"health", "rings", "operations", "residency", "host_calls"},
    "harts": {"texts", "rings", "events", "operations"},
    "boot": {"texts", "rings", "events", "operations", "harts"},
    "recovery": {"turn", "texts", "rings", "events", "operations", "residency", "feeds", "launches", "completions",
                 "harts", "boot"},
    "pump": {"turn", "health", "texts", "rings", "events", "operations", "residency", "feeds", "host_calls",
             "completions", "harts", "recovery"},
    "snapshots": {"turn", "memory", "operations", "residency", "feeds", "launches", "boot", "recovery", "handles"},
    "door": {"turn", "events", "operations"},
    "waits": {"turn", "health", "events", "operations", "completions", "door", "handles"},
    "facets": {"health", "texts", "operations", "transfers", "feeds", "launches", "harts", "pump", "snapshots", "door",
               "handles"},
    "board": {"turn", "health", "memory", "texts", "rings", "events", "operations", "transfers", "residency", "feeds",
              "host_calls", "launches", "completions", "harts", "boot", "recovery", "pump", "snapshots", "door",
              "waits", "facets", "handles"},
}
# The role of the board lock, which all rooms may name.
DRIVER = {"lock": set(), **{room: seen | {"lock"} for room, seen in DRIVER.items()}}
INSIDE = {"tlm_model": BLOCKS, "compiler": ROOMS, "host_driver/src": DRIVER}
# Folders whose own files put the rooms together.
COMPOSED = {"host_driver/src"}
# Folders that may include anything.
ANYTHING = {"tests", "benchmarks", "examples"}
# In the tests a header beside the file needs no prefix.
SIBLINGS = ("tests",)


def index_headers() -> dict[str, set[str]]:
    """Every suffix path of every header -> paths of the headers that it may mean."""
    index: dict[str, set[str]] = {}
    for path in files(".hpp", ".h"):
        parts = path.relative_to(ROOT).parts
        for start in range(len(parts)):
            index.setdefault("/".join(parts[start:]), set()).add("/".join(parts))
    return index


def headers_of(name: str, source: Path, headers: dict[str, set[str]]) -> list[str]:
    """The headers that `#include name` may mean: of the source's own top-level folder first; none if it is not ours."""
    found = headers.get(name, set())
    top = source.relative_to(ROOT).parts[0]
    return sorted(path for path in found if path.startswith(top + "/")) or sorted(found)


def rule_for(path: str) -> set[str] | None:
    """The longest rule that covers the file."""
    rules = [folder for folder in ALLOWED if path.startswith(folder + "/")]
    return ALLOWED[max(rules, key=len)] if rules else None


def bare(name: str, headers: dict[str, set[str]]) -> list[str]:
    """Headers that stand in a folder of their own and are meant by a name without any folder."""
    return [] if "/" in name else sorted(path for path in headers.get(name, set()) if path.count("/") > 1)


def inside_error(where: str, header: str) -> str | None:
    """What a file of the model, the compiler or the driver may not include of another block or room."""
    for folder, table in INSIDE.items():
        if not (where.startswith(folder + "/") and header.startswith(folder + "/")):
            continue
        mine, theirs = where.removeprefix(folder + "/").split("/"), header.removeprefix(folder + "/").split("/")
        if mine[0] == theirs[0] or (folder in COMPOSED and len(mine) == 1):
            return None
        if mine[0] not in table:
            return f"{where}: {folder}/{mine[0]} is not known to tests/lint/layering_test.py; add it to its table"
        room = theirs[0] if len(theirs) > 1 else "."
        return None if room in table[mine[0]] else f"{where}: {mine[0]}/ may not include {header}"
    return None


def file_errors(path: Path, headers: dict[str, set[str]]) -> list[str]:
    """Forbidden edges of one file."""
    where = path.relative_to(ROOT).as_posix()
    allowed = rule_for(where)
    top = where.split("/")[0]
    errors = []
    for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
        if not where.startswith(SIBLINGS):
            errors += [f"{where}: includes {name} without its folder; say which ({full})"
                       for full in bare(name, headers)]
        meant = headers_of(name, path, headers)
        if not meant or allowed is None:
            continue
        if len(meant) > 1:
            errors.append(f"{where}: {name} may be any of {', '.join(meant)}")
            continue
        header = meant[0]
        if not header.startswith((f"{top}/", *(f"{part}/" for part in allowed))):
            errors.append(f"{where}: may not include {name} of {header.split('/')[0]}/")
        errors += filter(None, [inside_error(where, header)])
    return errors


def top_edges(headers: dict[str, set[str]]) -> dict[str, set[str]]:
    """Top folder -> other top folders whose headers its files include."""
    edges: dict[str, set[str]] = {}
    for path in files(".hpp", ".cpp", ".h", ".c"):
        top = path.relative_to(ROOT).parts[0]
        if top not in ANYTHING:
            meant = (headers_of(name, path, headers) for name in INCLUDE.findall(path.read_text(encoding="utf-8")))
            edges.setdefault(top, set()).update({each[0].split("/")[0] for each in meant if each} - {top})
    return edges


def circle_errors(edges: dict[str, set[str]]) -> list[str]:
    """The folders that cannot be put in an order in which each includes only folders before it."""
    left = {top: set(others) for top, others in edges.items()}
    while free := [top for top, others in left.items() if not others & left.keys()]:
        for top in free:
            del left[top]
    return [f"a circle of top folders: {top}/ includes {', '.join(sorted(others & left.keys()))}"
            for top, others in sorted(left.items())]


def main() -> int:
    """Prints every forbidden edge."""
    headers = index_headers()
    errors = [error for path in files(".hpp", ".cpp", ".h", ".c") for error in file_errors(path, headers)]
    errors += circle_errors(top_edges(headers))
    print("\n".join(errors) if errors else "layering: no forbidden include")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
