"""Emits the C headers that firmware, driver and model share: <block>_regs.h and <format>.h (C11 and C++)."""

from __future__ import annotations

from pathlib import Path

from emit_cpp import CPP_TYPES
from parse import Block, Format, Isa

GUARD = "/* Generated from {source} by spec/gen. Do not edit. */\n#ifndef {guard}\n#define {guard}\n\n"


def emit_regs(block: Block, out: Path) -> None:
    """Writes <block>_regs.h: TPU_<BLOCK>_<REG>_OFFSET, _RESET, <FIELD>_MASK, <FIELD>_SHIFT and named values."""
    upper = f"TPU_{block.name.upper()}"
    text = [GUARD.format(source=f"spec/regs/{block.name}.toml", guard=f"{upper}_REGS_H"), f"/* {block.desc} */"]
    text.append(f"#define {upper}_SIZE {block.size:#x}u")
    for name, (value, desc) in block.values.items():
        text.append(f"#define {upper}_{name} {value:#x}u /* {desc} */")
    for reg in block.regs:
        text.append(f"#define {upper}_{reg.name}_OFFSET {reg.offset:#x}u /* {reg.access}: {reg.desc} */")
        if reg.reset:
            text.append(f"#define {upper}_{reg.name}_RESET {reg.reset:#x}u")
        if reg.count > 1:
            text.append(f"#define {upper}_{reg.name}_COUNT {reg.count}u")
            text.append(f"#define {upper}_{reg.name}_STRIDE {reg.stride}u")
        for item in reg.fields:
            mask = ((1 << (item.hi - item.lo + 1)) - 1) << item.lo
            text.append(f"#define {upper}_{reg.name}_{item.name}_MASK {mask:#x}u /* {item.desc} */")
            text.append(f"#define {upper}_{reg.name}_{item.name}_SHIFT {item.lo}u")
    text.append("\n#endif\n")
    (out / f"{block.name}_regs.h").write_text("\n".join(text))


def emit_isa(isa: Isa, out: Path) -> None:
    """Writes isa.h: what the firmware checks of a program."""
    text = [GUARD.format(source="spec/isa", guard="TPU_ISA_H"),
            f"#define TPU_ISA_VERSION {isa.version}u /* version of the core ISA */", "\n#endif\n"]
    (out / "isa.h").write_text("\n".join(text))


def emit_format(fmt: Format, out: Path) -> None:
    """Writes <format>.h: constants, enum values and structs with static asserts on size and offsets."""
    guard = f"TPU_{fmt.name.upper()}_H"
    text = [GUARD.format(source=f"spec/formats/{fmt.name}.toml", guard=guard),
            "#ifdef __cplusplus\n#include <cassert>\n#include <cstddef>\n#include <cstdint>\n#else\n"
            "#include <assert.h>\n#include <stddef.h>\n#include <stdint.h>\n#endif\n"]
    for name, (value, desc) in fmt.constants.items():
        suffix = "ull" if value > 0xFFFFFFFF else "u"
        text.append(f"#define TPU_{name} {value:#x}{suffix} /* {desc} */")
    for enum in fmt.enums:
        text.append(f"\n/* {enum.desc} */")
        for index, value in enumerate(enum.values):
            text.append(f"#define TPU_{enum.name.upper()}_{value.upper()} {index}u")
    for struct in fmt.structs.values():
        text.append(f"\n/* {struct.desc} */\ntypedef struct tpu_{struct.name} {{")
        for item in struct.fields:
            base = CPP_TYPES.get(item.type, f"tpu_{item.type}_t")
            array = f"[{item.count}]" if item.count > 1 else ""
            text.append(f"  {base} {item.name}{array}; /* {item.desc} */")
        text.append(f"}} tpu_{struct.name}_t;")
        text.append(f'static_assert(sizeof(tpu_{struct.name}_t) == {struct.size}, "size of tpu_{struct.name}_t");')
        for item in struct.fields:
            text.append(f"static_assert(offsetof(tpu_{struct.name}_t, {item.name}) == {item.offset}, "
                        f'"offset of {item.name}");')
    text.append("\n#endif\n")
    (out / f"{fmt.name}.h").write_text("\n".join(text))
