"""Compares the headers of tf_plugin/abi with those of an installed tensorflow-tpu: each struct, field, enumerator and
function of ours, by assertions that the C++ compiler checks; and the names that TensorFlow looks up with names.txt.

Usage: abi_test.py --venv FOLDER --compiler C++. Exits with 77 (skipped) if the environment is not there.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = sorted((ROOT / "tf_plugin/abi").glob("*.h"))
TABLES = ("library", "executor", "profiler")
SKIPPED = 77
# Ours alone: templates and types behind the names of the interface.
OWN = {"TpuList"}


def own_structs(text: str) -> dict[str, list[str]]:
    """Fields of each struct."""
    found = re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.MULTILINE | re.DOTALL)
    return {name: re.findall(r"(\w+)(?:\[\d*\])?;", re.sub(r"//.*", "", body)) for name, body in found
            if name not in OWN}


def own_functions(text: str) -> list[str]:
    return re.findall(r"^[\w*:<>, ]+?[ *](\w+)\([^;]*\);", text, re.MULTILINE)


def names_of(include: Path) -> set[str]:
    """What TensorFlow looks up in the library."""
    names = {"TfTpu_Initialize"}
    for table in TABLES:
        text = (include / f"xla/stream_executor/tpu/tpu_{table}_init_fns.inc").read_text("utf-8")
        names |= set(re.findall(r"_SET_FN\(\w+,\s*(\w+)\)", text))
    return names


def one_side(structs: dict[str, list[str]], enumerators: list[str], includes: list[str]) -> str:
    """A program that prints what one side has."""
    lines = [*includes, "#include <cstdio>", "#include <cstddef>", "int main() {"]
    for name, fields in structs.items():
        lines.append(f'std::printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'std::printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof({name}::{field}));'
                  for field in fields]
    lines += [f'std::printf("{name} %d\\n", static_cast<int>({name}));' for name in enumerators]
    return "\n".join([*lines, "}\n"])


def output_of(compiler: str, source: str, folder: Path, include: list[str]) -> list[str]:
    (folder / "side.cpp").write_text(source, "ascii")
    subprocess.run([compiler, "-std=c++20", "-w", *include, "-o", folder / "side", folder / "side.cpp"], check=True)
    return subprocess.run([folder / "side"], check=True, capture_output=True, text=True).stdout.splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--compiler", default="c++")
    options = parser.parse_args()
    installed = list(options.venv.glob("lib/python3.*/site-packages/tensorflow/include"))
    if not installed:
        print(f"skipped: {options.venv} has no TensorFlow; make it with sim_scripts/tensorflow_venv")
        return SKIPPED
    (include,) = installed
    names = set((ROOT / "tests/tensorflow/names.txt").read_text("ascii").split())
    assert names == names_of(include), f"names.txt differs: {sorted(names ^ names_of(include))}"
    text = "\n".join(header.read_text("ascii") for header in HEADERS)
    structs = own_structs(text)
    enumerators = [name.strip() for body in re.findall(r"^enum \w+ \{(.*?)\};", text, re.MULTILINE | re.DOTALL)
                   for name in re.sub(r"= \d+", "", body).split(",")]
    functions = own_functions(text)
    assert len(structs) > 30 and len(functions) > 150, (len(structs), len(functions))
    unknown = set(functions) - names
    assert not unknown, f"functions that the interface does not have: {sorted(unknown)}"
    theirs = [f'#include "xla/stream_executor/tpu/tpu_{part}_c_api.h"' for part in ("executor", "ops", "profiler")]
    ours = [f'#include "abi/{header.name}"' for header in HEADERS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = output_of(options.compiler, one_side(structs, enumerators, theirs), folder, ["-I", str(include)])
        found = output_of(options.compiler, one_side(structs, enumerators, ours), folder,
                          ["-I", str(ROOT / "tf_plugin")])
    different = [f"{theirs}, ours: {ours}" for theirs, ours in zip(expected, found, strict=True) if theirs != ours]
    assert not different, "\n".join(different)
    print(f"{len(structs)} structs, {len(enumerators)} enumerators, {len(functions)} functions, {len(names)} names")
    return 0


if __name__ == "__main__":
    sys.exit(main())
