"""The training steps of benchmarks/bert.py and benchmarks/gpt.py on the board against JAX on the CPU, at small sizes
given as options; losses of a training with gpt.py, and its greedy decoding; what the options refuse.

The steps are compared as training_step.py says, dropout and clipped AdamW included: the optimiser starts behind its
warm-up with moments that are not zero, since the first step of Adam is the sign of the gradient. The bounds of f32:
sums in another order and the device's own polynomials differ by some 1e-6 of a result, and a gradient goes through two
layers of both. A mask, a term of a gradient or a position that is wrong is a matter of 1e-2 and more of the gradient,
which is a tenth of the mean. The losses of a training have the bounds of tests/pjrt/train_test.py.

Decoded tokens must be equal. They are compared with a loop without a cache, which runs the network for training over
all tokens again for each new one. The two likeliest tokens of each choice are further apart than rounding moves them.

Usage: language_step_test.py --bin DIR [--only bert|gpt|training|generate|options]
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
import gpt
import jax_reference as reference
import network

BENCHMARKS = Path(bert.__file__).resolve().parent
CORES, BATCH, PROMPT = 8, 2, 5
BOUNDS = {"parameters": 2e-7, "mean": 5e-6, "square": 5e-6, "loss": 1e-6}
STEPS, DEFAULT, HIGHEST = 4, 3e-3, 2e-5  # of a training; relative distance of losses by precision
SIZES = ["--layers", "2", "--features", "96", "--heads", "3", "--inside", "160", "--vocabulary", "120",
         "--length", "24"]
MARGIN = 1e-4  # of logits around 1; f32 sums in another order move them by some 1e-6


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


def letters(seed: int, config: gpt.Config) -> np.ndarray:
    """A batch of sequences, each token a fixed step behind the one before."""
    start = np.random.default_rng(seed).integers(0, config.vocabulary, (CORES * BATCH, 1))
    return ((start + 7 * np.arange(config.length)) % config.vocabulary).astype(np.int32)


def check_training(tools: Path) -> None:
    """Losses of some steps on eight cores from fresh parameters, each step from the state that the one before left."""
    for dtype, precision, bound in ((jnp.float32, "highest", HIGHEST), (jnp.bfloat16, "default", DEFAULT)):
        config = config_of(gpt, dtype)
        with jax.default_matmul_precision(precision):
            program = gpt.export(config, BATCH, CORES, platform="cpu")
        on_cpu = reference.runner(program, round_dots=False)
        keys = {"params": jax.random.key(0), "dropout": jax.random.key(0)}
        params = jax.jit(gpt.Gpt(config).init)(keys, letters(0, config))["params"]
        # Behind the warm-up, whose first rate is zero.
        moments = [np.int32(2000) if leaf.ndim == 0 else leaf
                   for leaf in jax.tree.leaves(gpt.make_optimizer().init(params))]
        ours = theirs = [*map(np.asarray, jax.tree.leaves(params)), *map(np.asarray, moments)]
        losses = []
        with tempfile.TemporaryDirectory() as folder:
            for i in range(STEPS):
                batch = [letters(i, config), np.array([i, 1], np.uint32)]
                failure = reference.compile_and_run(tools, Path(folder), program, [*ours, *batch])
                assert failure is None, failure
                *ours, our_loss = (np.load(Path(folder) / f"{index}.npy") for index in range(len(ours) + 1))
                *theirs, their_loss = on_cpu([*theirs, *batch])
                losses.append((float(our_loss), float(their_loss)))
        worst = max(abs(a / b - 1) for a, b in losses)
        print(f"training, {np.dtype(dtype).name}: loss {losses[0][0]:.3f} to {losses[-1][0]:.3f} in {STEPS} steps, "
              f"{worst:.2g} away from JAX's (at most {bound})", flush=True)
        assert worst <= bound and losses[-1][0] < losses[0][0] - 0.1, losses


def decoded(config: gpt.Config, params: dict, prompts: np.ndarray, end: int) -> np.ndarray:
    """What greedy decoding gives, without a cache."""
    net = gpt.Gpt(dataclasses.replace(config, dropout=0.0))
    logits_of = jax.jit(lambda tokens: net.apply({"params": params}, tokens, rngs={"dropout": jax.random.key(0)}))
    tokens = np.full((len(prompts), config.length), end, np.int32)
    tokens[:, :PROMPT] = prompts
    for at in range(PROMPT, config.length):
        ended = (tokens[:, PROMPT:at] == end).any(axis=1)
        logits = np.asarray(logits_of(tokens))[:, at - 1]
        best = np.sort(logits, axis=1)[:, -2:]
        assert (best[:, 1] - best[:, 0] > MARGIN)[~ended].all(), f"draw other parameters: {best[:, 1] - best[:, 0]}"
        tokens[:, at] = np.where(ended, end, logits.argmax(axis=1))
    return tokens


def check_generate(tools: Path) -> None:
    """Greedy decoding on one core and on eight, without an end and with one."""
    config = config_of(gpt, jnp.float32)
    (params, *_), rng = first_state(gpt), np.random.default_rng(6)
    prompts = rng.integers(0, config.vocabulary, (CORES * BATCH, PROMPT)).astype(np.int32)
    with jax.default_matmul_precision("highest"):
        endless = decoded(config, params, prompts, -1)
        # An end that some sequences reach before the last place, and some never.
        reached = [(endless[:, PROMPT:-1] == token).any(axis=1).sum() for token in range(config.vocabulary)]
        end = int(np.argmax(reached))
        assert 0 < reached[end] < len(prompts), reached
        ended = decoded(config, params, prompts, end)
        for cores, token, expected in ((1, -1, endless), (8, -1, endless), (1, end, ended), (8, end, ended)):
            program = gpt.export_generate(config, PROMPT, CORES * BATCH // cores, cores, token, platform="cpu")
            arrays = [*jax.tree.leaves(params), prompts]
            np.testing.assert_array_equal(reference.run(program, arrays, round_dots=False)[0], expected)
            with tempfile.TemporaryDirectory() as folder:
                failure = reference.compile_and_run(tools, Path(folder), program, arrays, "--check")
                assert failure is None, failure
                np.testing.assert_array_equal(np.load(Path(folder) / "0.npy"), expected, f"{cores} cores, end {token}")
    print(f"generate: {expected.size - prompts.size} tokens, {reached[end]} of {len(prompts)} sequences end")


def check_options() -> None:
    """Usage errors: exit code 2, the reason, no traceback."""
    for script, options, text in (
            ("bert.py", ["--features", "100"], "features is 100, which 12 heads do not divide; expected a multiple of "
                                               "heads, such as 108"),
            ("gpt.py", ["--heads", "5"], "features is 768, which 5 heads do not divide"),
            ("bert.py", ["--heads", "0"], "heads is 0; expected at least 1"),
            ("bert.py", ["--inside", "-1"], "inside is -1; expected at least 1"),
            ("gpt.py", ["--batch", "0"], "batch is 0; expected at least 1"),
            ("gpt.py", ["--dropout", "1"], "dropout is 1.0; expected a rate from 0 to below 1"),
            ("gpt.py", ["--generate", "16", "--length", "16"], "generate is 16; expected a prompt of 1 to 15 tokens")):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, BENCHMARKS / script, "--out", Path(folder) / "x", *options],
                                  capture_output=True, text=True, check=False)
        assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr, (options, done.stderr)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    reference.compile_fast(older_emitters=True)
    checks = {"options": lambda _: check_options(), "bert": partial(check_step, bert), "gpt": partial(check_step, gpt),
              "training": check_training, "generate": check_generate}
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
