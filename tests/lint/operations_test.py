"""docs/operations.md names every operation of the graph that can be imported, and no other."""

from __future__ import annotations

import re
import sys

from sources import ROOT

KIND = re.compile(r'X\(k\w+, "(\w+)"')
# Import turns them into others.
FORMS = {"broadcast", "dot", "get_dimension_size", "dynamic_broadcast_in_dim", "dynamic_reshape", "dynamic_iota",
         "dynamic_gather", "einsum", "unary_einsum", "torch_index_select", "tuple", "get_tuple_element"}
INTERNAL = {"erf", "multiply_add", "multiply_high", "window", "indexed_read", "indexed_write", "indexed_combine",
            "qr", "householder_product", "lu", "eigh"}


def main() -> int:
    """Prints what differs."""
    source = (ROOT / "compiler" / "ir" / "op_kinds.hpp").read_text(encoding="utf-8")
    kinds = set(KIND.findall(source))
    errors = [f"op_kinds.hpp has no {name}" for name in sorted(INTERNAL - kinds)]
    rows = re.findall(r"^\| (`[^|]*) \|", (ROOT / "docs" / "operations.md").read_text(encoding="utf-8"), re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    wanted = (kinds - INTERNAL) | FORMS
    errors += [f"docs/operations.md does not name {name}" for name in sorted(wanted - told)]
    errors += [f"docs/operations.md names {name}, which the compiler does not know" for name in sorted(told - wanted)]
    print("\n".join(errors) if errors else "operations: all named")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
