#!/usr/bin/env python3
"""Exports residual_block.mlirbc: a training step of a block of ResNet (two 3x3 convolutions with batch
normalisation, a projection past them) on eight cores.

Usage: export_residual_block.py [--out-dir DIR]. Needs what export_graphs.py needs. (A script of its own:
the artifacts of export_graphs.py hold the line numbers of that file.)"""

from __future__ import annotations

import argparse
from pathlib import Path

import export_graphs as graphs  # sets what JAX reads from the environment

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

CHANNELS = (8, 16)
RATE = 0.05


def conv(x, w, stride):
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def norm(x, scale, shift):
    mean = jnp.mean(x, axis=(0, 1, 2))
    variance = jnp.mean((x - mean) ** 2, axis=(0, 1, 2))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift


def block(params, x):
    y = jax.nn.relu(norm(conv(x, params["w1"], 2), *params["n1"]))
    y = norm(conv(y, params["w2"], 1), *params["n2"])
    return jax.nn.relu(y + norm(conv(x, params["w3"], 2), *params["n3"]))


def loss_of(params, x, wanted):
    return jnp.mean((jnp.mean(block(params, x), axis=(1, 2)) - wanted) ** 2)


def step(params, x, wanted):
    loss, grads = lax.pmean(jax.value_and_grad(loss_of)(params, x, wanted), "data")
    return jax.tree.map(lambda p, g: p - RATE * g, params, grads), loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out-dir", type=Path, default=Path(__file__).parent)
    out = parser.parse_args().out_dir
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    first, last = CHANNELS
    pair = (graphs.arg((last,)), graphs.arg((last,)))
    params = {"w1": graphs.arg((3, 3, first, last)), "w2": graphs.arg((3, 3, last, last)),
              "w3": graphs.arg((1, 1, first, last)), "n1": pair, "n2": pair, "n3": pair}
    sharded = jax.shard_map(step, mesh=graphs.mesh8(), in_specs=(P(), P("data"), P("data")),
                            out_specs=(P(), P()), check_vma=False)
    exported = jax.export.export(jax.jit(sharded, donate_argnums=0))(
        params, graphs.arg((16, 8, 8, first)), graphs.arg((16, last)))
    (out / "residual_block.mlirbc").write_bytes(exported.mlir_module_serialized)


if __name__ == "__main__":
    main()
