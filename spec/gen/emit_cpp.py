"""Emits the C++ headers: isa.hpp, <block>_regs.hpp, registers.hpp, ring_names.hpp and board_params.hpp."""

from __future__ import annotations

from pathlib import Path

from parse import SCALAR_BYTES, Block, BoardKey, Format, Isa, Struct, engine_unit

CPP_TYPES = {"u8": "uint8_t", "i8": "int8_t", "u16": "uint16_t", "i16": "int16_t", "u32": "uint32_t",
             "i32": "int32_t", "u64": "uint64_t", "i64": "int64_t"}
BOARD_TYPES = {"int": "int64_t", "real": "double", "string": "std::string"}
HEAD = "// Generated from {source} by spec/gen. Do not edit.\n#pragma once\n\n"


def pascal(name: str) -> str:
    """vpu_kernel -> VpuKernel."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def cpp_struct(struct: Struct, name: str) -> str:
    """A struct with checked size and offsets, masks and readers of its flags; counted fields are std::array."""
    lines = [f"/// {struct.desc.splitlines()[0]}", f"struct {name} {{"]
    for flag in struct.flags:
        lines.append(f"  static constexpr uint8_t k{pascal(flag.name)} = {1 << flag.bit:#x};  ///< {flag.desc}")
    for item in struct.fields:
        base = CPP_TYPES.get(item.type, item.type)
        full = f"std::array<{base}, {item.count}>" if item.count > 1 else base
        lines.append(f"  {full} {item.name}{{}};  ///< {item.desc}")
    member = "head.flags" if struct.fields and struct.fields[0].name == "head" else "flags"
    for flag in struct.flags:
        lines.append(f"  constexpr bool {flag.name}() const {{ return ({member} & k{pascal(flag.name)}) != 0; }}")
    lines.append(f"  friend bool operator==(const {name}&, const {name}&) = default;")
    lines.append("};")
    lines.append(f"static_assert(sizeof({name}) == {struct.size});")
    for item in struct.fields:
        lines.append(f"static_assert(offsetof({name}, {item.name}) == {item.offset});")
    return "\n".join(lines) + "\n"


def field_table(struct: Struct, name: str) -> str:
    """Rows {name, type, count, offset} for generic printing and parsing."""
    rows = [f'    FieldInfo{{"{f.name}", FieldType::k{pascal(f.type)}, {f.count}, {f.offset}}},'
            for f in struct.fields if f.name != "head"]
    body = "\n".join(rows)
    return f"inline constexpr std::array<FieldInfo, {len(rows)}> {name} = {{{{\n{body}\n}}}};\n" if rows else (
        f"inline constexpr std::array<FieldInfo, 0> {name} = {{}};\n")


def queue_table(queues: list[str]) -> str:
    """Engine and unit of every queue, and the queue of a matrix unit."""
    engines = list(dict.fromkeys(engine_unit(q)[0] for q in queues))
    rows = ", ".join(f"QueueInfo{{Engine::k{pascal(engine)}, {unit}}}" for engine, unit in map(engine_unit, queues))
    units = ", ".join(f"Queue::k{pascal(q)}" for q in sorted(q for q in queues if engine_unit(q)[0] == "mxu"))
    return ("/// Engines of a core; one may have several units, each with a queue.\n"
            f"enum class Engine : uint8_t {{ {', '.join(f'k{pascal(e)}' for e in engines)} }};\n"
            "struct QueueInfo {\n  Engine engine;\n  uint8_t unit;  ///< of the engine\n};\n"
            f"/// By queue.\ninline constexpr std::array<QueueInfo, {len(queues)}> kQueues = {{{rows}}};\n"
            f"/// By unit.\ninline constexpr std::array kMxuQueues = {{{units}}};\n")


def emit_isa(isa: Isa, out: Path) -> None:
    """Writes isa.hpp: enums, structs, opcodes, operand tables, VPU slots."""
    text = [HEAD.format(source="spec/isa/*.toml"),
            "#include <array>\n#include <cstddef>\n#include <cstdint>\n#include <span>\n#include <string_view>\n\n"
            "namespace tpu::spec {\n",
            f"inline constexpr uint32_t kIsaVersion = {isa.version};\n"]
    for name, (value, desc) in isa.constants.items():
        text.append(f"inline constexpr int k{pascal(name.lower())} = {value};  ///< {desc}")
    for enum in isa.enums:
        values = ", ".join(f"k{pascal(v)} = {i}" for i, v in enumerate(enum.values))
        text.append(f"/// {enum.desc}\nenum class {enum.name} : uint8_t {{ {values} }};")
        text.append(f"inline constexpr int k{enum.name}Count = {len(enum.values)};")
        names = ", ".join(f'"{v}"' for v in enum.values)
        text.append(f"inline constexpr std::array<std::string_view, {len(enum.values)}> "
                    f"k{enum.name}Names = {{{names}}};\n")
    queues = next(e.values for e in isa.enums if e.name == "Queue")
    text.append(queue_table(queues))
    for struct in isa.structs.values():
        text.append(cpp_struct(struct, struct.name))
    types = ", ".join(f"k{pascal(t)}" for t in [*SCALAR_BYTES, *isa.structs])
    text.append("/// Type of a field, for generic printing and parsing.\n"
                f"enum class FieldType : uint8_t {{ {types} }};")
    text.append("/// One field of a command: name, type, number of elements, byte offset in the command.\n"
                "struct FieldInfo {\n  std::string_view name;\n  FieldType type;\n  int count;\n  int offset;\n};\n")
    text.append("/// Engine command opcodes.\nenum class Opcode : uint8_t { "
                + ", ".join(f"k{pascal(c.name)} = {c.opcode}" for c in isa.commands) + " };\n")
    for command in isa.commands:
        name = pascal(command.name) + "Command"
        text.append(cpp_struct(command.struct, name))
        text.append(field_table(command.struct, f"k{pascal(command.name)}Fields"))
        flags = ", ".join(f'"{f.name}"' for f in command.struct.flags)
        text.append(f"inline constexpr std::array<std::string_view, {len(command.struct.flags)}> "
                    f"k{pascal(command.name)}Flags = {{{flags}}};\n")
    rows = []
    for command in isa.commands:
        mask = sum(1 << i for i, q in enumerate(queues) if engine_unit(q)[0] in command.queues)
        rows.append(f'    CommandInfo{{"{command.name}", Opcode::k{pascal(command.name)}, {mask:#x}, '
                    f"{command.struct.size}, k{pascal(command.name)}Fields.data(), "
                    f"static_cast<int>(k{pascal(command.name)}Fields.size()), k{pascal(command.name)}Flags}},")
    text.append("/// One engine command: mnemonic, queues that take it (bit mask), fixed size in bytes, its fields,\n"
                "/// the names of the bits of its header's flags.\n"
                "struct CommandInfo {\n  std::string_view name;\n  Opcode opcode;\n  uint32_t queue_mask;\n"
                "  int bytes;\n  const FieldInfo* fields;\n  int field_count;\n"
                "  std::span<const std::string_view> flags;\n};")
    text.append(f"inline constexpr std::array<CommandInfo, {len(rows)}> kCommands = {{{{\n" + "\n".join(rows)
                + "\n}};\n")
    text.append("/// Sequencer instructions. Word: op u8, rd u8, rs1 u8, rs2 u8, imm i32.\n"
                "enum class ScalarOp : uint8_t { "
                + ", ".join(f"k{pascal(i.name)} = {i.opcode}" for i in isa.insns) + " };")
    text.append("struct ScalarInsn {\n  uint8_t op{};\n  uint8_t rd{};\n  uint8_t rs1{};\n  uint8_t rs2{};\n"
                "  int32_t imm{};\n  friend bool operator==(const ScalarInsn&, const ScalarInsn&) = default;\n};\n"
                "static_assert(sizeof(ScalarInsn) == 8);")
    text.append("struct ScalarInfo {\n  std::string_view name;\n  ScalarOp op;\n  std::string_view form;\n};")
    rows = [f'    ScalarInfo{{"{i.name}", ScalarOp::k{pascal(i.name)}, "{i.form}"}},' for i in isa.insns]
    text.append(f"inline constexpr std::array<ScalarInfo, {len(rows)}> kScalarInsns = {{{{\n" + "\n".join(rows)
                + "\n}};\n")
    text.append("enum class VpuOp : uint8_t { "
                + ", ".join(f"k{pascal(o.name)} = {o.opcode}" for o in isa.vpu_ops) + " };")
    text.append("/// One VPU operation: mnemonic, operand form, slots that it takes a block.\nstruct VpuOpInfo {\n"
                "  std::string_view name;\n  VpuOp op;\n  std::string_view form;\n  uint8_t alu;\n  uint8_t trans;\n"
                "  uint8_t load;\n  uint8_t store;\n  uint8_t reduce;\n};")
    rows = [f'    VpuOpInfo{{"{o.name}", VpuOp::k{pascal(o.name)}, "{o.form}", {o.slots["alu"]}, {o.slots["trans"]}, '
            f'{o.slots["load"]}, {o.slots["store"]}, {o.slots["reduce"]}}},' for o in isa.vpu_ops]
    text.append(vpu_functions(isa))
    text.append("/// Indexed by opcode - 1.")
    text.append(f"inline constexpr std::array<VpuOpInfo, {len(rows)}> kVpuOps = {{{{\n" + "\n".join(rows) + "\n}};\n")
    text.append("}  // namespace tpu::spec\n")
    (out / "isa.hpp").write_text("\n".join(text))


# C++ functions cannot have these names of VPU operations.
VPU_FUNCTIONS = {"and": "and_i", "or": "or_i", "xor": "xor_i", "not": "not_i", "select": "select_u"}


def vpu_functions(isa: Isa) -> str:
    """Macros that call X(enumerator, function) for operations on lanes and for reductions, by name."""

    def rows(macro: str, desc: str, names: list[str]) -> str:
        calls = [f"  X(k{pascal(n)}, {VPU_FUNCTIONS.get(n, n)})" for n in names]
        return f"/// {desc}\n#define {macro}(X) \\\n" + " \\\n".join(calls) + "\n"

    lanes = [o.name for o in isa.vpu_ops if o.form in ("rd,rs1", "rd,rs1,rs2", "rd,rs1,rs2,rs3")]
    reductions = next(e.values for e in isa.enums if e.name == "VpuReduce")
    return rows(
        "TPU_VPU_LANE_OPS", "X(VpuOp, function) for operations on registers alone, lane by lane.", lanes
    ) + rows("TPU_VPU_REDUCTIONS", "X(VpuReduce, function).", reductions)


def emit_regs(block: Block, out: Path) -> None:
    """Writes <block>_regs.hpp: constexpr offsets, field masks and named values."""
    text = [HEAD.format(source=f"spec/regs/{block.name}.toml"),
            f"#include <cstdint>\n\n/// {block.desc}\nnamespace tpu::spec::{block.name} {{",
            f"inline constexpr uint32_t kSize = {block.size:#x};"]
    for name, (value, desc) in block.values.items():
        text.append(f"inline constexpr uint32_t k{pascal(name.lower())} = {value:#x};  ///< {desc}")
    for reg in block.regs:
        name = pascal(reg.name.lower())
        text.append(f"inline constexpr uint32_t k{name} = {reg.offset:#x};  ///< {reg.access}: {reg.desc}")
        if reg.reset:
            text.append(f"inline constexpr uint32_t k{name}Reset = {reg.reset:#x};")
        if reg.count > 1:
            text.append(f"inline constexpr uint32_t k{name}Count = {reg.count};")
            text.append(f"inline constexpr uint32_t k{name}Stride = {reg.stride};")
        for item in reg.fields:
            full = name + pascal(item.name.lower())
            mask = ((1 << (item.hi - item.lo + 1)) - 1) << item.lo
            text.append(f"inline constexpr uint32_t k{full}Mask = {mask:#x};  ///< {item.desc}")
            text.append(f"inline constexpr uint32_t k{full}Shift = {item.lo};")
    text.append(f"}}  // namespace tpu::spec::{block.name}\n")
    (out / f"{block.name}_regs.hpp").write_text("\n".join(text))


REGISTER_TABLE = """#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tpu::spec {

/// kClears: a 1 that is written clears its bit.
enum class RegisterAccess : uint8_t { kReadWrite, kReadOnly, kWriteOnly, kClears };

/// What a block does itself for a register, as bits: see HANDLERS in spec/gen/parse.py.
inline constexpr uint8_t kHandlesValue = 1;
inline constexpr uint8_t kHandlesPeek = 2;
inline constexpr uint8_t kHandlesRead = 4;
inline constexpr uint8_t kHandlesBefore = 8;
inline constexpr uint8_t kHandlesWrite = 16;

/// One register of a block, or an array of them.
struct RegisterRow {
  std::string_view name;
  uint32_t offset;
  uint32_t count;
  uint32_t stride;
  RegisterAccess access;
  uint32_t reset;
  uint32_t mask;     ///< bits that a write changes
  uint8_t handlers;  ///< kHandles*
  bool untimed_read;
  bool untimed_write;
  bool constant;  ///< set once by the block: not reset, not saved

  constexpr bool handles(uint8_t what) const { return (handlers & what) != 0; }
  constexpr bool readable() const { return access != RegisterAccess::kWriteOnly; }
  constexpr bool writable() const { return access != RegisterAccess::kReadOnly; }
};

/// Bytes of a block, and the row of each of its words.
inline constexpr uint32_t kRegisterBlockBytes = 4096;
inline constexpr uint8_t kNoRegister = 0xff;
using RegisterIndex = std::array<uint8_t, kRegisterBlockBytes / 4>;

constexpr RegisterIndex register_index(std::span<const RegisterRow> rows) {
  RegisterIndex index{};
  index.fill(kNoRegister);
  for (size_t row = 0; row < rows.size(); ++row) {
    for (uint32_t i = 0; i < rows[row].count; ++i) {
      index[(rows[row].offset + i * rows[row].stride) / 4] = static_cast<uint8_t>(row);
    }
  }
  return index;
}

}  // namespace tpu::spec
"""
ROW_ACCESS = {"rw": "kReadWrite", "ro": "kReadOnly", "wo": "kWriteOnly", "w1c": "kClears"}


def emit_register_table(out: Path) -> None:
    """Writes register_table.hpp: the type of the rows of <block>_table.hpp."""
    (out / "register_table.hpp").write_text(HEAD.format(source="spec/regs/*.toml") + REGISTER_TABLE)


def emit_block_table(block: Block, out: Path) -> None:
    """Writes <block>_table.hpp: how the block's registers behave."""
    rows = []
    for reg in block.regs:
        handlers = " | ".join(f"kHandles{pascal(h)}" for h in reg.handlers) or "0"
        flags = ", ".join("true" if flag else "false"
                          for flag in ("read" in reg.untimed, "write" in reg.untimed, reg.constant))
        rows.append(f'    RegisterRow{{"{reg.name}", {reg.offset:#x}, {reg.count}, {reg.stride}, '
                    f"RegisterAccess::{ROW_ACCESS[reg.access]}, {reg.reset:#x}, {reg.mask:#x}, {handlers}, {flags}}},")
    (out / f"{block.name}_table.hpp").write_text("\n".join([
        HEAD.format(source=f"spec/regs/{block.name}.toml") + '#include "tpu/spec/register_table.hpp"\n',
        f"namespace tpu::spec::{block.name} {{\n",
        f"inline constexpr std::array<RegisterRow, {len(rows)}> kTable = {{{{", *rows, "}};",
        "inline constexpr RegisterIndex kTableIndex = register_index(kTable);",
        f"\n}}  // namespace tpu::spec::{block.name}\n"]))


def register_rows(block: Block, base: int) -> list[str]:
    """Rows of RegisterInfo of a block at an address."""
    return [f'    RegisterInfo{{"{block.name}", "{reg.name}", {base + reg.offset:#x}, {reg.count}, {reg.stride}, '
            f'{"false" if reg.access == "ro" else "true"}}},'
            for reg in block.regs]


def emit_registers(blocks: list[Block], hart_map: Format, out: Path) -> None:
    """Writes registers.hpp: registers by name, those on the bus of a control hart at their addresses there."""
    hart: list[str] = []
    text = [HEAD.format(source="spec/regs/*.toml"),
            "#include <array>\n#include <cstdint>\n#include <string_view>\n\nnamespace tpu::spec {\n",
            "/// A register of 32 bits; with `count` > 1 an array of them, `stride` bytes apart.\n"
            "struct RegisterInfo {\n"
            "  std::string_view block;\n  std::string_view name;\n  uint32_t address;\n  uint32_t count;\n"
            "  uint32_t stride;\n  bool writable;  ///< by the side whose table this is\n};\n"]
    for block in blocks:
        base = hart_map.constants.get(f"HART_{block.name.upper()}_BASE")
        if base is not None:
            hart += register_rows(block, base[0])
            continue
        rows = register_rows(block, 0)
        text.append(f"/// Of the host's page {block.name}, by offset.\n"
                    f"inline constexpr std::array<RegisterInfo, {len(rows)}> k{pascal(block.name)}Registers = {{{{\n"
                    + "\n".join(rows) + "\n}};\n")
    text.append("/// Of a control hart's bus, by address there.\n"
                f"inline constexpr std::array<RegisterInfo, {len(hart)}> kHartRegisters = {{{{\n" + "\n".join(hart)
                + "\n}};\n\n}  // namespace tpu::spec\n")
    (out / "registers.hpp").write_text("\n".join(text))


def emit_ring_names(rings: Format, out: Path) -> None:
    """Writes ring_names.hpp: opcodes and statuses of ring entries as texts."""
    text = [HEAD.format(source="spec/formats/rings.toml"),
            "#include <cstdint>\n#include <string_view>\n\nnamespace tpu::spec {\n"]
    for prefix, function in (("OP_", "ring_opcode_name"), ("STATUS_", "ring_status_name")):
        cases = [f'    case {value}:\n      return "{name.removeprefix(prefix)}";'
                 for name, (value, _) in rings.constants.items() if name.startswith(prefix) and name != "OP_NONE"]
        text.append(f'/// "?" for a number that has none.\nconstexpr std::string_view {function}(uint32_t number) {{\n'
                    "  switch (number) {\n" + "\n".join(cases) + '\n    default:\n      return "?";\n  }\n}\n')
    text.append("}  // namespace tpu::spec\n")
    (out / "ring_names.hpp").write_text("\n".join(text))


def emit_board(keys: list[BoardKey], presets: dict[str, str], out: Path) -> None:
    """Writes board_params.hpp: the struct, the key table with pointers to members, the preset texts."""
    sections: dict[str, list[BoardKey]] = {}
    for key in keys:
        sections.setdefault(key.section, []).append(key)
    text = [HEAD.format(source="spec/board/*.toml"),
            "#include <array>\n#include <cstdint>\n#include <string>\n#include <string_view>\n\n"
            "namespace tpu::spec {\n",
            "/// Every number of a board. Units and meanings: spec/board/schema.toml, docs/timing_model.md.",
            "struct BoardParams {"]
    for section, items in sections.items():
        text.append("  struct {")
        for key in items:
            text.append(f"    {BOARD_TYPES[key.type]} {key.name}{{}};  ///< [{key.unit}] {key.desc}")
        text.append(f"  }} {section};")
    text.append("};\n")
    text.append("/// One key of a board file; exactly one of `number`, `real` and `text` is set.\nstruct BoardKey {\n"
                "  std::string_view section;\n  std::string_view name;\n  std::string_view unit;\n  int64_t min;\n"
                "  int64_t max;\n  bool structural;  ///< compiled programs depend on it\n"
                "  int64_t& (*number)(BoardParams&);\n  double& (*real)(BoardParams&);\n"
                "  std::string& (*text)(BoardParams&);\n};")
    rows = []
    for key in keys:
        getter = f"[](BoardParams& p) -> {BOARD_TYPES[key.type]}& {{ return p.{key.section}.{key.name}; }}"
        getters = ", ".join(getter if kind == key.type else "nullptr" for kind in BOARD_TYPES)
        rows.append(f'    BoardKey{{"{key.section}", "{key.name}", "{key.unit}", {key.min}, {key.max}, '
                    f'{"true" if key.structural else "false"}, {getters}}},')
    text.append(f"inline constexpr std::array<BoardKey, {len(rows)}> kBoardKeys = {{{{\n" + "\n".join(rows) + "\n}};\n")
    text.append("/// The value that every board has of a key: its range holds one.\n"
                "consteval int64_t fixed_board_value(std::string_view section, std::string_view name) {\n"
                "  for (const BoardKey& key : kBoardKeys) {\n"
                "    if (key.section == section && key.name == name && key.min == key.max) {\n"
                "      return key.min;\n    }\n  }\n"
                "  throw \"boards differ in this key, or it does not exist\";\n}\n")
    text.append("/// A board file that is built in.\nstruct BoardPreset {\n"
                "  std::string_view name;\n  std::string_view text;\n};")
    rows = [f'    BoardPreset{{"{name}", R"toml({body})toml"}},' for name, body in presets.items()]
    text.append(f"inline constexpr std::array<BoardPreset, {len(rows)}> kBoardPresets = {{{{\n" + "\n".join(rows)
                + "\n}};\n")
    text.append("}  // namespace tpu::spec\n")
    (out / "board_params.hpp").write_text("\n".join(text))
