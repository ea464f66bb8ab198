"""The training step of benchmarks/resnet50.py on the board against JAX on the CPU: 4 images of 64 x 64 a core, one
block a stage (how they are compared: training_step.py).

The bounds of f32: sums in another order differ by about 1e-6 of their size. Of some 10 million normalised values in
front of a relu a few change sign by that, and each decides over one term of the gradients of all layers before it. In
the last stage only 65,536 values stand there, so that one of them is sqrt(1 / 65536) = 4e-3 of the norm. Hence 2e-2 for
gradients (the momentum after one step), room for 25 of them, and a twentieth of that for parameters (learning rate 0.1,
gradients below half of the weights); statistics and the loss come from the forward pass and stay within 1e-5. A wrong
stride, padding or term of a gradient is a matter of 0.1 and more.

Usage: resnet50_step_test.py --bin DIR
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import training_step

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))

import resnet50 as model

BATCH, IMAGE, STAGES = 4, 64, (1, 1, 1, 1)
BOUNDS = {"parameters": 1e-3, "gradients": 2e-2, "statistics": 1e-5, "loss": 1e-5}


def first_state() -> tuple:
    """(parameters, momentum of zeros, running statistics)."""
    rng = np.random.default_rng(3)
    image = jax.ShapeDtypeStruct((1, IMAGE, IMAGE, 3), jnp.bfloat16)
    variables = jax.eval_shape(model.ResNet(STAGES).init, jax.random.key(0), image)
    parameters, statistics = (training_step.draw(variables[name], rng) for name in ("params", "batch_stats"))
    return parameters, jax.tree.map(np.zeros_like, parameters), statistics


def batch(dtype: jnp.dtype) -> list[np.ndarray]:
    """Images and labels."""
    rng = np.random.default_rng(5)
    images = rng.normal(0, 1, (model.CORES * BATCH, IMAGE, IMAGE, 3)).astype(jnp.bfloat16).astype(dtype)
    return [images, rng.integers(0, model.CLASSES, model.CORES * BATCH).astype(np.int32)]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    args = parser.parse_args()
    step = training_step.TrainingStep(
        lambda dtype: model.export_step(BATCH, IMAGE, STAGES, platform="cpu", dtype=dtype), first_state(), batch,
        BOUNDS, loss_from="statistics")
    return 0 if training_step.compare(step, args.bin) else 1


if __name__ == "__main__":
    sys.exit(main())
