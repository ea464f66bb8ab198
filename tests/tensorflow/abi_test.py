"""Compares the headers of tf_plugin/abi and the functions of tf_plugin/refused_slots.cpp with the headers of an
installed tensorflow-tpu: each struct, field and enumerator, and the type of each function, as the C++ compiler has
them; and the names that TensorFlow looks up with names.txt. Of 2.19, whose layout has more lists, also how many bytes
tf_plugin/client_version.cpp says those are.

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
# Types of theirs, and what has the same place in a call.
SAME = {"const XLA_Shape&": "const XLA_Shape*", "TpuExecutableSerializedProto*": "TpuSerializedProto*",
        "CompilerMetadataSerializedProto*": "TpuSerializedProto*", "const SE_TpuTopology*": "SE_TpuTopology*"}
# Of 2.20 alone; its result is a class of C++.
SPARSE_CORES = "TpuTopology_MaybeAvailableSparseCoresPerLogicalDevice"
OLDER = "TPU_TF_INTERFACE_2_19"


def own_structs(text: str) -> dict[str, list[str]]:
    """Fields of each struct."""
    found = re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.MULTILINE | re.DOTALL)
    return {name: re.findall(r"(\w+)(?:\[\d*\])?;", re.sub(r"//.*", "", body)) for name, body in found
            if name not in OWN}


def own_functions(text: str) -> list[str]:
    return re.findall(r"^[\w*:<>, ]+?[ *](\w+)\([^;]*\);", text, re.MULTILINE)


def refused_functions(text: str) -> tuple[dict[str, str], dict[str, int]]:
    """The declarations of those with arguments of their own, and of the others the words in front of the status."""
    structs = {name: int(words)
               for name, words in re.findall(r"^TPU_TF_REFUSED_STRUCT\((\w+), (\d+)\)", text, re.MULTILINE)}
    structs |= {name: int(words) for name, words in re.findall(r"(\w+)\(Params<(\d+)>\* params\) \{", text)}
    declared = {name: f"void {name}{parameters};"
                for name, parameters in re.findall(r"^TPU_TF_REFUSED\((\w+),\s*(\([^()]*\)),", text, re.MULTILINE)}
    declared |= {name: f"{result}{name}({parameters});" for result, name, parameters in
                 re.findall(r"^([\w*]+ |[\w*]+\* )(Tpu\w+)\(([^(){}]*)\) \{", text, re.MULTILINE)
                 if name not in structs and result != "StatusOrInt "}
    return declared, structs


def names_of(include: Path) -> set[str]:
    """What TensorFlow looks up in the library."""
    names = {"TfTpu_Initialize"}
    for table in TABLES:
        text = (include / f"xla/stream_executor/tpu/tpu_{table}_init_fns.inc").read_text("utf-8")
        names |= set(re.findall(r"_SET_FN\(\w+,\s*(\w+)\)", text))
    return names


TYPES = """
template <class T> const char* type_of() { return __PRETTY_FUNCTION__; }
template <class R, class P> P params_of(R (*)(P*));
"""


def one_side(structs: dict[str, list[str]], enumerators: list[str], functions: list[str], includes: list[str]) -> str:
    """A program that prints what one side has."""
    lines = [*includes, "#include <cstdio>", "#include <cstddef>", TYPES, "int main() {"]
    for name, fields in structs.items():
        lines.append(f'std::printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'std::printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof({name}::{field}));'
                  for field in fields]
    lines += [f'std::printf("{name} %d\\n", static_cast<int>({name}));' for name in enumerators]
    lines += [f'std::printf("{name} %s\\n", type_of<decltype({name})>());' for name in functions]
    return "\n".join([*lines, "}\n"])


def words_side(functions: list[str], includes: list[str]) -> str:
    """A program that prints how many words are in front of the status in the structs of these functions."""
    lines = [*includes, "#include <cstdio>", "#include <cstddef>", TYPES, "int main() {"]
    lines += [f'std::printf("%zu\\n", offsetof(decltype(params_of(&{name})), status) / 8);' for name in functions]
    return "\n".join([*lines, "}\n"])


def more_in_layout(version: str) -> str:
    """The expression in the library's table."""
    text = (ROOT / "tf_plugin/client_version.cpp").read_text("ascii")
    (found,) = re.findall(rf'Client\{{"{re.escape(version)}", (.+?)\}}', text)
    return found


def layout_size(more: str, includes: list[str]) -> str:
    """A program that prints the size of a layout, of which sizeof says `more` less."""
    return "\n".join([*includes, "#include <cstdio>",
                      f'int main() {{ std::printf("%zu\\n", sizeof(XLA_Layout) + ({more})); }}\n'])


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
    (found_version,) = include.parent.parent.glob("tensorflow_tpu-*.dist-info")
    version = ".".join(found_version.name.removeprefix("tensorflow_tpu-").split(".")[:2])
    names = set((ROOT / "tests/tensorflow/names.txt").read_text("ascii").split())
    names -= {SPARSE_CORES} if version == "2.19" else set()
    assert names == names_of(include), f"names.txt differs: {sorted(names ^ names_of(include))}"
    text = "\n".join(header.read_text("ascii") for header in HEADERS)
    if version != "2.19":
        text = re.sub(rf"#ifdef {OLDER}\n.*?#endif\n", "", text, flags=re.DOTALL)
    structs = own_structs(text)
    enumerators = [name.strip() for body in re.findall(r"^enum \w+ \{(.*?)\};", text, re.MULTILINE | re.DOTALL)
                   for name in re.sub(r"= \d+", "", body).split(",")]
    functions = own_functions(text)
    assert len(structs) > 30 and len(functions) > 150, (len(structs), len(functions))
    refused, words = refused_functions((ROOT / "tf_plugin/refused_slots.cpp").read_text("ascii"))
    assert len(refused) > 10 and len(words) > 2, (len(refused), len(words))
    functions += [name for name in refused if name not in functions]
    missing = names - set(functions) - set(words) - {SPARSE_CORES}
    assert not missing, f"functions that no header of ours has: {sorted(missing)}"
    unknown = set(functions) - names
    assert not unknown, f"functions that the interface does not have: {sorted(unknown)}"
    theirs = [f'#include "xla/stream_executor/tpu/tpu_{part}_c_api.h"' for part in ("executor", "ops", "profiler")]
    theirs.append('#include "tensorflow/core/common_runtime/next_pluggable_device/c/outside_compilation_params.h"')
    ours = [*(f'#include "abi/{header.name}"' for header in HEADERS), 'extern "C" {', *refused.values(), "}"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = output_of(options.compiler, one_side(structs, enumerators, functions, theirs), folder,
                             ["-I", str(include)])
        own = ["-I", str(ROOT / "tf_plugin")]
        found = output_of(options.compiler, one_side(structs, enumerators, functions, ours), folder,
                          [*own, *([f"-D{OLDER}"] if version == "2.19" else [])])
        sizes = [output_of(options.compiler, layout_size(more_in_layout(version), ours[:1]), folder, own),
                 output_of(options.compiler, layout_size("0", theirs), folder, ["-I", str(include)])]
        counted = output_of(options.compiler, words_side(list(words), theirs), folder, ["-I", str(include)])
    for theirs_named, ours_named in SAME.items():
        expected = [line.replace(theirs_named, ours_named) for line in expected]
        found = [line.replace(theirs_named, ours_named) for line in found]
    different = [f"{theirs}, ours: {ours}" for theirs, ours in zip(expected, found, strict=True) if theirs != ours]
    assert not different, "\n".join(different)
    assert counted == [str(count) for count in words.values()], dict(zip(words, counted, strict=True))
    assert sizes[0] == sizes[1], f"bytes of a layout: {sizes[0]}, expected {sizes[1]}"
    print(f"TensorFlow {version}: {len(structs)} structs, {len(enumerators)} enumerators, "
          f"{len(functions) + len(words)} functions, {len(names)} names")
    return 0


if __name__ == "__main__":
    sys.exit(main())
