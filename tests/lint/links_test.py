"""Every relative link and every `path/file` in backticks with a known suffix in a Markdown page must exist."""

from __future__ import annotations

import re
import sys

from sources import ROOT, files

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE_PATH = re.compile(r"`((?:spec|rtl|tlm_model|firmware|host_driver|training|compiler|tests|sim_scripts|examples|"
                       r"benchmarks|docs|cmake)/[A-Za-z0-9_./-]+\.(?:toml|hpp|cpp|h|c|sv|md|py|fbs|S|mlirbc|vlt|cmake))`")


def main() -> int:
    """Prints the dead links."""
    errors = []
    for path in files(".md"):
        text = path.read_text(encoding="utf-8")
        where = path.relative_to(ROOT)
        for target in LINK.findall(text):
            if "://" not in target and not (path.parent / target).exists():
                errors.append(f"{where}: dead link {target}")
        for target in CODE_PATH.findall(text):
            if "<" not in target and not (ROOT / target).exists():
                errors.append(f"{where}: names {target}, which does not exist")
    print("\n".join(errors) if errors else "links: all good")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
