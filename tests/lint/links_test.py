"""Links of Markdown pages lead somewhere: to a file, and to a heading where they name one (`page.md#heading`).

So does every `path/file` in backticks with a known suffix, and every page (and heading) of docs/ that a source names.
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

from sources import ROOT, files

LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
CODE_PATH = re.compile(r"`((?:base|spec|rtl|tlm_model|firmware|host_driver|training|monitor|client|pjrt_plugin|c_api|"
                       r"compiler|cli|analysis|tests|sim_scripts|examples|benchmarks|docs|cmake)/[A-Za-z0-9_./-]+\."
                       r"(?:toml|hpp|cpp|h|c|sv|md|py|fbs|S|mlirbc|vlt|cmake))`")
IN_SOURCES = re.compile(r"\b(docs/[a-z0-9_/-]+\.md)(?:#([a-z0-9_-]+))?")
SOURCES = ("", ".hpp", ".cpp", ".h", ".c", ".S", ".sv", ".svh", ".py", ".toml", ".txt", ".cmake", ".in")
OWN_TEST = ROOT / "tests/lint/words_tools_test.py"  # its trees have pages of their own
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def slug(heading: str) -> str:
    """The anchor that forges give to a heading: words in lower case, joined by hyphens, without other marks."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip()).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    """Anchors of a page; the second heading of a name gets -1, and so on."""
    found: dict[str, int] = {}
    names = set()
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for heading in re.findall(r"^#{1,6} (.+?)(?: #+)?$", text, re.MULTILINE):
        name = slug(heading)
        names.add(name if name not in found else f"{name}-{found[name]}")
        found[name] = found.get(name, 0) + 1
    return frozenset(names | set(re.findall(r'<a (?:id|name)="([^"]+)"', text)))


def page_errors(path: Path) -> list[str]:
    """Dead links of a page."""
    text, where, errors = path.read_text(encoding="utf-8"), path.relative_to(ROOT), []
    for target, anchor in LINK.findall(text):
        page = path.parent / target if target else path
        if "://" in target:
            continue
        if not page.exists():
            errors.append(f"{where}: dead link {target}")
        elif anchor and page.suffix == ".md" and anchor not in anchors(page.resolve()):
            errors.append(f"{where}: dead link {target}#{anchor}: the page has no such heading")
    return errors + [f"{where}: names {target}, which does not exist" for target in CODE_PATH.findall(text)
                     if "<" not in target and not (ROOT / target).exists()]


def source_errors(path: Path) -> list[str]:
    """Pages that a source names and that do not exist."""
    errors = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        for name, anchor in IN_SOURCES.findall(line):
            where, page = f"{path.relative_to(ROOT)}:{number}", ROOT / name
            if not page.exists():
                errors.append(f"{where}: names {name}, which does not exist")
            elif anchor and anchor not in anchors(page):
                errors.append(f"{where}: names {name}#{anchor}: the page has no such heading")
    return errors


def main() -> int:
    """Prints the dead links."""
    errors = [error for path in files(".md") for error in page_errors(path)]
    errors += [error for path in files(*SOURCES) if path != OWN_TEST for error in source_errors(path)]
    print("\n".join(errors) if errors else "links: all good")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
