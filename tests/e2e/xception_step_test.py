"""The training step of examples/xception on the board against JAX on the CPU: 2 images of 71 x 71 a core, 2 middle
blocks, 16 features there (how they are compared: training_step.py).

The bounds of f32: one relu that changes sign in front of the mean over the image, of 8 x 2 x 3 x 3 x 45 = 6,480,
decides over sqrt(1 / 6480) = 1.2e-2 of the gradients before it; hence 5e-2 for gradients (the momentum after one step),
room for 16, a twentieth of that for parameters (learning rate 0.045), and 1e-5 for statistics and the loss, which come
from the forward pass. A wrong stride, padding or term of a gradient is a matter of 0.1 and more.

--full: the full size (299 x 299, 16 images a core) compiles, and its step without data takes what the example's page
says, or less.

Usage: xception_step_test.py --bin DIR [--full]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import training_step

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "examples" / "xception"))

import xception

BATCH, IMAGE, CLASSES, MIDDLE, WIDTH = 2, 71, 10, 2, 16
FULL_MS = 61  # 59.9 were measured
BOUNDS = {"parameters": 2.5e-3, "statistics": 1e-5, "gradients": 5e-2, "loss": 1e-5}


def network(dtype: jnp.dtype) -> xception.Xception:
    """The small network."""
    return xception.Xception(CLASSES, MIDDLE, WIDTH, dtype)


def first_state() -> tuple:
    """(parameters, running statistics, momentum of zeros)."""
    rng = np.random.default_rng(3)
    parameters, statistics, _ = xception.first_state(network(jnp.float32), IMAGE)
    parameters, statistics = training_step.draw(parameters, rng), training_step.draw(statistics, rng)
    return parameters, statistics, jax.tree.map(np.zeros_like, parameters)


def batch(_: jnp.dtype) -> list[np.ndarray]:
    """Images and labels."""
    rng = np.random.default_rng(5)
    count = xception.CORES * BATCH
    return [rng.integers(0, 256, (count, IMAGE, IMAGE, 3)).astype(np.uint8),
            rng.integers(0, CLASSES, count).astype(np.int32)]


def full_takes(tools: Path) -> tuple[float, float]:
    """Seconds of a step of the full size, and the share of the matrix units' peak."""
    with tempfile.TemporaryDirectory() as name:
        graph, exe = Path(name) / "step.mlirbc", Path(name) / "step.tpuexe"
        train, _ = xception.export_steps(xception.Xception(), 16, 299)
        graph.write_bytes(train.mlir_module_serialized)
        subprocess.run([tools / "tpuc", graph, "-o", exe], check=True)
        done = subprocess.run([tools / "tpuboard", "run", exe, "--no-data", "--json", "-"], check=True,
                              capture_output=True, text=True)
    figures, _ = json.JSONDecoder().raw_decode(done.stdout)
    return figures["sim_seconds"], figures["mxu_utilization"]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--full", action="store_true")
    args = parser.parse_args()
    if args.full:
        seconds, mxu = full_takes(args.bin)
        print(f"full size: {seconds * 1e3:.1f} ms a step (at most {FULL_MS}), MXU {mxu * 100:.1f} %")
        return 0 if seconds * 1e3 <= FULL_MS else 1
    step = training_step.TrainingStep(
        lambda dtype: xception.export_steps(network(dtype), BATCH, IMAGE, platform="cpu")[0], first_state(), batch,
        BOUNDS, loss_from="statistics")
    return 0 if training_step.compare(step, args.bin) else 1


if __name__ == "__main__":
    sys.exit(main())
