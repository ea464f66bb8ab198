"""Pages of the site, as Sphinx reads them: copies of the tree's Markdown files under the addresses that they have in
the site, with their links changed to these addresses, and with the menu of docs/site/navigation.toml.

A page of the tree stays as a forge shows it. docs/README.md is the first page; docs/NAME.md is NAME; README.md is
project; examples/NAME/README.md is examples/NAME. A source file that a page links to becomes a page, too. A notebook
becomes a page of its texts, cells and recorded results, with a link to download it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from pathlib import Path, PurePosixPath

LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
FENCED = re.compile(r"(^```.*?^```[^\n]*$)", re.DOTALL | re.MULTILINE)
OUTPUT = re.compile(r"^<!-- run: output -->\n```\n", re.MULTILINE)
COMMENT = re.compile(r"^ *<!-- (?:run|page): .*? -->\n", re.MULTILINE | re.DOTALL)
SHOWN = "```{code-block} none\n:class: output\n\n"  # what commands print
TITLES = {"README.md": "Overview"}  # in the menu, of pages whose own would be unclear
PICTURES = (".png", ".svg")
LANGUAGES = {".py": "python", ".cpp": "cpp", ".hpp": "cpp", ".h": "c", ".c": "c", ".toml": "toml"}

PYTHON_PAGE = """# Python: `tpuboard`

[The package tpuboard](../docs/package.md) introduces it.

```{eval-rst}
.. automodule:: tpuboard
   :members:
   :imported-members:
```

## Embedding tables

[Embedding tables](../docs/embedding.md) explains when to use them.

```{eval-rst}
.. automodule:: tpuboard.embedding
   :members:
```
"""
C_PAGE = """# C: `tpu/tpu.h`

[The C interface](../docs/c_interface.md) has examples, and says how to link. This is the header, which describes each
call.

```{literalinclude} tpu.h
:language: c
:class: header
```
"""
CPP_PAGE = """# C++: `tpu/tpu.hpp`

[Host driver](../docs/host_driver.md#library) introduces the interface.

- <a href="../cpp/annotated.html">Classes</a>, with all their functions
- <a href="../cpp/files.html">Headers</a>

Doxygen makes this reference. It has a search of its own.
"""
API_PAGES = {"api:python": ("api/python.md", PYTHON_PAGE), "api:c": ("api/c.md", C_PAGE),
             "api:cpp": ("api/cpp.md", CPP_PAGE)}


def address(path: str) -> str:
    """Address in the site, without the suffix, of a page of the tree."""
    if path in API_PAGES:
        return API_PAGES[path][0].removesuffix(".md")
    name = path.removesuffix(".md").removesuffix(".ipynb")
    if name == "docs/README":
        return "index"
    if name == "README":
        return "project"
    if name.startswith("examples/") and name.count("/") > 1:
        return name.removesuffix("/README")
    return name.removeprefix("docs/").replace("README", "index")


def notebook_page(text: str) -> str:
    """Markdown of a notebook: texts, cells, and the text that they print."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            shown = "".join("".join(output.get("text", [])) for output in cell["outputs"])
            if shown:
                parts.append(f"{SHOWN}{shown.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


class Pages:
    """The pages of a tree, and where they are in the site."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.menu = tomllib.loads((root / "docs/site/navigation.toml").read_text("utf-8"))["section"]
        found = re.search(r"project\(tpuboard VERSION (\S+)", (root / "CMakeLists.txt").read_text("utf-8"))
        assert found is not None
        self.version = found[1]
        names = ["README.md", "CONTRIBUTING.md", "SECURITY.md"]
        names += [name for pattern in ("docs/**/*.md", "docs/**/*.ipynb", "examples/**/*.md")
                  for name in self._glob(pattern)]
        self.pages = {name: address(name) for name in names}
        self.sources: dict[str, str] = {}  # source files that pages link to
        self.errors: list[str] = []

    def _glob(self, pattern: str) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))

    def write(self, folder: Path) -> list[str]:
        """Writes all pages and pictures below `folder`; what is wrong with the menu and the links."""
        trees = self._menu()
        for name, where in self.pages.items():
            text = (self.root / name).read_text("utf-8")
            if name.endswith(".ipynb"):
                (folder / where).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.root / name, (folder / where).parent)
                title, _, rest = notebook_page(text).partition("\n")
                text = f"{title}\n\n{{download}}`Download this notebook <{Path(name).name}>`\n{rest}"
            self._put(folder, where, self._translate(text, name, where) + trees.get(name, ""))
        for where, text in API_PAGES.values():
            page = where.removesuffix(".md")
            self._put(folder, page, self._translate(text, f"docs/{where}", page, base="api"))
        shutil.copy(self.root / "c_api/include/tpu/tpu.h", folder / "api/tpu.h")
        for name, where in self.sources.items():
            text = (self.root / name).read_text("utf-8")
            self._put(folder, where, f"---\norphan: true\n---\n# `{name}`\n\n"
                                     f"`````{LANGUAGES.get(Path(name).suffix, '')}\n{text}`````\n")
        for name in (path for suffix in PICTURES for path in self._glob(f"docs/**/*{suffix}")):
            target = folder / name.removeprefix("docs/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.root / name, target)
        return self.errors

    @staticmethod
    def _put(folder: Path, where: str, text: str) -> None:
        target = folder / f"{where}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")

    def _menu(self) -> dict[str, str]:
        """By page: the menu below it. Pages that navigation.toml does not name are in a section at the end."""
        placed = {"docs/README.md"}
        trees: dict[str, str] = {}
        sections = []
        for section in self.menu:
            names = list(section["pages"])
            for below in section.get("below", []):
                names.append(below["page"])
                children = [name for name in self._glob(below["glob"]) if name != below["page"]]
                placed |= set(children)
                trees[below["page"]] = self._tree("", children, below["page"])
            self.errors += [f"docs/site/navigation.toml: there is no page {name}" for name in names
                            if name not in self.pages and name not in API_PAGES]
            placed |= set(names)
            sections.append((section["title"], names))
        rest = [name for name in self.pages if name not in placed]
        if rest:
            sections.append(("More", rest))
        trees["docs/README.md"] = "".join(self._tree(title, names, "docs/README.md") for title, names in sections)
        return trees

    @staticmethod
    def _tree(title: str, names: list[str], page: str) -> str:
        caption = f":caption: {title}\n" if title else ""
        entries = "\n".join(f"{TITLES[name]} </{address(name)}>" if name in TITLES else f"/{address(name)}"
                            for name in names)
        return f"\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n{caption}\n{entries}\n```\n" if page else ""

    def _translate(self, text: str, name: str, where: str, base: str | None = None) -> str:
        """The text of page `name` with links as they are at the address `where`."""
        folder = str(PurePosixPath(name).parent) if base is None else base
        text = COMMENT.sub("", OUTPUT.sub(SHOWN, text))

        def link(found: re.Match[str]) -> str:
            target, anchor = found[1], found[2] or ""
            if not target or "://" in target:
                return found[0]
            path = os.path.normpath(f"{folder}/{target}")
            return f"]({self._target(path, where, name)}{anchor})"

        parts = FENCED.split(text)
        return "".join(part if FENCED.fullmatch(part) else LINK.sub(link, part) for part in parts)

    def _target(self, path: str, where: str, name: str) -> str:
        start = str(PurePosixPath(where).parent)
        if (self.root / path).is_dir():
            path += "/README.md"
        if path in self.pages:
            return os.path.relpath(f"{self.pages[path]}.md", start)
        if path.endswith(PICTURES):
            return os.path.relpath(path.removeprefix("docs/"), start)
        if (self.root / path).is_file():
            self.sources[path] = f"source/{path}"
            return os.path.relpath(f"source/{path}.md", start)
        self.errors.append(f"{name}: dead link {path}")
        return path
