"""Reads every #include and refuses edges that the architecture does not have (docs/architecture.md).

Also refused: a project header by its bare name (`"hart.hpp"` for `"hart/hart.hpp"`), which hides the edge.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sources import ROOT, files

INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)

# folder -> folders whose headers it may include, or single headers. tests, benchmarks and examples may
# include anything.
ALLOWED = {
    "spec": {"spec"},
    "rtl": {"rtl"},
    "tlm_model": {"tlm_model", "spec", "rtl/run/assertions.hpp"},
    "firmware": {"firmware", "spec"},
    "compiler": {"compiler", "spec"},
    "host_driver/include": {"host_driver", "spec"},
    "host_driver/files": {"host_driver", "spec"},
    "host_driver/figures": {"host_driver", "spec"},
    "host_driver/options": {"host_driver", "spec"},
    "host_driver/src": {"host_driver", "spec"},
    "host_driver/transport": {"host_driver", "spec"},
    "host_driver/transport/sim": {"host_driver", "spec", "tlm_model"},
    "training": {"training", "host_driver/include", "host_driver/files", "host_driver/figures",
                 "host_driver/src/memory/host_room.hpp", "spec"},
    "monitor": {"monitor", "host_driver/include", "host_driver/files", "spec"},
    "analysis": {"analysis", "host_driver/include", "spec"},
    "cli": {"cli", "analysis", "host_driver", "spec", "compiler", "tlm_model/mxu/mxu_replay.hpp", "training",
            "monitor"},
    "client": {"client", "monitor", "compiler/compile.hpp", "host_driver", "spec"},
    "pjrt_plugin": {"pjrt_plugin", "client", "host_driver", "spec"},
    "c_api": {"c_api", "client", "compiler/compile.hpp", "compiler/ir/error_kinds.hpp", "host_driver", "analysis",
              "spec"},
}
# The firmware as data (a generated array, or an ELF file): the driver uploads it, the model's mask ROM holds it.
OPEN_HEADERS = {"image/firmware_image.hpp", "image/elf_image.hpp"}
# Blocks of the model -> blocks whose headers they may include. Every block stands here; only board and chip wire.
BLOCKS = {
    "kernel": set(),
    "probe": {"kernel"},
    "waves": {"kernel", "probe", "mxu"},  # of mxu the record of its ports
    "timeline": {"kernel", "probe"},
    "hart": set(),
    "debug": {"hart"},
    "vpu": set(),
    "mxu": {"kernel"},
    "hbm": {"kernel"},
    "ici": {"kernel"},
    "pcie": {"kernel", "probe"},
    "mgmt": {"kernel", "probe", "hart"},
    "core": {"kernel", "probe", "mxu", "vpu"},
    "chip": {"core", "hbm", "mgmt", "pcie"},
    "board": {"kernel", "probe", "waves", "timeline", "debug", "mxu", "ici", "pcie", "core", "chip"},
}
# Rooms of the compiler, the same way. What stands in compiler/ itself puts them together and sees all.
ROOMS = {
    "ir": set(),
    "import": {"ir"},
    "passes": {"ir"},
    "partition": {"ir", "passes"},
    "legalize": {"ir", "passes"},
    "program": {"ir"},
    "vpu": {"ir", "program"},
    "kernel": {"ir", "program", "vpu"},
    "plan": {"ir", "program", "vpu", "kernel"},
    "emit": {"ir", "program", "vpu", "kernel", "plan"},
    "asm": {"ir"},
    "export": {"ir"},
    "cli": {"ir", "import", "asm", "compile.hpp"},
}
# Rooms of the driver, in the order of their dependencies: each sees some of those above it. What stands in src/ itself
# (handles of the public interface) sees all.
DRIVER = {
    "turn": set(),
    "health": set(),
    "memory": set(),
    "texts": set(),
    "rings": {"memory"},
    "events": {"health", "event_state.hpp"},
    "operations": {"turn", "health", "memory", "rings", "events", "access.hpp", "event_state.hpp"},
    "transfers": {"turn", "health", "memory", "operations", "access.hpp"},
    "residency": {"operations", "transfers"},
    "feeds": {"turn", "memory", "operations", "transfers", "residency"},
    "host_calls": {"turn", "memory", "operations", "transfers", "residency"},
    "launches": {"operations", "transfers", "residency", "feeds", "texts", "access.hpp"},
    "completions": {"health", "rings", "operations", "residency", "host_calls"},
    "harts": {"texts", "rings", "events", "operations"},
    "boot": {"texts", "rings", "events", "operations", "harts"},
    "recovery": {"turn", "texts", "rings", "operations", "residency", "feeds", "launches", "completions", "harts",
                 "boot"},
    "pump": {"turn", "health", "texts", "rings", "events", "operations", "residency", "feeds", "host_calls",
             "completions", "harts", "recovery"},
    "snapshots": {"turn", "memory", "operations", "residency", "feeds", "launches", "boot", "recovery", "access.hpp"},
    "door": {"turn", "events", "operations"},
    "waits": {"turn", "health", "events", "operations", "completions", "door", "access.hpp", "event_state.hpp"},
    "facets": {"health", "texts", "operations", "transfers", "feeds", "launches", "harts", "pump", "snapshots", "door",
               "access.hpp"},
    "board": {"turn", "health", "memory", "texts", "rings", "events", "operations", "transfers", "residency", "feeds",
              "host_calls", "launches", "completions", "harts", "boot", "recovery", "pump", "snapshots", "door",
              "waits", "facets", "access.hpp", "event_state.hpp"},
}
INSIDE = {"tlm_model": BLOCKS, "compiler": ROOMS, "host_driver/src": DRIVER}
# Folders whose own files put the rooms together.
COMPOSED = {"compiler", "host_driver/src"}
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
        return None if theirs[0] in table[mine[0]] else f"{where}: {mine[0]}/ may not include {header}"
    return None


def file_errors(path: Path, headers: dict[str, set[str]]) -> list[str]:
    """Forbidden edges of one file."""
    where = path.relative_to(ROOT).as_posix()
    allowed = rule_for(where)
    errors = []
    for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
        if not where.startswith(SIBLINGS):
            errors += [f"{where}: includes {name} without its folder; say which ({full})"
                       for full in bare(name, headers)]
        meant = headers_of(name, path, headers)
        if not meant or allowed is None or name in OPEN_HEADERS:
            continue
        if len(meant) > 1:
            errors.append(f"{where}: {name} may be any of {', '.join(meant)}")
            continue
        header = meant[0]
        if not any(header == part or header.startswith(part + "/") for part in allowed):
            errors.append(f"{where}: may not include {name} of {header.split('/')[0]}/")
        errors += filter(None, [inside_error(where, header)])
    return errors


def main() -> int:
    """Prints every forbidden edge."""
    headers = index_headers()
    errors = [error for path in files(".hpp", ".cpp", ".h", ".c") for error in file_errors(path, headers)]
    print("\n".join(errors) if errors else "layering: no forbidden include")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
