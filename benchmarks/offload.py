"""Exports a training step of a multilayer perceptron whose activations go to the host's memory, as a StableHLO portable
artifact: what transfers over PCIe cost beside compute.

Layers of features x features with tanh, one by one or in a scan, SGD; all activations between layers are offloaded by
jax.checkpoint (save_and_offload_only_these_names), or kept in HBM (--keep).

Arguments: the weights f32[features,features] of each layer (of a scan: f32[layers,features,features]; donated),
x f32[rows,features]. Results: the new weights.

Needs tests/requirements.txt. Usage: offload.py --out FILE.mlirbc [--scan] [--keep] [--layers N] [--features N]
[--rows N]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

NAME = "out"  # of what is offloaded


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    """[rows, features] to the same."""
    return checkpoint_name(jnp.tanh(x @ w), NAME)


def main() -> None:
    """Writes the artifact."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scan", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--features", type=int, default=2048)
    parser.add_argument("--rows", type=int, default=4096)
    args = parser.parse_args()

    policies = jax.checkpoint_policies
    policy = policies.save_only_these_names(NAME) if args.keep else policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=[NAME], offload_src="device",
        offload_dst="pinned_host")

    def network(weights: jax.Array | list[jax.Array], x: jax.Array) -> jax.Array:
        if args.scan:
            return (jax.lax.scan(lambda c, w: (layer(c, w), None), x, weights)[0] ** 2).mean()
        for w in weights:
            x = layer(x, w)
        return (x ** 2).mean()

    loss = jax.checkpoint(network, policy=policy)

    def step(weights: jax.Array | list[jax.Array], x: jax.Array) -> jax.Array | list[jax.Array]:
        return jax.tree.map(lambda w, g: w - 0.01 * g, weights, jax.grad(loss)(weights, x))

    one = (args.features, args.features)
    weights = jax.ShapeDtypeStruct((args.layers, *one), jnp.float32) if args.scan else [
        jax.ShapeDtypeStruct(one, jnp.float32)] * args.layers
    x = jax.ShapeDtypeStruct((args.rows, args.features), jnp.float32)
    exported = jax.export.export(jax.jit(step, donate_argnums=0), platforms=["tpu"])(weights, x)
    args.out.write_bytes(exported.mlir_module_serialized)


if __name__ == "__main__":
    main()
