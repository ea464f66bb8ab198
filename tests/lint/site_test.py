"""The site without Sphinx: all pages are copied, with links that lead to pages of the site, and the check of finished
pages finds each fault in a small site. The whole site: test lint.site_build, which installs Sphinx."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from sources import ROOT

sys.path.insert(0, str(ROOT / "sim_scripts"))

from site_check import faults  # noqa: E402
from site_pages import LINK, Pages  # noqa: E402

GOOD = '<h1 id="top">Top</h1><a href="other.html#there">b</a><img src="a.png"><a href="https://example.org/">c</a>'
FAULTS = {  # of a page, and what the check says
    '<a href="gone.html">x</a>': "dead link gone.html",
    '<a href="other.html#nowhere">x</a>': "dead link other.html#nowhere",
    '<a href="#nowhere">x</a>': "dead link #nowhere",
    '<img src="gone.png">': "dead link gone.png",
    '<script src="https://example.org/x.js"></script>': "loads https://example.org/x.js",
    '<link rel="stylesheet" href="//example.org/x.css">': "loads //example.org/x.css",
}


def staged_errors() -> list[str]:
    """Copies the tree's pages; links of the copies that lead nowhere."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        errors = Pages(ROOT).write(folder)
        for page in sorted(folder.rglob("*.md")):
            text = re.sub(r"^(`{3,})[^\n]*\n.*?^\1$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
            errors += [f"{page.relative_to(folder)}: dead link {target}" for target, _ in LINK.findall(text)
                       if target and "://" not in target and not (page.parent / target).is_file()]
        if not (folder / "index.md").is_file():
            errors.append("the site has no first page")
    return errors


def check_errors() -> list[str]:
    """Faults that the check of finished pages does not find, or finds where there are none."""
    errors = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.png").write_bytes(b"")
        (folder / "other.html").write_text('<h2 id="there">x</h2>', "utf-8")
        for text, expected in {"": None, **FAULTS}.items():
            (folder / "index.html").write_text(GOOD + text, "utf-8")
            found = faults(folder, generated="cpp")
            if (expected is None and found) or (expected is not None and
                                                (len(found) != 1 or expected not in found[0])):
                errors.append(f"site_check finds {found} in '{text}', expected {expected}")
        (folder / "index.html").write_text(GOOD, "utf-8")
        (folder / "x.css").write_text("@font-face { src: url(https://example.org/font.woff2) }", "utf-8")
        if len(faults(folder, generated="cpp")) != 1:
            errors.append("site_check does not find a font of another place")
    return errors


def main() -> int:
    """Prints what is wrong."""
    errors = staged_errors() + check_errors()
    print("\n".join(errors) if errors else "the pages of the site are complete")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
