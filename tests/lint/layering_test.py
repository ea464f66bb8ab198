"""Reads every #include and refuses edges that the architecture does not have (docs/architecture.md)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sources import ROOT, files

INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)

# folder -> top-level folders whose headers it may include. tests, benchmarks and examples may include anything.
ALLOWED = {
    "spec": {"spec"},
    "tlm_model": {"tlm_model", "spec"},
    "firmware": {"firmware", "spec"},
    "compiler": {"compiler", "spec"},
    "host_driver/include": {"host_driver", "spec"},
    "host_driver/src": {"host_driver", "spec"},
    "host_driver/transport": {"host_driver", "spec"},
    "host_driver/transport/sim": {"host_driver", "spec", "tlm_model"},
    "host_driver/cli": {"host_driver", "spec", "compiler", "tlm_model"},
}
# The firmware as data (a generated array): the driver uploads it, the model's mask ROM holds it.
OPEN_HEADERS = {"firmware_image.hpp"}
# Blocks of the model meet in the files that wire; their headers stay apart.
BLOCKS = {"mxu", "vpu", "hart", "hbm", "ici", "pcie", "mgmt"}


def header_owner(name: str, source: Path, headers: dict[str, set[str]]) -> str | None:
    """Top-level folder of the header that `#include name` means, None for system headers."""
    local = source.parent / name
    if local.exists():
        return local.resolve().relative_to(ROOT).parts[0]
    owners = headers.get(name, set())
    return next(iter(owners)) if len(owners) == 1 else None


def index_headers() -> dict[str, set[str]]:
    """Every suffix path of every header -> top-level folders that have it."""
    index: dict[str, set[str]] = {}
    for path in files(".hpp", ".h"):
        parts = path.relative_to(ROOT).parts
        for start in range(1, len(parts)):
            index.setdefault("/".join(parts[start:]), set()).add(parts[0])
    return index


def rule_for(path: Path) -> set[str] | None:
    """The longest rule that covers the file."""
    name = path.relative_to(ROOT).as_posix()
    rules = [folder for folder in ALLOWED if name.startswith(folder + "/")]
    return ALLOWED[max(rules, key=len)] if rules else None


def block_of(path: str) -> str | None:
    """Model block of a tlm_model path."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "tlm_model" and parts[1] in BLOCKS else None


def main() -> int:
    """Prints every forbidden edge."""
    headers = index_headers()
    errors = []
    for path in files(".hpp", ".cpp", ".h", ".c"):
        allowed = rule_for(path)
        if allowed is None:
            continue
        where = path.relative_to(ROOT).as_posix()
        for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            owner = header_owner(name, path, headers)
            if owner is not None and owner not in allowed and name not in OPEN_HEADERS:
                errors.append(f"{where}: may not include {name} of {owner}/")
            first = name.split("/")[0]
            mine = block_of(where)
            if mine and path.suffix == ".hpp" and first in BLOCKS and first != mine and owner == "tlm_model":
                errors.append(f"{where}: the header of block {mine} may not include {name}")
    print("\n".join(errors) if errors else "layering: no forbidden include")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
