"""Refuses a call with two or more arguments that make ops: C++ does not say which of them is evaluated first.

g++ evaluates arguments from the right on x86-64 and from the left on aarch64, so that such a call puts ops into another
order in the graph: equal values, but another schedule and other cycles. The code names the values first. Elements of
braces are evaluated from the left everywhere.

What makes ops is found by name, from the text of each folder below compiler/: methods of variables of the types
Rewriter and Builder that return values, and the functions and lambdas that call one of these, or one that does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from sources import ROOT, files

COMPILER = ROOT / "compiler"
BUILDERS = ("compiler/passes/rewriter.hpp", "compiler/legalize/builder.hpp")
METHOD = re.compile(r"^ +(?:Value\*|Op\*|std::vector<Value\*>) (\w+)\(", re.MULTILINE)
VARIABLE = re.compile(r"\b(?:Rewriter|Builder)&? (\w+)\s*[;,()={]")
# The selection of vector instructions has a builder of its own.
INSTRUCTIONS = {"vpu": r"\b(?:make|imm)\("}
COMMENT_OR_TEXT = re.compile(r"//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)'")
PARAMETERS = r"\((?:[^;{}()]|\([^;{}()]*\))*\)"
DEFINITION = re.compile(rf"\b(\w+)\s*{PARAMETERS}(?:\s*(?:const|noexcept|override|final))*\s*\{{|"
                        rf"\b(\w+)\s*=\s*\[[^\]]*\]\s*(?:{PARAMETERS})?[^;{{}}]*\{{")
# Not of the standard library, and not a getter (`space.window()`), which makes no ops.
CALL = re.compile(r"(?<!std::)\b(?:(?<!\.)(?<!->)(\w+)\(|(?<=[.>])(\w+)\((?!\)))")
NO_NAMES = {"if", "for", "while", "switch", "catch", "return", "sizeof"}
OF_CONTAINERS = {"insert", "erase", "find", "push_back", "emplace_back", "emplace"}


def code(text: str) -> str:
    """The text with spaces for comments and for what is in quotes; lines stay."""
    return COMMENT_OR_TEXT.sub(lambda m: " " * len(m[0]), text)


def end_of(text: str, start: int) -> int:
    """The place of the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if depth == 0:
            return place
    return len(text)


def definitions(text: str) -> Iterator[tuple[str, str]]:
    """Name and body of each function and each named lambda."""
    for match in DEFINITION.finditer(text):
        name = match[1] or match[2]
        if name not in NO_NAMES:
            yield name, text[match.end():end_of(text, match.end() - 1)]


def roots(folder: str, texts: list[str], methods: set[str]) -> re.Pattern[str]:
    """What finds the calls in a folder that make one op."""
    variables = sorted({match[1] for text in texts for match in VARIABLE.finditer(text)})
    found = [INSTRUCTIONS[folder]] if folder in INSTRUCTIONS else []
    if variables:
        found.append(rf"\b(?:{'|'.join(variables)}|builder\(\))(?:\.|->)(?:{'|'.join(sorted(methods))})\(")
    return re.compile("|".join(found) or r"(?!)")


def calls(text: str) -> set[str]:
    """Names of what the text calls."""
    return {match[1] or match[2] for match in CALL.finditer(text)} - OF_CONTAINERS


def makers(bodies: list[tuple[str, str]], root: re.Pattern[str]) -> set[str]:
    """Names of the functions and lambdas of a folder that make ops."""
    found: set[str] = set()
    while True:
        more = {name for name, body in bodies
                if name not in found and (root.search(body) or calls(body) & found)}
        if not more:
            return found
        found |= more


def without_lambdas(text: str) -> str:
    """The text without the bodies of lambdas, which the callee runs."""
    match = re.search(r"\[[&=\w, ]*\]\s*(?:\([^()]*\))?[^(){};,]*\{", text)
    if match is None:
        return text
    return text[:match.start()] + without_lambdas(text[end_of(text, match.end() - 1) + 1:])


def arguments(text: str, start: int) -> list[str]:
    """The arguments between the bracket at `start` and the one that closes it."""
    depth, begin, found = 0, start + 1, []
    for place in range(start, end_of(text, start) + 1):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if depth == 0 or depth == 1 and text[place] == ",":
            found.append(text[begin:place])
            begin = place + 1
    return found


def faults(text: str, root: re.Pattern[str], names: set[str]) -> list[int]:
    """Numbers of the lines where a call begins of which two arguments make ops."""
    found = []
    for match in CALL.finditer(text):
        if match[0].startswith(tuple(NO_NAMES)):
            continue
        made = [a for a in map(without_lambdas, arguments(text, match.end() - 1))
                if root.search(a) or calls(a) & names]
        if len(made) > 1:
            found.append(text.count("\n", 0, match.start()) + 1)
    return sorted(set(found))


def main() -> int:
    texts = {path: code(path.read_text()) for path in files(".cpp", ".hpp") if path.is_relative_to(COMPILER)}
    methods = {match[1] for name in BUILDERS for match in METHOD.finditer(texts[ROOT / name])}
    folders: dict[str, list[Path]] = {}
    for path in texts:
        folders.setdefault(path.relative_to(COMPILER).parts[0], []).append(path)
    errors = []
    for folder, paths in folders.items():
        root = roots(folder, [texts[path] for path in paths], methods)
        bodies = {path: [*definitions(texts[path])] for path in paths}
        names = makers(sum(bodies.values(), []), root)
        for path in paths:
            # Definitions of the file and its header hide those of other files.
            near = [pair for other in paths if other.with_suffix("") == path.with_suffix("") for pair in bodies[other]]
            own = {name for name, body in near if root.search(body) or calls(body) & names - {name}}
            here = names - {name for name, _ in near} | own
            errors += [f"{path.relative_to(ROOT)}:{line}: two arguments of this call make ops, and compilers evaluate "
                       "arguments in different orders; name the values in the order in which they are made"
                       for line in faults(texts[path], root, here)]
    print("\n".join(errors) or "argument_order: every call makes its arguments in one order")
    return 1 if errors or not methods else 0


if __name__ == "__main__":
    sys.exit(main())
