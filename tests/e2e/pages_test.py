"""The commands of a page, in the order of the page, in a folder that looks like the source tree: they end as the page
says, and print what the page shows.

A page has fenced blocks. Those marked `sh` are run by one bash, which stops at the first command that fails. An HTML
comment in front of a block says what else it is:

  <!-- run: no, REASON -->     commands that are not run
  <!-- run: fails -->          commands of which the last one fails
  <!-- run: file NAME -->      the content of a file
  <!-- run: text -->           not commands
  <!-- run: output -->         lines that the commands in front of it print, in this order; `...` is any text, which
                               does not end inside a number, and `\\` at the end of a line continues it. Simulated
                               cycles and times are the same on every host, so pages have all their digits

A block of any other language is not a command. One of no language without a comment is an error, and so is code that
no fence shows. Blocks may be indented, as in a list. A page runs something, or each REASON names the test that does it
(`the test NAME`, or `the tests PREFIX`): such names have to exist. A page with the comment

  <!-- page: installed -->

runs in an empty folder, with commands, package and plugin as a wheel installs them. Other pages run in what looks like
the source tree; those of docs/ itself have the commands on the PATH.

Of a notebook, all cells run in one Python, and print what the notebook has recorded. Its measured numbers, which have a
point, may differ by a fiftieth: times change with the compiler. --record writes what the cells print into the notebook.

--marks runs nothing. It checks the marks of all pages of the site. PAGE.. are those that other tests run: on each other
one, a block of commands has a reason.

Usage: pages_test.py --build DIR [--record] PAGE.. | pages_test.py --marks PAGE..
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^(?P<indent> *)(?:<!-- run: (?P<mark>(?:(?!-->).)*?) -->\n(?P=indent))?"
                   r"(?P<fence>`{3,}|~{3,})(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)(?P=fence)$",
                   re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^ *(?:```|~~~)", re.MULTILINE)
MARK = re.compile(r"^ *<!-- *run\b", re.MULTILINE)
# A line of code by its four blanks: behind an empty line, and not the continuation of a list.
BARE = re.compile(r"^(?![ *-])[^\n]*\n\n(?: {4}|\t)(?! *[*-] )", re.MULTILINE)
SHELLS = ("", "sh", "bash", "console", "shell")
NAMED = re.compile(r"\bthe tests? ([a-z]\w*(?:\.\w+)+)")
INSTALLED = "<!-- page: installed -->\n"
SITE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md", "examples/*/README.md", "docs/*.md",
        "docs/start/*.md", "docs/tutorials/*.md", "docs/adr/*.md")
MEASURED = re.compile(r"(?<![\w.])\d+\.\d+(?:e[+-]\d+)?")
TOLERANCE = 0.02
PATH = os.environ["PATH"]
# Of the tree, what commands read.
LINKS = ("c_api", "examples", "firmware", "host_driver", "python", "rtl", "sim_scripts", "spec")


@dataclass
class Step:
    """Commands, and the lines that they have to print."""

    commands: str
    line: int
    fails: bool = False
    files: dict[str, str] = field(default_factory=dict)  # which exist before
    output: list[str] = field(default_factory=list)


@functools.cache
def test_names() -> list[str]:
    """Names of the tests, of those of a loop over words one for each; `*` is what only CMake finds out."""
    names = set()
    for file in sorted((ROOT / "tests").rglob("CMakeLists.txt")):
        text = file.read_text("utf-8")
        for found in re.finditer(r"\bNAME (\w+\.[^\s)]+)", text):
            made = [found[1]]
            for variable in re.findall(r"\$\{(\w+)\}", found[1]):
                loops = re.findall(rf"foreach\({variable}\s([^)]*)\)", text[:found.start()])
                words = loops[-1].split() if loops and not re.search(r"\$|\bIN\b", loops[-1]) else ["*"]
                made = [name.replace(f"${{{variable}}}", word) for name in made for word in words]
            names |= set(made)
    return sorted(names)


def is_test(name: str) -> bool:
    """Whether there is a test of this name, or of one that begins with it and a dot."""
    return any(fnmatch.fnmatchcase(name, known) or known.startswith(f"{name}.") for known in test_names())


def named_tests(reason: str) -> tuple[list[str], list[str]]:
    """Tests that a reason names, and those of them that do not exist."""
    names = NAMED.findall(reason)
    return names, [name for name in names if not is_test(name)]


def is_shell(block: re.Match[str]) -> bool:
    """Whether a block may have commands."""
    return block["language"].split(" ")[0] in SHELLS


def unseen(text: str) -> list[str]:
    """What may be commands, and is not seen as a block."""
    rest = BLOCK.sub("", text)
    return ([*(["a fence without its other end"] if FENCE.search(rest) else []),
             *(["a comment 'run:' that is not the line in front of a block"] if MARK.search(rest) else []),
             *(["code by indentation: use a fenced block"] if BARE.search(rest) else [])])


def steps_of(page: Path) -> tuple[list[Step], list[str]]:
    """Steps of a Markdown page, and what is wrong with its marks."""
    text = page.read_text("utf-8")
    steps: list[Step] = []
    errors: list[str] = []
    files: dict[str, str] = {}
    untested: list[str] = []
    for block in BLOCK.finditer(text):
        mark, content = block["mark"] or "", textwrap.dedent(block["text"]) if block["indent"] else block["text"]
        where = f"{page.name}:{text.count(chr(10), 0, block.start()) + 1}"
        kind, _, rest = mark.partition(" ")
        if mark == "text":
            continue
        if mark.startswith("no, "):
            names, unknown = named_tests(rest)
            errors += [f"{where}: there is no test {name}" for name in unknown]
            untested += [] if names else [where]
        elif kind == "file" and rest:
            files[rest] = content
        elif kind == "output" and steps:
            steps[-1].output += content.replace("\\\n", "").splitlines()
        elif block["language"] == "sh" and mark in ("", "fails"):
            line = int(where.rpartition(":")[2])
            steps.append(Step(content, line, mark == "fails", files))
            files = {}
        elif mark or is_shell(block):
            errors.append(f"{where}: expected 'run: no, REASON', 'run: fails', 'run: file NAME', "
                          f"'run: text' or 'run: output' before a block, found '{mark}'")
    errors += [f"{page.name}: {error}" for error in unseen(text)]
    if not steps and not errors and not BLOCK.search(text):
        errors.append(f"{page.name}: has no commands")
    if not steps:
        errors += [f"{where}: no command of this page is run: the reason has to name the test that runs these"
                   for where in untested]
    return steps, errors


def mark_errors(run: set[Path]) -> list[str]:
    """What is wrong with the marks of all pages of the site. Those that tests run need more (steps_of)."""
    site = {page for pattern in SITE for page in ROOT.glob(pattern)}
    errors = [f"{page}: a test runs this page, which is not one of the site" for page in sorted(run - site)]
    for page in sorted(site):
        text, name = page.read_text("utf-8"), page.relative_to(ROOT)
        if page in run:
            errors += [f"{name}: {error}" for error in steps_of(page)[1]]
            continue
        for block in BLOCK.finditer(text):
            mark, where = block["mark"] or "", f"{name}:{text.count(chr(10), 0, block.start()) + 1}"
            errors += [f"{where}: there is no test {test}" for test in named_tests(mark)[1]]
            has_reason = mark in ("text", "output") or mark.startswith("no, ")
            if is_shell(block) and not has_reason:
                errors.append(f"{where}: no test runs this page: expected 'run: no, REASON', or 'run: text' if these "
                              f"are not commands, found '{mark}'")
        errors += [f"{name}: {error}" for error in unseen(text)]
    return errors


def line_pattern(line: str) -> re.Pattern[str]:
    """Of a line of output. A number behind `...` is a whole one: `...1 s` is not `31 s`."""
    first, *rest = line.split("...")
    return re.compile(re.escape(first) + "".join(f".*(?<![\\d.]){re.escape(part)}" if part[:1].isdigit()
                                                 else f".*{re.escape(part)}" for part in rest))


def missing_lines(wanted: list[str], printed: list[str]) -> list[str]:
    """Lines that are not printed, in order; `...` is any text."""
    at = 0
    missing = []
    for line in wanted:
        pattern = line_pattern(line)
        found = next((i for i in range(at, len(printed)) if pattern.fullmatch(printed[i].rstrip())), None)
        if found is None:
            missing.append(line)
        else:
            at = found + 1
    return missing


def script_of(steps: list[Step]) -> str:
    """A bash program that runs the steps, with a line `== N STATUS` behind each."""
    parts = ["set -euo pipefail"]
    for i, step in enumerate(steps):
        if step.fails:  # in a bash of its own, whose last status counts
            parts.append(f"step_status=0\n(set +e\n{step.commands}\n) || step_status=$?\necho \"== {i} $step_status\"")
        else:
            parts.append(f"{step.commands}\necho \"== {i} 0\"")
    return "\n".join(parts) + "\n"


def run_page(page: Path, folder: Path) -> list[str]:
    """Runs a page's commands; what differs from the page."""
    steps, errors = steps_of(page)
    if errors:
        return errors
    for step in steps:
        for name, content in step.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content, "utf-8")
    done = subprocess.run(["bash", "-c", script_of(steps)], cwd=folder, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, timeout=300)
    lines = done.stdout.splitlines()
    at = 0
    for i, step in enumerate(steps):
        ends = [n for n in range(at, len(lines)) if re.fullmatch(rf"== {i} \d+", lines[n])]
        printed = lines[at:ends[0]] if ends else lines[at:]
        tail = "\n    ".join(printed[-25:])
        where = f"{page.name}:{step.line}"
        if not ends:
            return [*errors, f"{where}: these commands fail:\n    {tail}"]
        status = int(lines[ends[0]].split()[-1])
        if step.fails and status == 0:
            errors.append(f"{where}: these commands succeed; the page says that they fail")
        errors += [f"{where}: does not print '{line}', but:\n    {tail}"
                   for line in missing_lines(step.output, printed)]
        at = ends[0] + 1
    return errors


def is_close(wanted: str, printed: str) -> bool:
    """Whether two lines are the same but for measured numbers that differ by a fiftieth."""
    if MEASURED.sub("0", " ".join(wanted.split())) != MEASURED.sub("0", " ".join(printed.split())):
        return False
    pairs = zip(MEASURED.findall(wanted), MEASURED.findall(printed), strict=True)
    return all(math.isclose(float(one), float(other), rel_tol=TOLERANCE) for one, other in pairs)


def run_notebook(page: Path, folder: Path, python: Path, record: bool) -> list[str]:
    """Runs a notebook's cells; what differs from the recorded output."""
    notebook = json.loads(page.read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    program = "".join("".join(cell["source"]) + f"\nprint('== {i} 0', flush=True)\n" for i, cell in enumerate(cells))
    (folder / "cells.py").write_text(program, "utf-8")
    done = subprocess.run([str(python), "cells.py"], cwd=folder, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300)
    parts = re.split(r"^== \d+ 0\n", done.stdout, flags=re.MULTILINE)
    if done.returncode != 0 or len(parts) != len(cells) + 1:
        return [f"{page.name}: cell {len(parts)} fails:\n{done.stdout[-3000:]}"]
    errors = []
    for i, (cell, text) in enumerate(zip(cells, parts, strict=False), 1):
        if record:
            lines = text.splitlines(keepends=True)
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
            continue
        wanted = "".join("".join(output["text"]) for output in cell["outputs"]).splitlines()
        printed = text.splitlines()
        if len(wanted) != len(printed) or not all(map(is_close, wanted, printed)):
            errors.append(f"{page.name}: cell {i} prints\n{text}expected\n" + "\n".join(wanted))
    if record:
        page.write_text(json.dumps(notebook, indent=1) + "\n", "utf-8")
    return errors


def like_the_tree(folder: Path, build: Path) -> dict[str, str]:
    """Makes a folder look like the source tree with a build; variables of its commands."""
    for link in LINKS:
        (folder / link).symlink_to(ROOT / link)
    (folder / "build").mkdir()
    (folder / "build/release").symlink_to(build)
    (folder / "venv").symlink_to(Path(sys.prefix))
    return {"PATH": f"{Path(sys.prefix) / 'bin'}:{PATH}"}  # python3 with NumPy


def like_the_tree_with_commands(folder: Path, build: Path) -> dict[str, str]:
    """The same for pages of the reference, which presume that the commands are on the PATH."""
    return {"PATH": f"{build / 'bin'}:{like_the_tree(folder, build)['PATH']}"}


def like_a_wheel(build: Path) -> dict[str, str]:
    """Variables with which commands find what a wheel installs."""
    return {"PATH": f"{build / 'bin'}:{Path(sys.prefix) / 'bin'}:{PATH}", "PYTHONPATH": str(ROOT / "python"),
            "TPU_LIBRARY_PATH": str(build / "lib/libtpuboard_pjrt.so")}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--marks", action="store_true")
    parser.add_argument("pages", nargs="*", type=Path)
    arguments = parser.parse_args()
    if arguments.marks:
        errors = mark_errors({page.resolve() for page in arguments.pages if page.suffix == ".md"})
        print("\n".join(errors) if errors else "each command of the site is run by a test or has a reason")
        return 1 if errors else 0
    if arguments.build is None or not arguments.pages:
        parser.error("expected --build DIR PAGE.., or --marks PAGE..")
    build, errors = arguments.build.resolve(), []
    for page in arguments.pages:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "folder"
            folder.mkdir()
            is_notebook = page.suffix == ".ipynb"
            if is_notebook or INSTALLED in page.read_text("utf-8"):
                variables = like_a_wheel(build)
            elif page.resolve().parent == ROOT / "docs":
                variables = like_the_tree_with_commands(folder, build)
            else:
                variables = like_the_tree(folder, build)
            os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
            with mock.patch.dict(os.environ, variables):
                errors += (run_notebook(page.resolve(), folder, Path(sys.executable), arguments.record) if is_notebook
                           else run_page(page.resolve(), folder))
    print("\n".join(errors) if errors else "the pages' commands do what the pages say")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
