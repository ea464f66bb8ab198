"""The training step of benchmarks/resnet50.py on the board against JAX on the CPU: 4 images of 64 x 64 a core, one
block a stage.

Two programs, with their bounds:

f32 activations, contractions at precision highest, so that only the order of f32 sums differs, about 1e-6 of their
size. Of some 10 million normalised values in front of a relu a few change sign by that, and each decides over one term
of the gradients of all layers before it. In the last stage only 65,536 values stand there, so that one of them is
sqrt(1 / 65536) = 4e-3 of the norm. Hence 2e-2 for gradients (the momentum after one step), room for 25 of them, and a
twentieth of that for parameters (learning rate 0.1, gradients below half of the weights); statistics and the loss come
from the forward pass and stay within 1e-5. A wrong stride, padding or term of a gradient is a matter of 0.1 and more.

bf16 activations as in the benchmark. There rounding alone moves gradients by up to a half: relus and maxima of windows
flip. So the board must be as near to the f32 results as JAX is with the same roundings (XLA may not skip any):
1.5 times JAX's distance for every array, 1.1 times in the mean over all arrays of a kind.

Usage: resnet50_step_test.py --bin DIR
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_allow_excess_precision=false"

import distances
import jax_reference as reference

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))

import resnet50 as model

BATCH, IMAGE, STAGES = 4, 64, (1, 1, 1, 1)
KINDS = ("parameters", "gradients", "statistics", "loss")
BOUNDS = {"parameters": 1e-3, "gradients": 2e-2, "statistics": 1e-5, "loss": 1e-5}
WORST_RATIO, MEAN_RATIO = 1.5, 1.1


def first_state() -> tuple:
    """(parameters, momentum of zeros, running statistics): He-normal kernels, all else drawn around its usual start."""
    rng = np.random.default_rng(3)
    network = model.ResNet(STAGES)
    image = jax.ShapeDtypeStruct((1, IMAGE, IMAGE, 3), jnp.bfloat16)
    variables = jax.eval_shape(network.init, jax.random.key(0), image)

    def draw(path: tuple, leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        kind = path[-1].key
        if kind == "kernel":
            return rng.normal(0, (2 / np.prod(leaf.shape[:-1])) ** 0.5, leaf.shape).astype(np.float32)
        low, high = {"scale": (0.5, 1.5), "var": (0.5, 1.5)}.get(kind, (-0.2, 0.2))
        return rng.uniform(low, high, leaf.shape).astype(np.float32)

    parameters, statistics = (jax.tree_util.tree_map_with_path(draw, variables[name])
                              for name in ("params", "batch_stats"))
    return parameters, jax.tree.map(np.zeros_like, parameters), statistics


def by_kind(state: tuple, results: list[np.ndarray]) -> dict[str, list[np.ndarray]]:
    """Results as the parts of the state, then the loss."""
    counts = [len(jax.tree.leaves(part)) for part in state]
    ends = np.cumsum([*counts, 1])
    assert len(results) == ends[-1]
    return {kind: results[end - count : end] for kind, end, count in zip(KINDS, ends, [*counts, 1], strict=True)}


def run_both(tools: Path, folder: Path, dtype: jnp.dtype, precision: str, state: tuple) -> tuple[dict, dict]:
    """Results of the board and of JAX, by kind."""
    rng = np.random.default_rng(5)
    images = rng.normal(0, 1, (model.CORES * BATCH, IMAGE, IMAGE, 3)).astype(jnp.bfloat16).astype(dtype)
    labels = rng.integers(0, model.CLASSES, model.CORES * BATCH).astype(np.int32)
    with jax.default_matmul_precision(precision):
        program = model.export_step(BATCH, IMAGE, STAGES, platform="cpu", dtype=dtype)
    arrays = [*jax.tree.leaves(state), images, labels]
    folder.mkdir()
    failure = reference.compile_and_run(tools, folder, program, arrays)
    if failure:
        raise SystemExit(f"{np.dtype(dtype).name}: {failure}")
    theirs = reference.run(program, arrays, round_dots=False)
    ours = [np.load(folder / f"{index}.npy") for index in range(len(theirs))]
    return by_kind(state, ours), by_kind(state, theirs)


def relative(ours: list[np.ndarray], theirs: list[np.ndarray]) -> np.ndarray:
    """Relative L2 of every array."""
    return np.array([distances.relative_l2(a, b) for a, b in zip(ours, theirs, strict=True)])


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    args = parser.parse_args()
    state = first_state()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, exact = run_both(args.bin, folder / "f32", jnp.float32, "highest", state)
        rounded, reference_rounded = run_both(args.bin, folder / "bf16", jnp.bfloat16, "default", state)
    failed = False
    for kind in KINDS:
        worst = relative(ours[kind], exact[kind]).max()
        board, jax_bf16 = (relative(results[kind], exact[kind]) for results in (rounded, reference_rounded))
        # The loss is one number, whose error may cancel: its bound is that of the statistics it comes from.
        scale = jax_bf16 if kind != "loss" else relative(reference_rounded["statistics"], exact["statistics"]).max()
        ratio, mean = (board / scale).max(), board.mean() / np.mean(scale)
        print(f"{kind}: f32 {worst:.3g} (at most {BOUNDS[kind]:g}); bf16 {board.max():.3g}, at most {ratio:.3g} times "
              f"JAX's error (at most {WORST_RATIO}), in the mean {mean:.3g} times (at most {MEAN_RATIO})", flush=True)
        failed |= not (worst <= BOUNDS[kind] and ratio <= WORST_RATIO and mean <= MEAN_RATIO)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
