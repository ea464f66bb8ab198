"""The shared library shows the names of the public headers and no others; tpu.hpp lists them all.

Usage: public_names_test.py LIBRARY [NM]
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "host_driver/include/tpu"
BASE = ROOT / "base/include/tpu"
TYPE = re.compile(r"^(?:class|struct|enum class) (\w+)[^;]*{|^using (\w+) =", re.MULTILINE)
FUNCTION = re.compile(r"^(?!using|return|inline| )[\w:<>*& ]+[ *&](\w+)\([^;{]*\);", re.MULTILINE)
CONSTANT = re.compile(r"^inline constexpr [\w:]+ (\w+) =", re.MULTILINE)
OTHERS = {"sc_main"}  # the SystemC library looks for it
SPECIAL = re.compile(r"^(?:vtable|typeinfo|typeinfo name) for ")


def header_names() -> tuple[set[str], set[str], set[str]]:
    """Names of types, functions and constants of the public headers."""
    types, functions, constants = set(), set(), set()
    for path in sorted([*HEADERS.glob("*.hpp*"), *BASE.glob("*.hpp")]):
        if path.name == "tpu.hpp":
            continue
        text = path.read_text(encoding="utf-8")
        types |= {first or second for first, second in TYPE.findall(text)}
        functions |= set(FUNCTION.findall(text))
        constants |= set(CONSTANT.findall(text))
    return types, functions, constants


def exported(library: str, nm: str) -> list[str]:
    """Demangled names that the library shows."""
    run = subprocess.run([nm, "-DC", "--defined-only", library], capture_output=True, text=True, check=True)
    return [line.split(" ", 2)[2] for line in run.stdout.splitlines()]


def owner(symbol: str) -> str:
    """`Board` of `tpu::driver::Board::now() const`; the symbol itself when it is not of the driver."""
    plain = SPECIAL.sub("", symbol)
    match = re.match(r"tpu::driver::(\w+)", plain)
    return match.group(1) if match else plain


def main() -> int:
    """Prints what is shown without being public, and what is public without being shown."""
    types, functions, constants = header_names()
    symbols = exported(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "nm")
    owners = {owner(symbol) for symbol in symbols}
    errors = [f"shown by the library, but no public name: {name}"
              for name in sorted(owners - types - functions - OTHERS)]
    errors += [f"public function that the library does not show: {name}" for name in sorted(functions - owners)]
    errors += [f"the library does not show {name}" for name in sorted({"Board", "Error"} - owners)]
    if "typeinfo for tpu::driver::Error" not in symbols:
        errors.append("programs cannot catch Error: its typeinfo is hidden")
    listed = set(re.findall(r"^using driver::(\w+);", (HEADERS / "tpu.hpp").read_text(encoding="utf-8"), re.MULTILINE))
    errors += [f"tpu.hpp lacks {name}" for name in sorted((types | functions | constants) - listed)]
    print("\n".join(errors) if errors else f"{len(symbols)} exported names, all of the public headers")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
