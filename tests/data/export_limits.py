#!/usr/bin/env python3
"""Exports the artifacts of this folder that JAX does not write by itself: shardings of GSPMD, and StableHLO text that
tries the limits of the reader.

Usage: export_limits.py [--out-dir DIR]. Needs what export_graphs.py needs.
"""

from __future__ import annotations  # noqa: I001, the artifacts hold line numbers

import argparse
from pathlib import Path

import export_graphs as graphs
import jax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
from jaxlib.mlir.dialects import stablehlo


def replicated_constraint(x):
    return lax.with_sharding_constraint(graphs.scale_rows(x), NamedSharding(graphs.mesh8(), P()))


def export_gspmd(sharding: P) -> bytes:
    """Shardings of arguments as strings of GSPMD, as JAX wrote them before Shardy."""
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        f = jax.jit(graphs.auto_sharding, in_shardings=NamedSharding(graphs.mesh8(), sharding))
        return jax.export.export(f)(graphs.arg((16,))).mlir_module_serialized
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)


def calls(callees: dict[str, str]) -> str:
    """Functions that each call one other, the last of them none."""
    t = "tensor<4xf32>"
    return "\n".join(
        f"func.func {'public' if name == 'main' else 'private'} @{name}(%a: {t}) -> {t} {{\n"
        f"  %0 = {f'func.call @{callee}(%a)' if callee else 'stablehlo.abs %a'} : ({t}) -> {t}\n"
        f"  return %0 : {t}\n}}"
        for name, callee in callees.items()
    )


def nest(depth: int) -> str:
    """Branches in branches."""
    t = "tensor<4xf32>"
    opened = "".join(f'  %r{d} = "stablehlo.if"(%p) ({{\n' for d in range(depth))
    closed = "".join(
        f"  stablehlo.return %{'a' if d == depth - 1 else f'r{d + 1}'} : {t}\n"
        f"  }}, {{\n  stablehlo.return %a : {t}\n  }}) : (tensor<i1>) -> {t}\n"
        for d in reversed(range(depth))
    )
    return (f"func.func public @main(%a: {t}, %p: tensor<i1>) -> {t} {{\n{opened}{closed}"
            f"  return %r0 : {t}\n}}")


def shared_locations(levels: int) -> str:
    """A location that is reached on 2^levels ways."""
    t = "tensor<4xf32>"
    locs = "\n".join(f"#l{i + 1} = loc(callsite(#l{i} at #l{i}))" for i in range(levels))
    return (f"#l0 = loc(unknown)\n{locs}\nmodule @m {{\nfunc.func public @main(%a: {t}) -> {t} {{\n"
            f"  %0 = stablehlo.abs %a : {t} loc(#l{levels})\n  return %0 : {t}\n}}\n}}")


def negated(t: str) -> str:
    return f"func.func public @main(%a: {t}) -> {t} {{\n  %0 = stablehlo.negate %a : {t}\n  return %0 : {t}\n}}"


def hand_written() -> dict[str, str]:
    """What JAX does not export: valid bytecode all the same."""
    chain = {f"f{i}": f"f{i + 1}" for i in range(100)}
    return {
        "bad_recursion": calls({"main": "main"}),
        "bad_recursion_of_two": calls({"main": "f", "f": "g", "g": "f"}),
        "bad_deep_calls": calls({"main": "f0", **chain, "f100": ""}),
        "bad_deep_regions": nest(100),
        "bad_long_dimension": negated(f"tensor<{2**33}xi8>"),
        "shared_locations": shared_locations(80),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out-dir", type=Path, default=Path(__file__).parent)
    args = parser.parse_args()
    args.out_dir.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    artifacts = {name: stablehlo.serialize_portable_artifact_str(text, "1.8.0") for name, text in hand_written().items()}  # noqa: E501, the artifacts hold line numbers
    artifacts["gspmd_argument"] = export_gspmd(P("data"))
    artifacts["gspmd_replicated"] = export_gspmd(P())
    constrained = jax.export.export(jax.jit(replicated_constraint))(graphs.arg((16, 3)))
    artifacts["replicated_constraint"] = constrained.mlir_module_serialized
    for name, content in artifacts.items():
        (args.out_dir / f"{name}.mlirbc").write_bytes(content)


if __name__ == "__main__":
    main()
