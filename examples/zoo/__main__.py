"""Exports a model of the zoo as a StableHLO portable artifact.

Usage: python -m examples.zoo NAME --out FILE.mlirbc [--size small|full] [--dtype bfloat16|float32]
       python -m examples.zoo --list
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax.numpy as jnp

from .models import PROGRAMS, Size


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.zoo", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=PROGRAMS, metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--size", choices=("small", "full"), default="full")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="of activations")
    parser.add_argument("--list", action="store_true", help="print the names")
    args = parser.parse_args()
    if args.list:
        print("\n".join(PROGRAMS))
        return
    if args.name is None or args.out is None:
        parser.error("expected NAME and --out FILE, or --list")
    program = PROGRAMS[args.name](Size(args.size == "small", jnp.dtype(args.dtype)))
    artifact = program.export().mlir_module_serialized
    args.out.write_bytes(artifact)
    print(f"{args.out}: {len(artifact)} bytes, {program.parameters()} parameters")


if __name__ == "__main__":
    main()
