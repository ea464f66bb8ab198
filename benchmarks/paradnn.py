"""Exports a training step of ParaDnn's fully connected networks as a StableHLO portable artifact.

As Emma926/paradnn (Apache-2.0) paradnn/fc.py builds it for `--data_type bfloat16 --optimizer rms`: 2,000 inputs,
`layers` hidden layers of `nodes` with ReLU, 1,000 classes, biases; softmax cross entropy in f32. Activations and matmul
operands are bf16, parameters f32. RMSProp with momentum and epsilon 1; the loss is divided by the number of cores and
the gradients are summed over them in f32 (CrossShardOptimizer).

Arguments: leaves of (params, mean squares, momentum), inputs bf16[batch,2000], labels i32[batch]; results: the new
leaves, loss f32[]. State is donated.

Needs tests/requirements.txt. Usage: paradnn.py --layers L --nodes N --batch B --out FILE.mlirbc   (B: of all 8 cores)
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

# Source locations in the artifact: names without the folders of one machine.
jax.config.update("jax_hlo_source_file_canonicalization_regex", r"^.*/(site-packages|benchmarks)/")

CORES = 8
INPUTS, CLASSES = 2000, 1000
RATE, DECAY, MOMENTUM, EPSILON = 0.1, 0.9, 0.9, 1.0


def loss_of(params: list[tuple[jax.Array, jax.Array]], inputs: jax.Array, labels: jax.Array) -> jax.Array:
    """Of one core, its share of the mean over all."""
    net = inputs
    for layer, (weights, bias) in enumerate(params):
        net = net @ weights.astype(jnp.bfloat16) + bias.astype(jnp.bfloat16)
        if layer + 1 < len(params):
            net = jax.nn.relu(net)
    log_probability = jax.nn.log_softmax(net.astype(jnp.float32))
    return -jnp.mean(jnp.sum(jax.nn.one_hot(labels, CLASSES) * log_probability, axis=-1)) / CORES


def update(param: jax.Array, square: jax.Array, momentum: jax.Array,
           gradient: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """TensorFlow's ApplyRMSProp."""
    square = square + (1 - DECAY) * (gradient * gradient - square)
    momentum = MOMENTUM * momentum + RATE * gradient * lax.rsqrt(square + EPSILON)
    return param - momentum, square, momentum


def step(params: list, squares: list, momenta: list, inputs: jax.Array, labels: jax.Array) -> tuple:
    """One step of one core."""
    loss, gradients = jax.value_and_grad(loss_of)(params, inputs, labels)
    loss, gradients = lax.psum((loss, gradients), "data")
    leaves, tree = jax.tree.flatten(params)
    updated = [update(*each) for each in zip(leaves, jax.tree.leaves(squares), jax.tree.leaves(momenta),
                                             jax.tree.leaves(gradients), strict=True)]
    return *(tree.unflatten(part) for part in zip(*updated, strict=True)), loss


def parameters(layers: int, nodes: int) -> int:
    """Number of weights and biases."""
    widths = [INPUTS, *[nodes] * layers, CLASSES]
    return sum((a + 1) * b for a, b in zip(widths, widths[1:], strict=False))


def export_step(layers: int, nodes: int, batch: int, platform: str = "tpu") -> jax.export.Exported:
    """The step of 8 cores with `batch` examples in all."""
    widths = [INPUTS, *[nodes] * layers, CLASSES]
    params = [(jax.ShapeDtypeStruct((a, b), jnp.float32), jax.ShapeDtypeStruct((b,), jnp.float32))
              for a, b in zip(widths, widths[1:], strict=False)]
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:CORES]), ("data",))
    cut = jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P(), P("data"), P("data")), out_specs=P(), check_vma=False)
    return jax.export.export(jax.jit(cut, donate_argnums=(0, 1, 2), keep_unused=True), platforms=[platform])(
        params, params, params, jax.ShapeDtypeStruct((batch, INPUTS), jnp.bfloat16),
        jax.ShapeDtypeStruct((batch,), jnp.int32))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layers", type=int, required=True, help="hidden layers")
    parser.add_argument("--nodes", type=int, required=True, help="of each")
    parser.add_argument("--batch", type=int, required=True, help="examples of all cores")
    args = parser.parse_args()
    exported = export_step(args.layers, args.nodes, args.batch)
    args.out.write_bytes(exported.mlir_module_serialized)
    print(f"{args.out}: {len(exported.mlir_module_serialized)} bytes")


if __name__ == "__main__":
    main()
