"""Markdown pages follow docs/style.md as far as a program can see: columns, length of pages, idioms. Texts that the
product prints (string literals with more than one word) are searched for idioms too.

tests/lint/prose.toml has the idioms, and the pages that are not yet rewritten: a page that has become good must be
taken off that list. Code spans, code blocks and targets of links are not prose. Usage: prose_test.py [PAGE ...]
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from sources import ROOT, files

RULES = tomllib.loads((Path(__file__).parent / "prose.toml").read_text(encoding="utf-8"))
IDIOMS = [(re.compile(idiom["pattern"].replace(" ", r"\s+"), re.IGNORECASE), idiom) for idiom in RULES["idiom"]]
# One link target or URL, which cannot be broken.
UNBREAKABLE = re.compile(r"\s*(?:[-*] )?(?:\[[^\]]+\]: |!?\[[^\]]*\]\()?<?(?:\S*/\S*)>?\)?[.,]?")
NOT_PROSE = re.compile(r"^```.*?^```|^    \S[^\n]*|``.*?``|`[^`]*`|\]\([^)]*\)|^\[[^\]]+\]: \S+|<!--.*?-->|https?://\S+",
                       re.DOTALL | re.MULTILINE)
# Raw strings, comments, strings, characters: a string is what is inside of no other.
TOKEN = re.compile(r'R"(?P<mark>\w*)\((?P<raw>.*?)\)(?P=mark)"|//[^\n]*|/\*.*?\*/|"(?P<text>(?:[^"\\\n]|\\.)*)"|'
                   r"'(?:[^'\\\n]|\\.)+'", re.DOTALL)
# Statements of the assembler end with their line.
ASSEMBLER = re.compile(r"^ *```asm\n.*?^ *```", re.DOTALL | re.MULTILINE)
RECORD = re.compile(r"docs/adr/(\d{4})-.*")


def long_lines(text: str) -> list[str]:
    """Lines with too many columns."""
    text = ASSEMBLER.sub(lambda match: "\n" * match[0].count("\n"), text)
    return [f"{number}: {len(line)} columns, expected at most {RULES['columns']}"
            for number, line in enumerate(text.splitlines(), 1)
            if len(line) > RULES["columns"] and not UNBREAKABLE.fullmatch(line)]


def long_pages(text: str) -> list[str]:
    """A page with too many lines."""
    count, limit = len(text.splitlines()), RULES["lines"]
    return [f"{count}: {count} lines, expected at most {limit}; split the page"] if count > limit else []


def idioms(text: str) -> list[str]:
    """Idioms outside of code."""
    prose = NOT_PROSE.sub(lambda match: re.sub(r"[^\n]", "#", match[0]), text)
    found = [(prose.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), idiom["instead"])
             for pattern, idiom in IDIOMS for match in pattern.finditer(prose)]
    return [f"{line}: '{words}': write: {instead}" for line, words, instead in sorted(found)]


def literals(source: str) -> list[tuple[int, str]]:
    """String literals of a C++ source with their lines; those that follow each other are one."""
    found: list[tuple[int, str]] = []
    end = None
    for match in TOKEN.finditer(source):
        text = match["raw"] if match["text"] is None else match["text"]
        if text is None:
            continue
        text = text.replace("\\n", " ").replace('\\"', '"')
        if found and end is not None and not source[end:match.start()].strip():
            found[-1] = (found[-1][0], found[-1][1] + text)
        else:
            found.append((source.count("\n", 0, match.start()) + 1, text))
        end = match.end()
    return found


def source_errors() -> list[str]:
    """Idioms in texts of the product."""
    return [f"{path.relative_to(ROOT).as_posix()}:{line}: '{match[0]}' in \"{text.strip()}\": write: {idiom['instead']}"
            for path in files(".cpp", ".hpp", ".c", ".h") if path.relative_to(ROOT).parts[0] not in RULES["unprinted"]
            for line, text in literals(path.read_text(encoding="utf-8")) if " " in text.strip()
            for pattern, idiom in IDIOMS for match in pattern.finditer(text)]


def checks(where: str, text: str) -> dict[str, list[str]]:
    """Faults of a page, by rule."""
    record = RECORD.fullmatch(where)
    former = record is not None and int(record[1]) <= RULES["records_in_former_words"]
    return {
        "columns": long_lines(text),
        "lines": [] if where in RULES["generated"] else long_pages(text),
        "idioms": [] if where in RULES["quoting"] else idioms(text.split("\n", 1)[0] if former else text),
    }


def style_errors() -> list[str]:
    """Idioms that the page on style does not name."""
    page = ROOT / "docs/style.md"
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    return [f"docs/style.md: has no row '| {idiom['not']} | {idiom['instead']} |'" for idiom in RULES["idiom"]
            if f"| {idiom['not']} | {idiom['instead']} |" not in text]


def main() -> int:
    """Prints the faults."""
    asked = {Path(name).resolve() for name in sys.argv[1:]}
    pages = [path for path in files(".md") if not asked or path in asked]
    pending = {rule: set(names) for rule, names in RULES["pending"].items()}
    errors = [] if asked else style_errors() + source_errors()
    seen = set()
    for path in pages:
        where = path.relative_to(ROOT).as_posix()
        seen.add(where)
        for rule, found in checks(where, path.read_text(encoding="utf-8")).items():
            if where not in pending[rule] or asked:
                errors += [f"{where}:{text}" for text in found]
            elif not found:
                errors.append(f"{where}: follows the rule now; take it off pending.{rule} in tests/lint/prose.toml")
    if not asked:
        errors += [f"tests/lint/prose.toml: pending.{rule} names {name}, which does not exist"
                   for rule, names in pending.items() for name in sorted(names - seen)]
    waiting = len(set().union(*pending.values()))
    print("\n".join(errors) if errors else f"prose: {len(pages)} pages, {waiting} of them not yet rewritten")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
