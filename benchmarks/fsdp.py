"""Exports a training step of a transformer whose weights are split over eight cores (FSDP), as a StableHLO portable
artifact: what gathering them costs, with jax.checkpoint once more in the backward pass.

Layers of attention and feed-forward, one by one, bf16 products, SGD. Each layer gathers its four matrices in front of
their products, by a cast to bf16 and an all_gather. --remat: everything (all) or all but the results of products (dots)
is computed again in the backward pass, which gathers again.

Arguments: four parts of matrices of each layer, f32 (donated), x f32[8*sequences,tokens,features]. Results: the new
parts.

Needs tests/requirements.txt. Usage: fsdp.py --out FILE.mlirbc [--remat all|dots] [--layers N] [--features N]
[--sequences N] [--tokens N]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

CORES = 8
HEADS = 8
Layer = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def gather(part: jax.Array) -> jax.Array:
    """The matrix in bf16, of this core's rows."""
    return jax.lax.all_gather(part.astype(jnp.bfloat16), "fsdp", tiled=True)


def normalised(x: jax.Array) -> jax.Array:
    return (x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)).astype(jnp.bfloat16)


def layer(x: jax.Array, parts: Layer) -> jax.Array:
    """[sequences, tokens, features] to the same."""
    inward, outward, up, down = (gather(part) for part in parts)
    split = (*x.shape[:2], HEADS, x.shape[2] // HEADS)
    q, k, v = (a.reshape(split) for a in jnp.split(normalised(x) @ inward, 3, -1))
    scores = jnp.einsum("bthd,bshd->bhts", q, k).astype(jnp.float32) / split[-1] ** 0.5
    mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, -1).astype(jnp.bfloat16), v)
    x = x + (mixed.reshape(x.shape) @ outward).astype(jnp.float32)
    return x + (jax.nn.relu(normalised(x) @ up) @ down).astype(jnp.float32)


def main() -> None:
    """Writes the artifact."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--remat", choices=["all", "dots"])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--sequences", type=int, default=4, help="of a core")
    parser.add_argument("--tokens", type=int, default=256)
    args = parser.parse_args()

    policy = jax.checkpoint_policies.dots_saveable if args.remat == "dots" else None
    one = jax.checkpoint(layer, policy=policy) if args.remat else layer

    def loss(weights: list[Layer], x: jax.Array) -> jax.Array:
        for parts in weights:
            x = one(x, parts)
        return (x ** 2).mean()

    def step(weights: list[Layer], x: jax.Array) -> list[Layer]:
        return jax.tree.map(lambda w, g: w - 0.01 * g, weights, jax.grad(loss)(weights, x))

    mesh = jax.make_mesh((CORES,), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=P("fsdp"), out_specs=P("fsdp"), check_vma=False),
                    donate_argnums=0)
    wide = args.features
    shapes = [(wide, 3 * wide), (wide, wide), (wide, 4 * wide), (4 * wide, wide)]
    weights = [tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)] * args.layers
    x = jax.ShapeDtypeStruct((CORES * args.sequences, args.tokens, wide), jnp.float32)
    args.out.write_bytes(jax.export.export(split, platforms=["tpu"])(weights, x).mlir_module_serialized)


if __name__ == "__main__":
    main()
