"""Emits the manual pages that people read: docs/isa.md, docs/registers.md, the table of docs/timing_model.md."""

from __future__ import annotations

from typing import Any

from parse import Block, BoardKey, Format, Isa, Struct

NOTE = "<!-- Generated from {source} by spec/gen: change it there, then run `python3 spec/gen/gen.py --docs`. -->\n"


def one_line(text: str) -> str:
    """Text for a table cell."""
    return " ".join(text.split()).replace("|", "\\|")


def struct_table(struct: Struct) -> list[str]:
    """Markdown table of one struct."""
    rows = ["| offset | field | type | meaning |", "|---|---|---|---|"]
    for item in struct.fields:
        count = f"[{item.count}]" if item.count > 1 else ""
        rows.append(f"| {item.offset} | `{item.name}` | {item.type}{count} | {one_line(item.desc)} |")
    flags = [f"Flags: {', '.join(f'bit {f.bit} `{f.name}`: {one_line(f.desc)}' for f in struct.flags)}.", ""]
    return [*rows, "", f"Size {struct.size} bytes.", "", *(flags if struct.flags else [])]


def isa_page(isa: Isa) -> str:
    """The page docs/isa.md."""
    text = ["# Core instruction set", NOTE.format(source="spec/isa"), f"ISA version {isa.version}.", "",
            "A core program is a stream of 8-byte little-endian words: scalar instructions, which the sequencer runs,",
            "and engine commands, which it puts into queues. VPU programs lie behind the code that calls them.", "",
            "## Common structs", ""]
    for struct in isa.structs.values():
        text += [f"### {struct.name}", "", struct.desc, "", *struct_table(struct)]
    text += ["## Enumerations", ""]
    for enum in isa.enums:
        values = ", ".join(f"`{v}` = {i}" for i, v in enumerate(enum.values))
        text += [f"- **{enum.name}**: {enum.desc} {values}"]
    text += ["", "## Limits", "", "| constant | value | meaning |", "|---|---|---|"]
    text += [f"| `{n}` | {v} | {one_line(d)} |" for n, (v, d) in isa.constants.items()]
    text += ["", "## Engine commands", ""]
    for command in isa.commands:
        text += [f"### `{command.name}` (opcode {command.opcode})", "", one_line(command.desc), "",
                 f"Queues: {', '.join(command.queues)}. Cycles: {one_line(command.cycles)}.", "",
                 *struct_table(command.struct)]
    text += ["## Sequencer instructions", "", "| opcode | mnemonic | operands | meaning |", "|---|---|---|---|"]
    text += [f"| {i.opcode} | `{i.name}` | {i.form} | {one_line(i.desc)} |" for i in isa.insns]
    text += ["", "## VPU operations", "",
             "Slots are per block of 1,024 lanes.", "",
             "| opcode | mnemonic | operands | ALU | trans | load | store | reduce | meaning |",
             "|---|---|---|---|---|---|---|---|---|"]
    for op in isa.vpu_ops:
        slots = " | ".join(str(op.slots[s]) for s in ("alu", "trans", "load", "store", "reduce"))
        text.append(f"| {op.opcode} | `{op.name}` | {op.form} | {slots} | {one_line(op.desc)} |")
    return "\n".join(text) + "\n"


def registers_page(blocks: list[Block], formats: list[Format]) -> str:
    """The page docs/registers.md: register blocks, then ring and image formats."""
    text = ["# Registers, rings and image formats", NOTE.format(source="spec/regs and spec/formats")]
    for block in blocks:
        text += [f"## {block.name}", "", block.desc, "", "| offset | register | access | reset | meaning |",
                 "|---|---|---|---|---|"]
        for reg in block.regs:
            count = f"[{reg.count}]" if reg.count > 1 else ""
            text.append(f"| {reg.offset:#05x} | `{reg.name}`{count} | {reg.access} | {reg.reset:#x} "
                        f"| {one_line(reg.desc)} |")
            for item in reg.fields:
                text.append(f"| | `{reg.name}.{item.name}` [{item.hi}:{item.lo}] | {item.access} | "
                            f"| {one_line(item.desc)} |")
        if block.values:
            text += ["", "| value | name | meaning |", "|---|---|---|"]
            text += [f"| {value:#x} | `{name}` | {one_line(desc)} |" for name, (value, desc) in block.values.items()]
        text.append("")
    for fmt in formats:
        text += [f"## Format: {fmt.name}", ""]
        if fmt.constants:
            text += ["| constant | value | meaning |", "|---|---|---|"]
            text += [f"| `{n}` | {v:#x} | {one_line(d)} |" for n, (v, d) in fmt.constants.items()]
            text.append("")
        for enum in fmt.enums:
            text += [f"- **{enum.name}**: {enum.desc} " + ", ".join(f"`{v}` = {i}" for i, v in enumerate(enum.values))]
        for struct in fmt.structs.values():
            text += ["", f"### {struct.name}", "", struct.desc, "", *struct_table(struct)]
    return "\n".join(text) + "\n"


def board_table(keys: list[BoardKey], boards: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The table of board numbers inside docs/timing_model.md."""
    names = sorted(boards)
    text = ["| key | unit | " + " | ".join(names) + " | origin | meaning | source |",
            "|---|---|" + "---|" * len(names) + "---|---|---|"]
    for key in keys:
        dotted = f"{key.section}.{key.name}"
        values = " | ".join(str(boards[n][dotted]["value"]) for n in names)
        entry = boards[names[-1]][dotted]
        text.append(f"| `{dotted}` | {key.unit} | {values} | {entry['origin']} | {one_line(key.desc)} | "
                    f"{one_line(entry['source'])} |")
    return "\n".join(text) + "\n"
