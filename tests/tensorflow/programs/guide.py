"""Runs the code of a guide for TPUs from the text of its page, block after block.

Usage: guide.py PAGE [--small] [--digits DIR]
PAGE is one of two:
  - "Use TPUs" (tensorflow.org/guide/tpu). It has a blank line more before and after each block than in it. A block is
    what Python can parse and does something. The text has lost lines that begin with `@`: `@tf.function` is put back in
    front of three functions, without which TensorFlow raises NotImplementedError. Nothing else is changed, but for
    --small: narrower layers, fewer steps.
  - "Tensor Processing Units (TPUs)" of Kaggle, with marks around each block. The blocks for TensorFlow run; kaggle.py
    fills what they leave to the reader. It is written for Keras 2.
Without TPU_NAME a resolver without a name finds the board in this process, as tpu="local" does.
  --digits  folder of sim_scripts/fetch_mnist.py: `tfds.load` gives these digits, from a dataset that is written first.
            Without it, patterns with noise are in the place of mnist, by a module of the name tensorflow_datasets.
At the end: a table of the blocks. Exit code 1 if one of them failed.
"""

from __future__ import annotations

import argparse
import ast
import linecache
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
import types
import warnings
from pathlib import Path

import kaggle
import numpy as np
import tensorflow as tf

LOST = ("matmul_fn", "train_step", "train_multiple_steps")
SMALL = ((r"\b256\b", "8"), (r"\b128\b", "8"), (r"\b60000\b", "4000"), (r"\b10000 //", "1000 //"),
         (r"epochs=5", "epochs=2"), (r"range\(5\)", "range(2)"),
         (r"steps_per_execution = 50", "steps_per_execution = 5"))
ROWS = {"train": 4000, "test": 1000}
# Of the last step of training; it begins at 2.3. A small run has 60 steps.
LIMIT, LIMIT_SMALL = 0.2, 1.7
WRITER = Path(__file__).resolve().parents[3] / "sim_scripts/tfds_digits.py"


def digits(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images of 28 x 28 with one of ten patterns, and noise."""
    patterns = np.random.default_rng(0).random((10, 28, 28, 1)) > 0.7
    random = np.random.default_rng(len(split))
    labels = random.integers(0, 10, ROWS[split])
    noise = random.integers(0, 128, (ROWS[split], 28, 28, 1))
    return (127 * patterns[labels] + noise).astype(np.uint8), labels.astype(np.int64)


def load(name: str, split: str, **_: object) -> tuple[object, None]:
    assert name == "mnist", name
    return tf.data.Dataset.from_tensor_slices(digits(split)), None


def prepare(digits: Path, folder: str) -> None:
    """The digits as a dataset in the folder."""
    subprocess.run([sys.executable, WRITER, "--digits", digits, "--out", folder], check=True)
    os.environ["TFDS_DATA_DIR"] = folder


def imitate() -> None:
    """tensorflow_datasets with `load` alone."""
    module = types.ModuleType("tensorflow_datasets")
    module.load = load
    sys.modules["tensorflow_datasets"] = module


def find_in_this_process() -> None:
    """What a resolver does without a name is to ask Google's metadata server."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    plain = resolver.__init__

    def init(self: object, tpu: str | None = None, *more: object, **names: object) -> None:
        plain(self, tpu or "local", *more, **names)

    resolver.__init__ = init


def blocks_of(page: str) -> list[str]:
    if kaggle.is_this(page):
        return kaggle.blocks_of(page)
    blocks = []
    for part in re.split(r"\n{3,}", page):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(part)
        except SyntaxError:
            continue
        if any(not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in tree.body):
            blocks.append(part.strip("\n"))
    return blocks


def restored(block: str) -> str:
    for name in LOST:
        block = re.sub(rf"^(?=def {name}\()", "@tf.function\n", block, flags=re.MULTILINE)
    return block


def title_of(block: str) -> str:
    lines = [line for line in block.splitlines() if line.strip() and not line.startswith(("#", "@"))]
    return lines[0].strip()[:60]


def failures(names: dict[str, object], options: argparse.Namespace) -> list[str]:
    """Of "Use TPUs": the loss at the end of its last training."""
    if "training_loss" not in names:
        return ["no training_loss"]
    loss = float(names["training_loss"].result())
    limit = LIMIT_SMALL if options.small else LIMIT
    print(f"loss at the end: {loss:.4f}, expected at most {limit}")
    return [] if loss <= limit else [f"loss {loss}"]


def code_of(block: str, options: argparse.Namespace) -> str:
    code = kaggle.filled(restored(block))
    for pattern, value in SMALL if options.small else ():
        code = re.sub(pattern, value, code)
    return code


def run(options: argparse.Namespace, folder: Path) -> int:
    """Exit code of the page."""
    page = options.page.read_text("utf-8")
    blocks, is_kaggle = blocks_of(page), kaggle.is_this(page)
    assert len(blocks) >= 10, f"found {len(blocks)} blocks of code in {options.page}, expected at least 10"
    tf.keras.utils.set_random_seed(1)
    names: dict[str, object] = {"__name__": "guide"}
    if is_kaggle:
        names |= kaggle.prepare(folder)
    results = []
    for number, block in enumerate(blocks, 1):
        code, file, started = code_of(block, options), f"block {number}", time.monotonic()
        print(f"== {file}: {title_of(block)}", flush=True)
        try:
            # AutoGraph reads the source of functions.
            linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
            exec(compile(code, file, "exec"), names)
            results.append("passed")
        except Exception:  # any failure is a row of the table
            traceback.print_exc()
            results.append("FAILED")
        results[-1] += f", {time.monotonic() - started:.1f} s"
        if is_kaggle:
            kaggle.after_block(names)
    for number, (block, result) in enumerate(zip(blocks, results, strict=True), 1):
        print(f"{number:3}  {title_of(block):60}  {result}")
    failed = any(result.startswith("FAILED") for result in results)
    missing = [] if is_kaggle and failed else kaggle.failures(names) if is_kaggle else failures(names, options)
    for text in missing:
        print(f"FAILED: {text}")
    return int(failed or bool(missing))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--digits", type=Path)
    options = parser.parse_args()
    options.page = options.page.resolve()
    if "TPU_NAME" not in os.environ:
        find_in_this_process()
    with tempfile.TemporaryDirectory() as folder:
        if options.digits:
            prepare(options.digits, folder)
        else:
            imitate()
        return run(options, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
