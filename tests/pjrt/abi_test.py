"""Compares the headers of pjrt_plugin/ with the tables of the package pypjrt: every struct, field, enumerator and slot.

The tables become static assertions about the headers, which the C++ compiler then checks.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from pypjrt._abi import pjrt_0_114 as table

ROOT = Path(__file__).resolve().parents[2]
HEADERS = [ROOT / "pjrt_plugin/pjrt_abi.h", *sorted((ROOT / "pjrt_plugin/abi").glob("*.h"))]
# Slots of version 0.93: the table is of a newer version, and slots are only ever added behind.
SLOTS = 129
# Structs that a caller cannot see the size of: the table has no STRUCT_SIZE for them.
UNSIZED = {"PJRT_Api", "PJRT_Shardings_Extension", "PJRT_Layouts_Extension"}


def struct_assertions(name: str) -> list[str]:
    """Offset and size of every field of a struct, and that there is none between or behind them."""
    struct = getattr(table, name)
    asserts = []
    for field, *_ in struct._fields_:
        place = getattr(struct, field)
        if field.startswith("_anon"):  # its members are checked where they are structs of their own
            continue
        asserts.append(f"offsetof({name}, {field}) == {place.offset}")
        asserts.append(f"sizeof({name}::{field}) == {place.size}")
    asserts.append(f"sizeof({name}) == {ctypes.sizeof(struct)}")
    if name not in UNSIZED and hasattr(table, name + "_STRUCT_SIZE"):
        asserts.append(f"kPjrtStructSize<{name}> == {getattr(table, name + '_STRUCT_SIZE')}")
    return asserts


def slot_assertions() -> list[str]:
    """Place of every function in the table."""
    asserts = [f"offsetof(PJRT_Api, {name}) == {table.VTABLE_OFFSET + 8 * slot}"
               for name, slot in table.SLOT.items() if slot < SLOTS]
    return [*asserts, f"sizeof(PJRT_Api) == {table.VTABLE_OFFSET + 8 * SLOTS}"]


def own_names(text: str) -> tuple[list[str], dict[str, int], dict[str, list[str]]]:
    """Structs, enumerators with their values and fields of each struct, as the headers have them."""
    structs = {name: re.findall(r"(\w+)\)?(?:\([^()]*\))?;", body)
               for name, body in re.findall(r"^struct (\w+) \{(.*?)^\};", text, re.MULTILINE | re.DOTALL)}
    enumerators = {name: int(value) for name, value in re.findall(r"^\s+(PJRT_\w+) = (\d+),", text, re.MULTILINE)}
    return list(structs), enumerators, structs


def known_fields(name: str) -> set[str]:
    """Names of fields in the table; those of unions count as the struct's own."""
    names = set()
    for field, kind, *_ in getattr(table, name)._fields_:
        names |= {inner for inner, *_ in kind._fields_} if field.startswith("_anon") else {field}
    return names


def main() -> int:
    """Prints what differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", required=True)
    text = "\n".join(path.read_text(encoding="utf-8") for path in HEADERS)
    structs, enumerators, fields = own_names(text)
    errors = [f"enumerator {name} = {value}, the table has {getattr(table, name, None)}"
              for name, value in enumerators.items() if getattr(table, name, None) != value]
    asserts = slot_assertions()
    for name in structs:
        if name == "PJRT_Api" or name.startswith("PLUGIN_"):  # the profiler's, which the table does not hold
            continue
        asserts += struct_assertions(name)
        errors += [f"{name} has no field {field}" for field in fields[name]
                   if field not in known_fields(name) and field != "name"]  # `name`: the parameter of a macro
    if len(structs) < 90 or len(enumerators) < 70:
        errors.append(f"only {len(structs)} structs and {len(enumerators)} enumerators were found")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "abi.cpp"
        lines = [f'static_assert({text}, "{text}");' for text in asserts]
        includes = "".join(f'#include "{path.relative_to(ROOT / "pjrt_plugin")}"\n' for path in HEADERS)
        source.write_text(includes + "\n".join(lines) + "\n", encoding="utf-8")
        done = subprocess.run([parser.parse_args().compiler, "-std=c++20", "-fsyntax-only", "-I", ROOT / "pjrt_plugin",
                               source], check=False, capture_output=True, text=True)
        errors += [done.stderr] if done.returncode != 0 else []
    print("\n".join(errors) if errors else f"{len(asserts)} assertions, {len(enumerators)} enumerators agree")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
