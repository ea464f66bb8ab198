"""Reads the TOML files of spec/ into plain records and checks them.

Every error names the file and the entry. Unknown keys, missing descriptions, overlapping registers or fields,
duplicate opcodes and bad layouts are refused, so that what is emitted can be trusted.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCALAR_BYTES = {"u8": 1, "i8": 1, "u16": 2, "i16": 2, "u32": 4, "i32": 4, "u64": 8, "i64": 8}
BOARD_TYPES = {"int", "real", "string"}
ORIGINS = {"published", "measured_v4", "chosen", "calibrated"}
ACCESS = {"rw", "ro", "wo", "w1c"}
FIELD_ACCESS = ACCESS | {"w1s"}
# What a block does itself for a register. value: computes what is read, so nothing is stored; peek: what a debugger
# sees, where it differs; read, write: the effect of an access; before: may drop a write.
HANDLERS = ("value", "peek", "read", "before", "write")
DIRECTIONS = ("read", "write")


class SpecError(Exception):
    """A mistake in a spec file."""


def load(path: Path) -> dict[str, Any]:
    """Parses one TOML file."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: {error}") from error


def require(condition: bool, where: str, what: str) -> None:
    """Raises SpecError at `where` unless the condition holds."""
    if not condition:
        raise SpecError(f"{where}: {what}")


def check_keys(entry: dict[str, Any], allowed: set[str], needed: set[str], where: str) -> None:
    """Refuses unknown and missing keys."""
    unknown = set(entry) - allowed
    require(not unknown, where, f"unknown key {sorted(unknown)}; allowed: {sorted(allowed)}")
    missing = needed - set(entry)
    require(not missing, where, f"missing key {sorted(missing)}")


@dataclass
class Field:
    """One member of a struct, with its offset in bytes."""

    name: str
    type: str
    count: int
    desc: str
    offset: int = 0


@dataclass
class Flag:
    """One bit of the member `flags` of a struct (of a command: of its header)."""

    name: str
    bit: int
    desc: str


@dataclass
class Struct:
    """A little-endian struct, naturally aligned, padded to its alignment (commands: to 8 bytes)."""

    name: str
    desc: str
    fields: list[Field]
    flags: list[Flag] = field(default_factory=list)
    size: int = 0
    align: int = 1


@dataclass
class Enum:
    """Numbered names, from 0."""

    name: str
    desc: str
    values: list[str]


@dataclass
class Command:
    """One engine command; `struct` starts with the CommandHeader."""

    name: str
    opcode: int
    queues: list[str]
    desc: str
    cycles: str
    struct: Struct


@dataclass
class Insn:
    """One scalar instruction."""

    name: str
    opcode: int
    form: str
    desc: str


@dataclass
class VpuOp:
    """One VPU operation with the slots that it takes a block."""

    name: str
    opcode: int
    form: str
    slots: dict[str, int]
    desc: str


@dataclass
class Isa:
    """Everything of spec/isa."""

    version: int = 0
    enums: list[Enum] = field(default_factory=list)
    structs: dict[str, Struct] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    insns: list[Insn] = field(default_factory=list)
    vpu_ops: list[VpuOp] = field(default_factory=list)
    constants: dict[str, tuple[int, str]] = field(default_factory=dict)


def layout(struct: Struct, known: dict[str, Struct], where: str, min_align: int = 1) -> None:
    """Gives every field its offset; refuses implicit padding, so that structs have no hidden bytes."""
    offset = 0
    align = min_align
    for member in struct.fields:
        if member.type in SCALAR_BYTES:
            size = member_align = SCALAR_BYTES[member.type]
        else:
            require(member.type in known, where, f"unknown type {member.type} of {member.name}")
            size, member_align = known[member.type].size, known[member.type].align
        require(offset % member_align == 0, where,
                f"{member.name} would be misaligned at {offset}: add a reserved field")
        member.offset = offset
        offset += size * member.count
        align = max(align, member_align)
    struct.align = align
    struct.size = (offset + align - 1) // align * align


def parse_fields(entries: list[dict[str, Any]], where: str) -> list[Field]:
    """Reads the `fields` list of a struct or command."""
    fields: list[Field] = []
    for entry in entries:
        check_keys(entry, {"name", "type", "count", "desc"}, {"name", "type", "desc"}, where)
        count = entry.get("count", 1)
        require(isinstance(count, int) and count >= 1, where, f"count of {entry['name']} must be >= 1")
        require(all(f.name != entry["name"] for f in fields), where, f"duplicate field {entry['name']}")
        fields.append(Field(entry["name"], entry["type"], count, entry["desc"]))
    return fields


def parse_flags(entries: list[dict[str, Any]], fields: list[Field], where: str) -> list[Flag]:
    """Reads the `flags` list of a struct or command: names of bits, from bit 0."""
    flags: list[Flag] = []
    for entry in entries:
        check_keys(entry, {"name", "desc"}, {"name", "desc"}, where)
        taken = {f.name for f in flags} | {f.name for f in fields}
        require(entry["name"] not in taken, where, f"flag {entry['name']} has the name of another member")
        require(len(flags) < 8, where, "more than 8 flags")
        flags.append(Flag(entry["name"], len(flags), entry["desc"]))
    return flags


def parse_structs(data: dict[str, Any], known: dict[str, Struct], path: Path) -> None:
    """Adds the structs of one file to `known`, in file order."""
    for name, entry in data.get("struct", {}).items():
        where = f"{path}: struct {name}"
        check_keys(entry, {"desc", "fields", "flags"}, {"desc", "fields"}, where)
        require(name not in known, where, "defined twice")
        struct = Struct(name, entry["desc"], parse_fields(entry["fields"], where))
        struct.flags = parse_flags(entry.get("flags", []), struct.fields, where)
        require(not struct.flags or any(f.name == "flags" and f.count == 1 for f in struct.fields), where,
                "flags are named, but there is no field `flags`")
        layout(struct, known, where)
        known[name] = struct


def parse_enums(data: dict[str, Any], path: Path) -> list[Enum]:
    """Reads the enums of one file."""
    enums = []
    for name, entry in data.get("enum", {}).items():
        where = f"{path}: enum {name}"
        check_keys(entry, {"desc", "values"}, {"desc", "values"}, where)
        require(len(set(entry["values"])) == len(entry["values"]), where, "duplicate value")
        enums.append(Enum(name, entry["desc"], entry["values"]))
    return enums


def engine_unit(queue: str) -> tuple[str, int]:
    """Engine and unit of a queue: its name is the engine's, then the unit's number if there may be several."""
    engine = queue.rstrip("0123456789")
    return engine, int(queue[len(engine):] or 0)


def parse_constants(data: dict[str, Any], path: Path) -> dict[str, tuple[int, str]]:
    """Reads the named numbers of a file: value and meaning by name."""
    for name, entry in data.get("constant", {}).items():
        check_keys(entry, {"value", "desc"}, {"value", "desc"}, f"{path}: constant {name}")
    return {name: (entry["value"], entry["desc"]) for name, entry in data.get("constant", {}).items()}


def parse_isa(folder: Path) -> Isa:
    """Reads commands.toml, scalar.toml and vpu.toml."""
    isa = Isa()
    path = folder / "commands.toml"
    data = load(path)
    check_keys(data, {"isa_version", "enum", "struct", "command"}, {"isa_version", "command"}, str(path))
    isa.version = data["isa_version"]
    isa.enums += parse_enums(data, path)
    parse_structs(data, isa.structs, path)
    queues = next(e.values for e in isa.enums if e.name == "Queue")
    for entry in data["command"]:
        where = f"{path}: command {entry.get('name', '?')}"
        keys = {"name", "opcode", "queues", "desc", "cycles", "fields"}
        check_keys(entry, keys | {"flags"}, keys, where)
        require(set(entry["queues"]) <= {engine_unit(q)[0] for q in queues}, where, "unknown engine in queues")
        require(1 <= entry["opcode"] < 32, where, "opcode must be 1..31")
        head = [Field("head", "CommandHeader", 1, "common header")]
        struct = Struct(entry["name"], entry["desc"], head + parse_fields(entry["fields"], where))
        struct.flags = parse_flags(entry.get("flags", []), struct.fields, where)
        layout(struct, isa.structs, where, 8)
        isa.commands.append(Command(entry["name"], entry["opcode"], entry["queues"], entry["desc"],
                                    entry["cycles"], struct))
    parse_scalar(folder / "scalar.toml", isa)
    parse_vpu(folder / "vpu.toml", isa)
    for what, items in (("command", isa.commands), ("instruction", isa.insns), ("VPU op", isa.vpu_ops)):
        codes = [item.opcode for item in items]
        require(len(set(codes)) == len(codes), str(folder), f"duplicate {what} opcode")
        names = [item.name for item in items]
        require(len(set(names)) == len(names), str(folder), f"duplicate {what} name")
    return isa


def parse_scalar(path: Path, isa: Isa) -> None:
    """Reads the sequencer instructions."""
    data = load(path)
    check_keys(data, {"insn"}, {"insn"}, str(path))
    for entry in data["insn"]:
        where = f"{path}: insn {entry.get('name', '?')}"
        check_keys(entry, {"name", "opcode", "form", "desc"}, {"name", "opcode", "form", "desc"}, where)
        require(32 <= entry["opcode"] < 256, where, "opcode must be 32..255")
        isa.insns.append(Insn(entry["name"], entry["opcode"], entry["form"], entry["desc"]))


def parse_vpu(path: Path, isa: Isa) -> None:
    """Reads the VPU operations; opcodes are given by order, from 1."""
    data = load(path)
    check_keys(data, {"constant", "enum", "struct", "op"}, {"op"}, str(path))
    isa.constants |= parse_constants(data, path)
    isa.enums += parse_enums(data, path)
    parse_structs(data, isa.structs, path)
    slot_names = ("alu", "trans", "load", "store", "reduce")
    for entry in data["op"]:
        where = f"{path}: op {entry.get('names', '?')}"
        check_keys(entry, {"names", "form", "desc", *slot_names}, {"names", "form", "desc"}, where)
        for name in entry["names"]:
            slots = {slot: entry.get(slot, 0) for slot in slot_names}
            isa.vpu_ops.append(VpuOp(name, len(isa.vpu_ops) + 1, entry["form"], slots, entry["desc"]))


@dataclass
class RegField:
    """Bits [lo, hi] of a register."""

    name: str
    hi: int
    lo: int
    access: str
    desc: str


@dataclass
class Reg:
    """One 32-bit register; `count` > 1 makes an array with `stride` bytes.

    `mask` has the bits that a write changes. A `constant` one is set by the block once: it is not reset and not saved.
    Accesses in an `untimed` direction need not wait for their cycle.
    """

    name: str
    offset: int
    access: str
    reset: int
    desc: str
    count: int
    stride: int
    fields: list[RegField]
    mask: int
    handlers: list[str]
    untimed: list[str]
    constant: bool


@dataclass
class Block:
    """Register block; `values` are named constants (states, codes) that belong to it."""

    name: str
    desc: str
    size: int
    regs: list[Reg]
    values: dict[str, tuple[int, str]]


def parse_block(path: Path) -> Block:
    """Reads one register file."""
    data = load(path)
    check_keys(data, {"block", "reg", "value"}, {"block"}, str(path))
    head = data["block"]
    check_keys(head, {"name", "desc", "size"}, {"name", "desc", "size"}, f"{path}: block")
    block = Block(head["name"], head["desc"], head["size"], [], {})
    require(path.stem == block.name, str(path), "file name must be the block's name")
    for name, entry in data.get("value", {}).items():
        check_keys(entry, {"value", "desc"}, {"value", "desc"}, f"{path}: value {name}")
        block.values[name] = (entry["value"], entry["desc"])
    used: dict[int, str] = {}
    for entry in data.get("reg", []):
        where = f"{path}: reg {entry.get('name', '?')}"
        check_keys(entry, {"name", "offset", "access", "reset", "desc", "count", "stride", "field", "mask", "handlers",
                           "untimed", "constant"},
                   {"name", "offset", "access", "desc"}, where)
        require(entry["access"] in ACCESS, where, f"access must be one of {sorted(ACCESS)}")
        require(entry["offset"] % 4 == 0, where, "offset must be a multiple of 4")
        count, stride = entry.get("count", 1), entry.get("stride", 4)
        for index in range(count):
            at = entry["offset"] + index * stride
            require(at + 4 <= block.size, where, f"lies outside the block of {block.size} bytes")
            require(at not in used, where, f"overlaps {used.get(at)}")
            used[at] = entry["name"]
        fields = parse_reg_fields(entry, where)
        block.regs.append(Reg(entry["name"], entry["offset"], entry["access"], entry.get("reset", 0),
                              entry["desc"], count, stride, fields, write_mask(entry, fields),
                              entry.get("handlers", []), entry.get("untimed", []), entry.get("constant", False)))
        check_behaviour(block.regs[-1], where)
    return block


def write_mask(entry: dict[str, Any], fields: list[RegField]) -> int:
    """Bits that a write changes: as given, or those of the writable fields, or all."""
    kept = sum(((1 << (f.hi - f.lo + 1)) - 1) << f.lo for f in fields if f.access not in {"ro", "w1s"})
    return entry.get("mask", kept if fields and entry["access"] in {"rw", "w1c"} else 0xFFFFFFFF)


def check_behaviour(reg: Reg, where: str) -> None:
    """Refuses keys that contradict the access of a register."""
    reads, writes = reg.access != "wo", reg.access != "ro"
    require(set(reg.handlers) <= set(HANDLERS), where, f"handlers must be some of {list(HANDLERS)}")
    require(set(reg.untimed) <= set(DIRECTIONS), where, f"untimed must be some of {list(DIRECTIONS)}")
    require(reads or not {"value", "peek", "read"} & set(reg.handlers), where, "has a handler for reads, but is wo")
    require(writes or not {"before", "write"} & set(reg.handlers), where, "has a handler for writes, but is ro")
    require((reads or "read" not in reg.untimed) and (writes or "write" not in reg.untimed), where,
            "untimed names a direction that the register has not")
    require(writes or reg.mask == 0xFFFFFFFF, where, "has a mask for writes, but is ro")
    require(not reg.constant or (reg.access == "ro" and not reg.handlers), where,
            "a constant register is ro and has no handlers")
    require("value" not in reg.handlers or reg.reset == 0, where, "a computed value has no reset value")
    require("value" not in reg.handlers or not writes or {"before", "write"} & set(reg.handlers), where,
            "a computed value that is written needs the handler `write`")
    require(reg.access != "wo" or "write" in reg.handlers, where, "a wo register needs the handler `write`")


def parse_reg_fields(entry: dict[str, Any], where: str) -> list[RegField]:
    """Reads the bit fields of one register."""
    fields: list[RegField] = []
    taken = 0
    for item in entry.get("field", []):
        check_keys(item, {"name", "bits", "access", "desc"}, {"name", "bits", "desc"}, where)
        require(item.get("access", entry["access"]) in FIELD_ACCESS, where,
                f"access of {item['name']} must be one of {sorted(FIELD_ACCESS)}")
        hi, lo = item["bits"]
        require(0 <= lo <= hi < 32, where, f"bits of {item['name']} must be [hi, lo] inside 31..0")
        mask = ((1 << (hi - lo + 1)) - 1) << lo
        require(not taken & mask, where, f"field {item['name']} overlaps another")
        taken |= mask
        fields.append(RegField(item["name"], hi, lo, item.get("access", entry["access"]), item["desc"]))
    return fields


@dataclass
class Format:
    """One file of spec/formats: constants, enums and structs in C naming."""

    name: str
    constants: dict[str, tuple[int, str]]
    enums: list[Enum]
    structs: dict[str, Struct]


def parse_format(path: Path) -> Format:
    """Reads one format file."""
    data = load(path)
    check_keys(data, {"constant", "enum", "struct"}, set(), str(path))
    structs: dict[str, Struct] = {}
    parse_structs(data, structs, path)
    return Format(path.stem, parse_constants(data, path), parse_enums(data, path), structs)


@dataclass
class BoardKey:
    """One key of a board file."""

    section: str
    name: str
    type: str
    unit: str
    min: int
    max: int
    desc: str
    structural: bool


@dataclass
class Pod:
    """A pod that is built in: the board that it has several of, and its values of section `pod`."""

    include: str
    source: str
    values: dict[str, int]


def parse_schema(path: Path) -> list[BoardKey]:
    """Reads spec/board/schema.toml."""
    keys = []
    for section, entries in load(path).items():
        for name, entry in entries.items():
            where = f"{path}: {section}.{name}"
            check_keys(entry, {"type", "unit", "min", "max", "desc", "structural"}, {"type", "unit", "desc"}, where)
            require(entry["type"] in BOARD_TYPES, where, f"type must be one of {sorted(BOARD_TYPES)}")
            keys.append(BoardKey(section, name, entry["type"], entry["unit"], entry.get("min", 0),
                                 entry.get("max", 0), entry["desc"], entry.get("structural", False)))
    return keys


def read_pods(path: Path, boards: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Pod]:
    """Reads spec/board/pods.toml: the pods that are built in, by name."""
    pods = {}
    for family, table in load(path).items():
        needed = {"include", "full_dimension", "source", "chips"}
        check_keys(table, needed, needed, f"{path}: {family}")
        require(table["include"] in boards, f"{path}: {family}", f"include must be one of {sorted(boards)}")
        board = boards[table["include"]]
        torus_x = board["board.torus_x"]["value"]
        torus = {"x": torus_x, "y": board["board.chips"]["value"] // torus_x}
        for name, chips in table["chips"].items():
            where = f"{path}: {family}.chips.{name}"
            require(len(chips) == len(torus), where, "must be chips in x and y")
            entries = {}
            for (axis, size), count in zip(torus.items(), chips, strict=True):
                require(count % size == 0, where, f"chips in {axis} must be a multiple of {size}")
                entries[f"boards_{axis}"] = count // size
                entries[f"wrap_{axis}"] = int(count == table["full_dimension"])
            cores = chips[0] * chips[1] * board["board.cores_per_chip"]["value"]
            require(name == f"{family}_{cores}", where, f"the pod of {cores} cores is named {family}_{cores}")
            pods[name] = Pod(table["include"], table["source"], entries)
    return pods


def check_board(path: Path, keys: list[BoardKey]) -> dict[str, dict[str, Any]]:
    """Checks one board file and returns its entries by dotted key."""
    data = load(path)
    entries = {f"{section}.{name}": entry for section, items in data.items() for name, entry in items.items()}
    names = {f"{key.section}.{key.name}" for key in keys}
    require(set(entries) == names, str(path),
            f"unknown {sorted(set(entries) - names)}, missing {sorted(names - set(entries))}")
    for key in keys:
        where = f"{path}: {key.section}.{key.name}"
        entry = entries[f"{key.section}.{key.name}"]
        needed = {"value", "unit", "origin", "source"}
        check_keys(entry, needed, needed, where)
        require(entry["unit"] == key.unit, where, f"unit must be {key.unit}")
        require(entry["origin"] in ORIGINS, where, f"origin must be one of {sorted(ORIGINS)}")
        require(bool(entry["source"]), where, "source is empty")
        require(entry["origin"] != "published" or not re.search(r"\bv4\b", entry["source"]), where,
                "a measurement of a v4 is not published for this board: origin must be measured_v4")
        if key.type == "int":
            require(isinstance(entry["value"], int), where, "value must be an integer")
        elif key.type == "real":
            require(isinstance(entry["value"], (int, float)), where, "value must be a number")
        else:
            require(isinstance(entry["value"], str), where, "value must be a string")
        if key.type != "string":
            require(key.min <= entry["value"] <= key.max, where, f"value must be in {key.min}..{key.max}")
    return entries
