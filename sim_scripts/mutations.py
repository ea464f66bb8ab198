"""Places of C and C++ sources that can be changed, as mutants that one program has all at once (mutants.py).

A source is cut into tokens and brackets, not parsed: it knows which braces are code, and statements, conditions and
values in them. A place is changed where its statement, condition or value can stand twice, with and without the change.
Not changed: declarations without a value, tables, constexpr functions, members that a constructor initializes, headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

TOKEN = re.compile(r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
|(?P<raw>(?:u8|[uUL])?R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)")
|(?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
|(?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
|(?P<number>\.?[0-9](?:'?[\w.]|[eEpP][+-])*)
|(?P<name>[A-Za-z_]\w*)
|(?P<sign><=>|<<=|>>=|\.\.\.|->\*|->|::|\+\+|--|&&|\|\||[-+*/%&|^<>=!]=|<<|.)""", re.DOTALL | re.VERBOSE)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.DOTALL | re.MULTILINE)
CLOSES = {"(": ")", "[": "]", "{": "}"}
TWINS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "+", "/": "*",
         "%": "/", "&&": "||", "||": "&&", "&": "|", "|": "&", "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+=",
         "|=": "&=", "&=": "|=", "*=": "+=", "/=": "*="}
WORDS = {"true": "false", "false": "true", "min": "max", "max": "min"}
CONTROL = ("if", "while", "for", "switch", "do", "else", "case", "default", "try", "catch", "goto", "using", "typedef",
           "static_assert", "break", "continue", "throw", "co_return", "struct", "class", "enum", "union", "template")
QUIET = ("reserve", "shrink_to_fit", "static_assert", "assert")


@dataclass(frozen=True)
class Token:
    """A token, by its place in the text."""

    text: str
    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class Region:
    """What can stand twice: [first, last) of the tokens. `form`: condition, value, step, return, statement, pair."""

    form: str
    first: int
    last: int


@dataclass(frozen=True)
class Place:
    """One change: tokens of a region and what stands there instead of [start, end) of the text."""

    region: Region
    kind: str
    start: int
    end: int
    new: str


class Source:
    """A file, its brackets and its regions."""

    def __init__(self, text: str) -> None:
        self.text = text
        blank = DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
        self.tokens = [Token(match.group(), match.start(), match.end(), match.lastgroup or "")
                       for match in TOKEN.finditer(blank) if match.lastgroup != "skip"]
        self.pairs: dict[int, int] = {}
        self._match()
        self.code: dict[int, bool] = {}  # a `{`: whether it holds statements that may change
        self._classify()
        self.regions = [region for start, code in self.code.items() if code
                        for region in self._statements(start + 1, self.pairs[start])]

    def _match(self) -> None:
        stack: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.kind != "sign":
                continue
            if token.text in CLOSES:
                stack.append(index)
            elif token.text in CLOSES.values():
                if not stack or CLOSES[self.tokens[stack[-1]].text] != token.text:
                    raise ValueError(f"bracket {token.text} at offset {token.start} has no other one")
                self.pairs[stack[-1]] = index
                self.pairs[index] = stack.pop()

    def _at(self, index: int) -> str:
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def _classify(self) -> None:
        """What each brace holds."""
        stack: list[str] = ["names"]
        ends: list[int] = []
        for index, token in enumerate(self.tokens):
            if ends and index == ends[-1]:
                ends.pop()
                stack.pop()
            if token.text == "{" and token.kind == "sign":
                kind = self._kind(index, stack[-1])
                stack.append(kind)
                ends.append(self.pairs[index])
                self.code[index] = kind == "code"

    def _head(self, index: int) -> list[int]:
        """Tokens before a brace since the last statement, brackets as their first token."""
        found: list[int] = []
        at = index - 1
        while at >= 0 and self._at(at) not in (";", "{"):
            if self._at(at) == "}":
                before = self._at(self.pairs[at] - 1)
                if self.code.get(self.pairs[at], False) or not (before.isidentifier() or before == ">"):
                    break
            if self._at(at) in CLOSES.values():
                at = self.pairs[at]
            found.append(at)
            at -= 1
        return found[::-1]

    def _lambda(self, index: int) -> bool:
        """Whether the brace at `index` is the body of a lambda."""
        at = index - 1
        while self._at(at) in ("mutable", "noexcept"):
            at -= 1
        back = at
        while self.tokens[back].kind == "name" or self._at(back) in ("::", "<", ">", ",", "*", "&", "const"):
            back -= 1
        if self._at(back) == "->":
            at = back - 1
            while self._at(at) in ("mutable", "noexcept"):
                at -= 1
        if self._at(at) == ")":
            at = self.pairs[at] - 1
        if self._at(at) != "]":
            return False
        before = self.tokens[self.pairs[at] - 1]
        return before.text in ("return", "=") or not (before.kind == "name" or before.text in ("]", ")"))

    def _kind(self, index: int, outer: str) -> str:
        before = self._at(index - 1)
        if outer == "fixed":
            return "fixed"
        if self._lambda(index):
            return "code"
        head = [self._at(at) for at in self._head(index)]
        if outer == "code":
            if before == ")" or before in ("else", "do", "try", ";", "{", "}", ":"):
                return "fixed" if "constexpr" in head[:1] else "code"
            return "names" if head[:1] in (["struct"], ["class"]) else "fixed"
        if outer == "values":
            return "values"
        if "namespace" in head or head[:1] == ["extern"]:
            return "names"
        if "enum" in head or "constexpr" in head or "consteval" in head:
            return "fixed"
        if "(" not in head:
            return "names" if {"struct", "class", "union"} & set(head) else "values"
        if "=" in head and "operator" not in head:
            return "values"
        if ":" in head and (before.isidentifier() or before == ">") and before not in ("const", "noexcept", "override"):
            return "values"  # a member that a constructor initializes
        return "code"

    def _skip(self, index: int) -> int:
        """Behind the token or bracket at `index`."""
        return self.pairs[index] + 1 if self._at(index) in CLOSES and self.tokens[index].kind == "sign" else index + 1

    def _until(self, index: int, end: int, sign: str) -> int:
        while index < end and self._at(index) != sign:
            index = self._skip(index)
        return index

    def _statements(self, index: int, end: int) -> Iterator[Region]:
        """Regions of the statements in [index, end); blocks of their own come by themselves."""
        last: Region | None = None
        while index < end:
            word, simple = self._at(index), None
            if word == "{":
                index = self.pairs[index] + 1
            elif word in ("if", "while", "switch", "for", "catch"):
                index += 1 + (self._at(index + 1) == "constexpr")
                if self._at(index - 1) != "constexpr":
                    yield from self._control(word, index)
                index = self.pairs[index] + 1
            elif word in ("else", "do", "try", ";"):
                index += 1
            elif word in ("case", "default", "public", "private", "protected"):
                index = self._until(index, end, ":") + 1
            else:
                stop = self._until(index, end, ";")
                simple = self._simple(index, stop)
                if simple is not None:
                    yield simple
                index = stop + 1
            both = (last, simple)
            if last is not None and simple is not None and {region.form for region in both} == {"statement"}:
                yield Region("pair", last.first, simple.last)
            last = simple

    def _control(self, word: str, index: int) -> Iterator[Region]:
        first, end = index + 1, self.pairs[index]
        stop = self._until(first, end, ";")
        if word in ("if", "while") and stop == end and not self._declares(first, end):
            yield Region("condition", first, end)
        if word == "for" and stop < end:
            second = self._until(stop + 1, end, ";")
            if second > stop + 1:
                yield Region("condition", stop + 1, second)
            if second + 1 < end:
                yield Region("step", second + 1, end)

    def _declares(self, first: int, end: int) -> bool:
        """Whether two names stand side by side, as a type and what has it."""
        at, name = first, False
        while at < end:
            token = self.tokens[at]
            if token.kind == "name" and token.text not in ("return", "new", "sizeof", "not", "and", "or"):
                if name:
                    return True
                name = True
            elif token.text in ("*", "&", "&&", ">") and at > first and self.tokens[at - 1].end == token.start:
                name = True
            elif token.text == "=":
                return False
            else:
                name = False
            at = self._skip(at)
        return False

    def _simple(self, first: int, end: int) -> Region | None:
        word = self._at(first)
        if word == "return" and end > first + 1:
            return Region("return", first, end + 1)
        if first >= end or word in CONTROL or self._at(end) != ";" or word in QUIET:
            return None
        if not self._declares(first, end):
            assigns = any(self._at(at)[-1:] == "=" and self._at(at) not in ("==", "<=", ">=", "!=")
                          for at in range(first, end))
            calls = self._at(end - 1) in (")", "++", "--") or word in ("++", "--")
            quiet = any(self._at(at) in QUIET for at in range(first, min(end, first + 8)))
            return Region("statement", first, end + 1) if (assigns or calls) and not quiet else None
        equals = self._until(first, end, "=")
        words = {self._at(at) for at in range(first, equals)}
        if equals >= end - 1 or {"constexpr", "static", "["} & words or "{" in {
                self._at(at) for at in range(equals, end)} or self._until(equals, end, ",") < end:
            return None
        return Region("value", equals + 1, end)

    def _changes(self, region: Region) -> Iterator[tuple[str, int, int, str]]:
        """Kind, start, end and new text of each change within a region that is not a statement of its own."""
        strings = any(self.tokens[at].kind in ("string", "raw") for at in range(region.first, region.last))
        at = region.first
        while at < region.last:
            token = self.tokens[at]
            if self.code.get(at, False):
                at = self.pairs[at]
            elif token.kind == "number":
                new = next_number(token.text)
                if new:
                    yield "constant", token.start, token.end, new
            elif token.kind == "name" and token.text in WORDS and (token.text in ("true", "false")
                                                                   or self._at(at - 1) == "::"):
                yield "word", token.start, token.end, WORDS[token.text]
            elif token.text == "!":
                yield "negation", token.start, token.end, ""
            elif token.text in ("++", "--"):
                yield "step", token.start, token.end, {"++": "--", "--": "++"}[token.text]
            elif token.text in TWINS and self._binary(at) and not (strings and token.text in ("+", "+=", "<<")):
                yield "operator", token.start, token.end, TWINS[token.text]
            at += 1

    def _binary(self, at: int) -> bool:
        """Whether white space is on both sides: so the formatter writes binary operators, and no brackets of types."""
        token = self.tokens[at]
        return self.text[token.start - 1].isspace() and self.text[token.end:token.end + 1].isspace()

    def places(self) -> Iterator[Place]:
        """All changes of the file."""
        for region in self.regions:
            first, last = self.tokens[region.first].start, self.tokens[region.last - 1].end
            if region.form == "pair":
                middle = self.tokens[self._until(region.first, region.last, ";")].end
                swapped = self.text[middle:last].strip() + " " + self.text[first:middle]
                yield Place(region, "order", first, last, swapped)
                continue
            if region.form == "statement":
                yield Place(region, "statement", first, last, ";")
            for change in self._changes(region):
                yield Place(region, *change)

    def span(self, place: Place) -> tuple[int, int]:
        """Start and end of what the mutant replaces."""
        return self.tokens[place.region.first].start, self.tokens[place.region.last - 1].end

    def with_mutants(self, mutants: dict[int, Place], header: str) -> str:
        """The text with all mutants, by number; their regions do not overlap. `header`: what it includes first."""
        text = self.text
        for number, place in sorted(mutants.items(), key=lambda item: -self.span(item[1])[0]):
            start, end = self.span(place)
            old = self.text[start:end]
            new = self.text[start:place.start] + place.new + self.text[place.end:end]
            text = text[:start] + joined(place.region.form, number, old, new) + text[end:]
        return f'#include "{header}"\n{text}'


def joined(form: str, number: int, old: str, new: str) -> str:
    """A region that is `new` for the mutant of this number, else `old`."""
    asks = f"tpu_mutant({number})"
    if form == "condition":
        return f"({asks} ? !!({new}) : !!({old}))"
    if form == "value":
        return f"({asks} ? ({new}) : ({old}))"
    if form == "step":
        return f"({asks} ? (void)({new}) : (void)({old}))"
    if form == "return":
        return f"{{ if ({asks}) {{ {new} }} {old} }}"
    return f"{{ if ({asks}) {{ {new} }} else {{ {old} }} }}"


def next_number(text: str) -> str | None:
    """The literal that is one more, or None."""
    match = re.fullmatch(r"(0[xX][0-9a-fA-F']+|[0-9][0-9']*)([uUlLzZ]*)", text)
    if match:
        digits = match[1].replace("'", "")
        if digits[:1] == "0" and digits[1:2].isdigit():
            return None
        value = int(digits, 0) + 1
        return (hex(value) if digits[:2].lower() == "0x" else str(value)) + match[2]
    match = re.fullmatch(r"([0-9]+\.[0-9]+)([fF]?)", text)
    return f"{float(match[1]) + 1!r}{match[2]}" if match else None
