"""Refuses classes that have grown too large: more than 40 methods (25 in the driver and its users), or methods defined
in more than three files.

In such a class nothing owns a member: any of its methods may change it. tests/lint/classes.toml lists the classes that
are larger still, with their present size. A class may not outgrow its entry, and an entry that is larger than its
class is an error too, so that the list only shrinks.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

from sources import ROOT, files

MOST_METHODS = 40
FEWER_METHODS = 25
FEWER = ("cli", "client", "host_driver", "pjrt_plugin")
MOST_FILES = 3
FOLDERS = ("analysis", "base", "c_api", "cli", "client", "compiler", "host_driver", "monitor", "pjrt_plugin", "spec",
           "tlm_model", "training")
LIST = Path(__file__).with_name("classes.toml")

NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^\s*#(?:[^\n]*\\\n)*[^\n]*',
                   re.DOTALL | re.MULTILINE)
CLASS = re.compile(r"\b(?:class|struct)\s+(?:[A-Z_]+\s+)?(\w+)(?:\s+final)?\s*(?::[^{};()]*)?\{")
DEFINITION = re.compile(r"^[\w][^\n;{}=]*?\b(\w+)::~?\w+(?:<[^>\n]*>)?\(", re.MULTILINE)
NOT_A_METHOD = re.compile(r"^(?:using|friend|typedef|static_assert|enum|class|struct|union)\b")
ACCESS = re.compile(r"\b(?:public|private|protected)\s*:(?!:)")


def stripped(text: str) -> str:
    """The text without comments, strings and directives; lines stay."""
    return NOISE.sub(lambda match: "\n" * match[0].count("\n") or " ", text)


def body_at(text: str, start: int) -> str:
    """What stands directly in the braces that open before `start`; inner braces are replaced by `{}`."""
    depth, own = 1, []
    for char in text[start:]:
        if char == "{":
            depth += 1
            if depth == 2:
                own.append("{")
        elif char == "}":
            depth -= 1
            if depth == 0:
                break
            if depth == 1:
                own.append("}")
        elif depth == 1:
            own.append(char)
    return "".join(own)


def without_templates(text: str) -> str:
    """The text without what stands between angle brackets."""
    while True:
        shorter = re.sub(r"<[^<>]*>", " ", text.replace("->", "  ").replace("<<", "  ").replace(">=", "  "))
        if shorter == text:
            return text
        text = shorter


def method_count(body: str, name: str) -> int:
    """Methods that a class body declares, without constructors, destructors and operators."""
    count = 0
    body = ACCESS.sub(" ", body)
    for statement in re.split(r";|\{\}", body):
        line = " ".join(statement.split())
        if NOT_A_METHOD.match(line):
            continue
        line = without_templates(line)
        head = line.split("=")[0] if "operator" not in line else line
        declared = re.search(r"([~\w]+)\s*\(", head)
        if declared is None or declared[1] == name or declared[1].startswith("~") or "operator" in head:
            continue
        if re.match(r"[\w:&*\s\[\]]+\(", head) and " " in head.strip().split("(")[0].strip():
            count += 1
    return count


def sizes(paths: list[Path]) -> dict[str, tuple[int, int]]:
    """`folder/Class` -> number of methods, number of files that define some of them."""
    methods: dict[str, int] = defaultdict(int)
    homes: dict[str, set[Path]] = defaultdict(set)
    for path in paths:
        top = path.relative_to(ROOT).parts[0]
        text = stripped(path.read_text(encoding="utf-8"))
        for match in CLASS.finditer(text):
            key = f"{top}/{match[1]}"
            methods[key] = max(methods[key], method_count(body_at(text, match.end()), match[1]))
        if path.suffix == ".cpp":
            for match in DEFINITION.finditer(text):
                homes[f"{top}/{match[1]}"].add(path)
    return {key: (count, len(homes.get(key, ()))) for key, count in methods.items()}


def errors_of(found: dict[str, tuple[int, int]], known: dict[str, dict[str, int]]) -> list[str]:
    """What is wrong with the classes, and with the list."""
    errors = []
    for key, (methods, homes) in sorted(found.items()):
        entry = known.get(key, {})
        most_methods = FEWER_METHODS if key.split("/")[0] in FEWER else MOST_METHODS
        for what, now, most in (("methods", methods, most_methods), ("files", homes, MOST_FILES)):
            allowed = max(most, entry.get(what, 0))
            if now > allowed:
                errors.append(f"{key}: {now} {what}, expected at most {allowed}; move a part of it to another class")
            elif what in entry and now < entry[what]:
                change = f"lower it to {now}" if now > most else "remove it"
                errors.append(f"{LIST.name}: {key} has {now} {what}, the list says {entry[what]}; {change}")
    errors += [f"{LIST.name}: there is no class {key}; remove it" for key in sorted(set(known) - set(found))]
    return errors


def main() -> int:
    """Prints every class that is too large."""
    paths = [path for path in files(".hpp", ".cpp") if path.relative_to(ROOT).parts[0] in FOLDERS]
    known = tomllib.loads(LIST.read_text(encoding="utf-8"))
    found = sizes(paths)
    errors = errors_of(found, known)
    print("\n".join(errors) if errors else f"classes: {len(found)}, {len(known)} of them larger than they should be")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
