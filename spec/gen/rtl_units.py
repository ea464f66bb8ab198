"""Constants and cycle formulas of the RTL units: spec/rtl/units.toml -> tpu_spec_pkg.sv and rtl_units.hpp."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emit_cpp import HEAD, pascal
from parse import Block, check_keys, load, require

SOURCES = ("value", "board", "register")
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)


@dataclass
class Constant:
    """A number of a unit."""

    unit: str
    name: str
    value: int
    desc: str


@dataclass
class Function:
    """A formula of a unit over integers."""

    unit: str
    name: str
    args: list[str]
    expr: str
    desc: str


def constant_value(entry: dict[str, Any], board: dict[str, dict[str, Any]], blocks: dict[str, Block],
                   where: str) -> int:
    """The value of an entry, from where it says."""
    given = [key for key in SOURCES if key in entry]
    require(len(given) == 1, where, f"needs one of {list(SOURCES)}")
    source = entry[given[0]]
    if given[0] == "board":
        require(source in board, where, f"there is no board number {source}")
        value = board[source]["value"]
    elif given[0] == "register":
        block, _, name = source.partition(".")
        require(block in blocks and name in blocks[block].values, where, f"there is no value {source} in spec/regs")
        value = blocks[block].values[name][0]
    else:
        value = source
    require(isinstance(value, int) and 0 <= value < 1 << 31, where, "value must be a whole number of 31 bits")
    return value


def check_expression(function: Function, where: str) -> None:
    """Rejects expressions that C++ and SystemVerilog may compute differently."""
    try:
        tree = ast.parse(function.expr.replace("/", "//"), mode="eval").body
    except SyntaxError as error:
        require(False, where, f"expr: {error.msg}")
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            require(node.id in function.args, where, f"expr uses {node.id}, which is not an argument")
            used.add(node.id)
        elif isinstance(node, ast.Constant):
            require(isinstance(node.value, int), where, f"expr has {node.value!r}, which is not a whole number")
        else:
            require(isinstance(node, (ast.BinOp, ast.Load, *OPERATORS)), where,
                    f"expr has {type(node).__name__}; it may have + - * / and parentheses")
    require(used == set(function.args), where, f"expr does not use {sorted(set(function.args) - used)}")


def parse_units(path: Path, board: dict[str, dict[str, Any]],
                blocks: dict[str, Block]) -> tuple[list[Constant], list[Function]]:
    """Reads spec/rtl/units.toml."""
    constants, functions = [], []
    for unit, tables in load(path).items():
        check_keys(tables, {"constant", "function"}, set(), f"{path}: {unit}")
        for name, entry in tables.get("constant", {}).items():
            where = f"{path}: {unit}.{name}"
            check_keys(entry, {*SOURCES, "desc"}, {"desc"}, where)
            constants.append(Constant(unit, name, constant_value(entry, board, blocks, where), entry["desc"]))
        for name, entry in tables.get("function", {}).items():
            where = f"{path}: {unit}.{name}"
            check_keys(entry, {"args", "expr", "desc"}, {"args", "expr", "desc"}, where)
            functions.append(Function(unit, name, entry["args"], entry["expr"], entry["desc"]))
            check_expression(functions[-1], where)
    return constants, functions


def emit_package(constants: list[Constant], functions: list[Function], out: Path) -> None:
    """Writes tpu_spec_pkg.sv."""
    text = ["// Generated from spec/rtl/units.toml by spec/gen. Do not edit.\n",
            "/* verilator lint_off UNUSED */  // a top uses the constants of its unit only",
            "package tpu_spec_pkg;\n"]
    for item in constants:
        text += [f"  // {item.desc}",
                 f"  localparam int unsigned {item.unit.upper()}_{item.name} = {item.value};"]
    for item in functions:
        args = ", ".join(f"input int unsigned {arg}" for arg in item.args)
        text += [f"\n  // {item.desc}", f"  function automatic int unsigned {item.unit}_{item.name}({args});",
                 f"    return {item.expr};", "  endfunction"]
    text += ["\nendpackage", "/* verilator lint_on UNUSED */", ""]
    (out / "tpu_spec_pkg.sv").write_text("\n".join(text))


def emit_header(constants: list[Constant], functions: list[Function], out: Path) -> None:
    """Writes rtl_units.hpp."""
    text = [HEAD.format(source="spec/rtl/units.toml") + "#include <cstdint>\n", "namespace tpu::spec::rtl {\n"]
    text += [f"inline constexpr uint32_t k{pascal(item.unit)}{pascal(item.name.lower())} = {item.value};"
             f"  ///< {item.desc}" for item in constants]
    for item in functions:
        args = ", ".join(f"uint64_t {arg}" for arg in item.args)
        text.append(f"\n/// {item.desc}\nconstexpr uint64_t {item.unit}_{item.name}({args}) {{\n"
                    f"  return {item.expr};\n}}")
    text.append("\n}  // namespace tpu::spec::rtl\n")
    (out / "rtl_units.hpp").write_text("\n".join(text))
