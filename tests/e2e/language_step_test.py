"""The training step of benchmarks/bert.py on the board against JAX on the CPU, at small sizes given as options; what
the options refuse.

The steps are compared as training_step.py says, dropout and clipped AdamW included: the optimiser starts behind its
warm-up with moments that are not zero, since the first step of Adam is the sign of the gradient. The bounds of f32:
sums in another order and the device's own polynomials differ by some 1e-6 of a result, and a gradient goes through two
layers of both. A mask, a term of a gradient or a position that is wrong is a matter of 1e-2 and more of the gradient,
which is a tenth of the mean.

Usage: language_step_test.py --bin DIR [--only bert|options]
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import ModuleType

import training_step  # first: sets up JAX

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))

import bert
import network

BENCHMARKS = Path(bert.__file__).resolve().parent
CORES, BATCH = 8, 2
BOUNDS = {"parameters": 2e-7, "mean": 5e-6, "square": 5e-6, "loss": 1e-6}
SIZES = ["--layers", "2", "--features", "96", "--heads", "3", "--inside", "160", "--vocabulary", "120",
         "--length", "24"]


def config_of(model: ModuleType, dtype: jnp.dtype) -> network.Sizes:
    """SIZES as the command line of the program reads them."""
    parser = argparse.ArgumentParser()
    network.add_options(parser, model.Config, BATCH)
    config = network.from_options(parser, parser.parse_args(["--out", "-", *SIZES]), model.Config)
    assert (config.layers, config.features, config.heads, config.inside) == (2, 96, 3, 160), config
    assert (config.vocabulary, config.length) == (120, 24), config
    return dataclasses.replace(config, dtype=dtype)


def first_state(model: ModuleType) -> tuple:
    """(parameters; count of steps and mean of the gradients; mean of their squares and count of the schedule)."""
    (params, moments), _ = model.shapes_of(config_of(model, jnp.float32), model.make_optimizer(), 1)
    rng = np.random.default_rng(3)
    count = len(jax.tree.leaves(params))
    shapes = [leaf.shape for leaf in jax.tree.leaves(moments)]
    assert len(shapes) == 2 * count + 2 and shapes[0] == shapes[-1] == (), shapes
    steps = np.int32(5000)
    mean = [rng.normal(0, 2e-3, shape).astype(np.float32) for shape in shapes[1 : 1 + count]]
    square = [rng.uniform(2e-6, 6e-6, shape).astype(np.float32) for shape in shapes[1 + count : -1]]
    return training_step.draw(params, rng), [steps, *mean], [*square, steps]


def batch_of(model: ModuleType, _: jnp.dtype) -> list[np.ndarray]:
    """Tokens, masked positions and their labels where the network has them, and the seed of dropout."""
    config, rng = config_of(model, jnp.float32), np.random.default_rng(5)
    _, shapes = model.shapes_of(config, model.make_optimizer(), CORES * BATCH)
    limits = [config.vocabulary, config.length, config.vocabulary]
    arrays = [rng.integers(0, limit, each.shape).astype(np.int32) for limit, each in zip(limits, shapes, strict=False)]
    return [*arrays, np.array([7, 8], np.uint32)]


def check_step(model: ModuleType, tools: Path) -> None:
    """A training step on eight cores."""
    step = training_step.TrainingStep(
        lambda dtype: model.export(config_of(model, dtype), BATCH, CORES, platform="cpu"), first_state(model),
        partial(batch_of, model), BOUNDS, loss_from="mean")
    assert training_step.compare(step, tools), f"{model.__name__} is not as near as it should be"


def check_options() -> None:
    """Usage errors: exit code 2, the reason, no traceback."""
    for script, options, text in (
            ("bert.py", ["--features", "100"], "features is 100, which 12 heads do not divide; expected a multiple of "
                                               "heads, such as 108"),
            ("bert.py", ["--heads", "0"], "heads is 0; expected at least 1"),
            ("bert.py", ["--inside", "-1"], "inside is -1; expected at least 1"),
            ("bert.py", ["--batch", "0"], "batch is 0; expected at least 1"),
            ("bert.py", ["--dropout", "1"], "dropout is 1.0; expected a rate from 0 to below 1")):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, BENCHMARKS / script, "--out", Path(folder) / "x", *options],
                                  capture_output=True, text=True, check=False)
        assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr, (options, done.stderr)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    checks = {"options": lambda _: check_options(), "bert": partial(check_step, bert)}
    parser.add_argument("--only", choices=list(checks))
    args = parser.parse_args()
    failed = 0
    for name in [args.only] if args.only else list(checks):
        try:
            checks[name](args.bin)
            print(f"ok {name}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"FAILED {name}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
