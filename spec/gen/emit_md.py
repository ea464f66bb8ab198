"""Emits the manual pages that people read: docs/isa.md, docs/registers.md, docs/board_numbers.md.

Lines have at most 120 columns. A text that makes a row of a table longer is a note below the table.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from parse import Block, BoardKey, Format, Isa, Pod, Struct

COLUMNS = 120
NOTE = ("<!-- Generated from {source} by spec/gen.\n"
        "     Change it there, then run `python3 spec/gen/gen.py --docs`. -->\n")
BELOW = "(note below)"
GLUE = "\0"  # a space where no line is broken: in a code span, and in front of what opens a list where it starts a line
MARK = re.compile(r" (?=(?:[-*+]|#+|\d+[.)]) |[>|])")


def one_line(text: str) -> str:
    """Text for a table cell."""
    return " ".join(text.split()).replace("|", "\\|")


def paragraph(text: str, first: str = "") -> list[str]:
    """Lines of a paragraph, or of the list item that `first` opens."""
    pieces = text.split("`")
    glued = MARK.sub(GLUE, "`".join(piece.replace(" ", GLUE) if i % 2 else piece for i, piece in enumerate(pieces)))
    return [line.replace(GLUE, " ")
            for line in textwrap.wrap(glued, COLUMNS, initial_indent=first, subsequent_indent=" " * len(first),
                                      break_long_words=False, break_on_hyphens=False)]


def table(head: str, rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """A table of rows (name, cells before the text, text), then the texts that are too long for it."""
    lines, notes = [head, "|" + "---|" * (head.count("|") - 1)], []
    for name, cells, text in rows:
        line = f"| {cells} | {one_line(text)} |"
        if len(line) > COLUMNS:
            line = f"| {cells} | {BELOW} |"
            notes += paragraph(f"{name}: {' '.join(text.split())}", "- ")
        lines.append(line)
    return [*lines, "", *notes, ""] if notes else [*lines, ""]


def struct_table(struct: Struct) -> list[str]:
    """Markdown table of one struct."""
    rows = []
    for item in struct.fields:
        count = f"[{item.count}]" if item.count > 1 else ""
        rows.append((f"`{item.name}`", f"{item.offset} | `{item.name}` | {item.type}{count}", item.desc))
    lines = [*table("| offset | field | type | meaning |", rows), f"Size {struct.size} bytes.", ""]
    if struct.flags:
        flags = ", ".join(f"bit {f.bit} `{f.name}`: {one_line(f.desc)}" for f in struct.flags)
        lines += [*paragraph(f"Flags: {flags}."), ""]
    return lines


def enum_item(name: str, desc: str, values: list[str]) -> list[str]:
    """An enumeration as an item of a list."""
    numbered = ", ".join(f"`{value}` = {i}" for i, value in enumerate(values))
    return paragraph(f"**{name}**: {desc} {numbered}", "- ")


def vpu_table(isa: Isa) -> list[str]:
    """Slots of the VPU's operations, then what they mean: operations in a row that share a text share an item."""
    lines = ["| opcode | mnemonic | operands | ALU | trans | load | store | reduce |",
             "|---|---|---|---|---|---|---|---|"]
    for op in isa.vpu_ops:
        slots = " | ".join(str(op.slots[s]) for s in ("alu", "trans", "load", "store", "reduce"))
        lines.append(f"| {op.opcode} | `{op.name}` | {op.form} | {slots} |")
    lines.append("")
    for desc, group in groupby(isa.vpu_ops, key=lambda op: op.desc):
        lines += paragraph(f"{', '.join(f'`{op.name}`' for op in group)}: {' '.join(desc.split())}", "- ")
    return lines


def isa_page(isa: Isa) -> str:
    """The page docs/isa.md."""
    text = ["# Core instruction set", NOTE.format(source="spec/isa"), f"ISA version {isa.version}.", "",
            *paragraph("A core program is a stream of 8-byte little-endian words: scalar instructions, which the "
                       "sequencer executes, and engine commands, which it puts into queues. VPU programs follow the "
                       "code that calls them."), "",
            "## Common structs", ""]
    for struct in isa.structs.values():
        text += [f"### {struct.name}", "", *paragraph(struct.desc), "", *struct_table(struct)]
    text += ["## Enumerations", ""]
    for enum in isa.enums:
        text += enum_item(enum.name, enum.desc, enum.values)
    text += ["", "## Limits", "",
             *table("| constant | value | meaning |", [(f"`{n}`", f"`{n}` | {v}", d)
                                                       for n, (v, d) in isa.constants.items()]),
             "## Engine commands", ""]
    for command in isa.commands:
        text += [f"### `{command.name}` (opcode {command.opcode})", "", *paragraph(command.desc), "",
                 *paragraph(f"Queues: {', '.join(command.queues)}. Cycles: {one_line(command.cycles)}."), "",
                 *struct_table(command.struct)]
    text += ["## Sequencer instructions", "",
             *table("| opcode | mnemonic | operands | meaning |",
                    [(f"`{i.name}`", f"{i.opcode} | `{i.name}` | {i.form}", i.desc) for i in isa.insns]),
             "## VPU operations", "", "Slots are per block of 1,024 lanes.", "", *vpu_table(isa)]
    return "\n".join(text) + "\n"


def register_table(block: Block) -> list[str]:
    """Registers and fields of a block."""
    rows = []
    for reg in block.regs:
        count = f"[{reg.count}]" if reg.count > 1 else ""
        cells = f"{reg.offset:#05x} | `{reg.name}`{count} | {reg.access} | {reg.reset:#x}"
        rows.append((f"`{reg.name}`", cells, reg.desc))
        for item in reg.fields:
            name = f"`{reg.name}.{item.name}`"
            rows.append((name, f"| {name} [{item.hi}:{item.lo}] | {item.access} | ", item.desc))
    return table("| offset | register | access | reset | meaning |", rows)


def registers_page(blocks: list[Block], formats: list[Format]) -> str:
    """The page docs/registers.md: register blocks, then ring and image formats."""
    text = ["# Registers, rings and image formats", NOTE.format(source="spec/regs and spec/formats"),
            *paragraph("Access: `rw` reads and writes; `ro` reads, `wo` writes only; `w1c`: a 1 that is written "
                       "clears its bit; `w1s`: a 1 that is written acts, and reads 0. An access in another direction "
                       "is a fault of the control hart in its own blocks (not in seq, sem, fault and perf, which read "
                       "all ones there, as the host's pages do). Bits outside of the fields of an `rw` register "
                       "read 0. Without another value a register resets to 0."), ""]
    for block in blocks:
        text += [f"## {block.name}", "", *paragraph(block.desc), "", *register_table(block)]
        if block.values:
            text += table("| value | name | meaning |", [(f"`{name}`", f"{value:#x} | `{name}`", desc)
                                                         for name, (value, desc) in block.values.items()])
    for fmt in formats:
        text += [f"## Format: {fmt.name}", ""]
        if fmt.constants:
            text += table("| constant | value | meaning |", [(f"`{n}`", f"`{n}` | {v:#x}", d)
                                                             for n, (v, d) in fmt.constants.items()])
        for enum in fmt.enums:
            text += enum_item(enum.name, enum.desc, enum.values)
        for struct in fmt.structs.values():
            text += ["", f"### {struct.name}", "", *paragraph(struct.desc), "", *struct_table(struct)]
    return "\n".join(text) + "\n"


def pod_table(keys: list[BoardKey], pods: dict[str, Pod]) -> list[str]:
    """The pods that are built in, with the board that each has several of."""
    names = [key.name for key in keys if key.section == "pod"]
    return ["Pods that are built in. All other numbers are those of the board:", "",
            "| pod | board | " + " | ".join(f"`pod.{name}`" for name in names) + " |",
            "|---|---|" + "---|" * len(names),
            *(f"| {name} | {pod.include} | " + " | ".join(str(pod.values[key]) for key in names) + " |"
              for name, pod in pods.items()), "",
            *(f"- {board}: {source}." for board, source in {pod.include: pod.source for pod in pods.values()}.items())]


def board_page(keys: list[BoardKey], boards: dict[str, dict[str, dict[str, Any]]], pods: dict[str, Pod]) -> str:
    """The page docs/board_numbers.md: values of every board by section, then meanings and sources."""
    names = sorted(boards)
    text = ["# Board numbers", NOTE.format(source="spec/board"),
            *paragraph("Every number of the boards that come with tpuboard. [Board files](boards.md) says how to "
                       "describe another board. [Timing model](timing_model.md) says what the numbers do."), "",
            "Origins:", "",
            "- **published**: the source is named.",
            *paragraph("**measured_v4**: measured on a TPU v4 by public on-device cycle-counter experiments. Nobody "
                       "has published it for this generation.", "- "),
            "- **chosen**: a value that fits what is known; the reason is given.",
            "- **calibrated**: set by a test, which is named.", ""]
    for section, group in groupby(keys, key=lambda key: key.section):
        text += [f"## {section}", "", "| key | unit | " + " | ".join(names) + " | origin |",
                 "|---|---|" + "---|" * (len(names) + 1)]
        items = []
        for key in group:
            dotted = f"{key.section}.{key.name}"
            entry = boards[names[-1]][dotted]
            values = " | ".join(str(boards[name][dotted]["value"]) for name in names)
            text.append(f"| `{dotted}` | {key.unit} | {values} | {entry['origin']} |")
            items += paragraph(f"`{dotted}`: {' '.join(key.desc.split())} Source: {' '.join(entry['source'].split())}.",
                               "- ")
        text += ["", *items, ""]
        if section == "pod":
            text += [*pod_table(keys, pods), ""]
    return "\n".join(text[:-1]) + "\n"
