"""Commands that pages show have subcommands and options that the programs have, in code blocks and in code spans of all
Markdown pages. tests/e2e/pages_test.py runs those of the pages for starters; this is for the many that need data.

Usage: page_options_test.py --bin DIR
"""

from __future__ import annotations

import argparse
import functools
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELLS = ("", "sh", "bash", "console")
SPAN = re.compile(r"`([^`]+)`")
# A program at the start of a command: after variables, a path or a pipe.
COMMAND = re.compile(r"(?:^|[|;&(]\s*|\$ )(?:[A-Z_]+=\S+\s+)*(?:[\w./-]*/)?(tpuboard|tpuc)\s+([^\n]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
# Records keep the names of their time.
SKIPPED = ("docs/adr", "build", "out")


@functools.cache
def known(program: Path, subcommand: str) -> frozenset[str]:
    """Options that a program or its subcommand prints."""
    words = [str(program), *([subcommand] if subcommand else []), "--help"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    return frozenset(OPTION.findall(done.stdout)) if done.returncode == 0 else frozenset()


def commands(text: str) -> list[tuple[str, str]]:
    """Programs and the rest of their command lines."""
    found = []
    for language, content in FENCED.findall(text):
        if language in SHELLS:
            for line in content.replace("\\\n", " ").splitlines():
                found += COMMAND.findall(line.split(" #")[0].strip())
    for span in SPAN.findall(FENCED.sub("", text)):
        found += [match.groups() for match in [COMMAND.match(" ".join(span.split()))] if match]
    return found


def errors_of(page: Path, tools: Path) -> list[str]:
    """What is wrong with the commands of a page."""
    errors = []
    for program, rest in commands(page.read_text("utf-8")):
        words = rest.split(" -- ")[0].split()  # behind it is another program's command line
        subcommands = words[0].split("|") if program == "tpuboard" and re.match(r"[a-z]", words[0]) else [""]
        for subcommand in subcommands:
            options = known(tools / program, subcommand)
            if program == "tpuboard" and not subcommand:  # text about an option of a board
                options |= known(tools / program, "run")
            if not options:
                errors.append(f"{page.relative_to(ROOT)}: '{program} {rest}': there is no subcommand '{subcommand}'")
            errors += [f"{page.relative_to(ROOT)}: '{program} {rest}': {program} {subcommand} has no option {option}"
                       for option in OPTION.findall(" ".join(words)) if options and option not in options]
    return errors


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    tools = parser.parse_args().bin.resolve()
    pages = [path for path in sorted(ROOT.rglob("*.md"))
             if not str(path.relative_to(ROOT)).startswith(SKIPPED) and ".git/" not in str(path)]
    count = sum(len(commands(page.read_text("utf-8"))) for page in pages)
    errors = [error for page in pages for error in errors_of(page, tools)]
    if count < 100:
        errors.append(f"found {count} commands in {len(pages)} pages, expected hundreds")
    print("\n".join(errors) if errors else f"{count} commands of {len(pages)} pages have known options")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
