"""Exports tanh(x @ w + b) for one core: tanh_layer.mlirbc, f32[32,200] x f32[200,96] + f32[96].

Needs jax and jaxlib of ../mnist_mlp/requirements.txt. Usage: export.py [--out DIR]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp

jax.config.update("jax_hlo_source_file_canonicalization_regex", r"^.*/(site-packages|examples)/")


def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    """One dense layer."""
    return jnp.tanh(x @ w + b)


def export_programs() -> dict[str, bytes]:
    """Artifact bytes by file name."""
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((32, 200), (200, 96), (96,))]
    exported = jax.export.export(jax.jit(layer), platforms=["tpu"])(*shapes)
    return {"tanh_layer.mlirbc": exported.mlir_module_serialized}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent)
    args = parser.parse_args()
    for name, data in export_programs().items():
        (args.out / name).write_bytes(data)
        print(f"{args.out / name}: {len(data)} bytes")


if __name__ == "__main__":
    main()
