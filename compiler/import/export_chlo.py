#!/usr/bin/env python3
"""Writes chlo.mlirbc: what operations of the dialect CHLO are in operations of StableHLO, as jaxlib's portable
artifacts say it; a function NAME_TYPE of scalars for each operation and type.

Usage: export_chlo.py [--check]. Needs jaxlib in the version of tests/requirements.txt. --check: fails if the file that
is here differs.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

ONE = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "cosh", "digamma", "erf", "erf_inv", "erfc",
       "is_inf", "is_neg_inf", "is_pos_inf", "lgamma", "sinh", "square", "tan")
TWO = ("next_after", "polygamma", "zeta")
TYPES = ("f32", "bf16", "f64")
VERSION = "1.8.0"
FILE = Path(__file__).with_name("chlo.mlirbc")


def portable(text: str) -> bytes:
    return _jax.mlir.serialize_portable_artifact(mlir.module_to_bytecode(ir.Module.parse(text)), VERSION, False)


def functions(name: str, kind: str) -> str:
    """The function of an operation, and those that it calls, as text."""
    result = "i1" if name.startswith("is_") else kind
    operands = ("%x", "%y") if name in TWO else ("%x",)
    arguments = ", ".join(f"{operand}: tensor<{kind}>" for operand in operands)
    types = ", ".join(f"tensor<{kind}>" for _ in operands)
    data = portable(f"func.func public @main({arguments}) -> tensor<{result}> {{\n"
                    f'%0 = "chlo.{name}"({", ".join(operands)})'
                    f" : ({types}) -> tensor<{result}>\nreturn %0 : tensor<{result}>\n}}")
    text = str(ir.Module.parse(stablehlo.deserialize_portable_artifact_str(data)))
    text = text[text.index("{") + 1 : text.rindex("}")]
    text = re.sub(r"func\.func public @main\b", f"func.func private @{name}_{kind}", text)
    return re.sub(r"@([\w.]+\.impl\w*)", rf"@{name}_{kind}.\1", text)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    with mlir.make_ir_context(), ir.Location.unknown():
        all_of_them = [functions(name, kind) for kind in TYPES for name in ONE + TWO]
        data = portable("module @chlo {\nfunc.func public @main() {\n  return\n}\n" + "\n".join(all_of_them) + "\n}")
    if args.check:
        same = FILE.read_bytes() == data
        print("the same" if same else f"{FILE.name} differs; run {Path(__file__).name}")
        return 0 if same else 1
    FILE.write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
