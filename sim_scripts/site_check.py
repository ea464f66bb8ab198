"""Checks a folder of HTML pages: every link, anchor, picture, script and style is in the folder, and nothing is loaded
from another place. Links that a reader clicks may lead to other sites, which are not asked."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser loads by itself.
LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("object", "data")}
LINKS = {("a", "href")}
IN_STYLE = re.compile(r"(?:url\(\s*|@import\s+)[\"']?([^\"')\s;]+)")


class Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, bool]] = []  # target; whether a browser loads it
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value for name, value in attrs if value is not None}
        self.anchors |= {known[name] for name in ("id", "name") if name in known}
        for name, value in known.items():
            loaded = (tag, name) in LOADED and known.get("rel") not in ("canonical", "next", "prev", "index", "search")
            if loaded or (tag, name) in LINKS:
                self.links.append((value, loaded))


def outside(target: str) -> bool:
    """Whether a target is at another place than the site."""
    return target.startswith("//") or urlsplit(target).scheme not in ("", "data", "file", "javascript")


def faults(site: Path, generated: str) -> list[str]:
    """What is wrong with the site. Pages below the folder `generated` are made by another tool: their anchors are not
    checked, what they load is."""
    pages = {path: Page(path.read_text("utf-8", errors="replace")) for path in sorted(site.rglob("*.html"))}
    errors = []
    for path, page in pages.items():
        where, other = path.relative_to(site), path.is_relative_to(site / generated)
        for target, loaded in page.links:
            if outside(target):
                errors += [f"{where}: loads {target} from the network"] if loaded else []
                continue
            parts = urlsplit(target)
            if parts.scheme in ("data", "javascript") or (other and not loaded):
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not file.exists():
                errors.append(f"{where}: dead link {target}")
            elif parts.fragment and file in pages and not file.is_relative_to(site / generated) \
                    and unquote(parts.fragment) not in pages[file].anchors:
                errors.append(f"{where}: dead link {target}: the page has no such anchor")
    for path in sorted(site.rglob("*.css")):
        errors += [f"{path.relative_to(site)}: loads {target} from the network"
                   for target in IN_STYLE.findall(path.read_text("utf-8")) if outside(target)]
    return errors
