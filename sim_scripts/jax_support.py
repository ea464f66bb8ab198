#!/usr/bin/env python3
"""The tables of docs/jax_support.md: made from results of tests, kept in tests/data/jax_support.json.

Usage: jax_support.py [--functions FILE] [--programs FILE] [--check]
  FILE is what `tests/e2e/plugin_functions_test.py --json` and `tests/pjrt/train_test.py --json` wrote, of all functions
  and all programs; it replaces what was kept. Then the tables are written into docs/jax_support.md; with --check
  nothing is written, and the exit code is 1 when they are not those of the kept results.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests/data/jax_support.json"
PAGE = ROOT / "docs/jax_support.md"
BEGIN, END = "<!-- made by sim_scripts/jax_support.py -->\n", "<!-- end -->\n"

# Groups of tests/e2e/function_cases.py, programs of tests/pjrt/train_test.py.
FUNCTIONS = {
    "numpy_elementwise": "`jax.numpy`: functions of numbers",
    "numpy_reductions": "`jax.numpy`: sums, orders, sets, histograms",
    "numpy_products": "`jax.numpy`: products, polynomials",
    "numpy_shapes": "`jax.numpy`: shapes, indexing, making arrays",
    "lax_functions": "`jax.lax`",
    "nn_functions": "`jax.nn` and its initializers",
    "random_functions": "`jax.random`",
    "scipy_functions": "`jax.numpy.linalg`, `jax.scipy`, `jax.image`",
    "complex_functions": "`jax.numpy.fft`, complex numbers",
}
PROGRAMS = {
    "pmap": "`jax.pmap`",
    "shard_map": "`jax.shard_map` with `lax.scan` over steps",
    "some_axes": "`jax.shard_map` over some axes of a mesh",
    "explicit": "explicit axes under `jax.set_mesh`",
    "constraint": "`with_sharding_constraint` on a 4x2 mesh",
    "experts": "mixture of experts, one a device",
    "second_order": "derivatives of derivatives",
    "orbax": "orbax: saved in one sharding, restored in another",
    "linen_sgd": "flax linen CNN (batch norm, dropout), optax sgd",
    "linen_adam": "the same, adam with clipping",
    "linen_adamw": "the same, adamw",
    "linen_lion": "the same, lion",
    "linen_lamb": "the same, lamb",
    "linen_adafactor": "the same, adafactor",
    "linen_accumulated": "the same, `MultiSteps`",
    "nnx": "flax nnx CNN",
    "lstm": "flax LSTM",
    "transformer": "flax transformer with `nn.remat`, data parallel",
    "fsdp": "the same, parameters and moments split over all devices (FSDP)",
    "megatron": "the same, heads and features split on 4x2 (Megatron)",
    "fsdp_megatron": "the same, both",
    "scanned": "flax transformer, its layers in `nn.scan`, FSDP",
    "keras": "Keras `fit`, `evaluate`, `steps_per_execution`, one device",
    "keras_parallel": "the same under `DataParallel`",
    "keras_model": "the same under `ModelParallel`",
    "keras_lstm": "Keras LSTM under `DataParallel`",
    "keras_attention": "Keras attention and GRU under `DataParallel`",
}


def folded(results: dict[str, Any]) -> dict[str, Any]:
    """What is kept of the results of functions: counts, and the names of those that failed."""
    groups: dict[str, dict[str, Any]] = {}
    for result in results["functions"]:
        group = groups.setdefault(result["group"], {"compared": 0, "failed": []})
        group["compared"] += 1
        if result["problem"]:
            group["failed"].append(result["name"])
    return {"functions": groups, "refused": results["refused"]}


def label(labels: dict[str, str], name: str) -> str:
    """Text of a row."""
    if name not in labels:
        sys.exit(f"jax_support: {name} has no text in sim_scripts/jax_support.py")
    return labels[name]


def tables(kept: dict[str, Any]) -> str:
    """The text of the page."""
    lines = ["| functions | compared | equal or within the bound | not |", "|---|---:|---:|---|"]
    for name, group in kept["functions"].items():
        failed = ", ".join(f"`{each}`" for each in group["failed"])
        good = group["compared"] - len(group["failed"])
        lines.append(f"| {label(FUNCTIONS, name)} | {group['compared']} | {good} | {failed} |")
    reasons: dict[str, list[str]] = {}
    for name, text in kept["refused"].items():
        reasons.setdefault(text, []).append(f"`{name}`")
    lines += ["", "Rejected functions, with their errors:", ""]
    for text, names in reasons.items():
        lines += textwrap.wrap(f"- {', '.join(names)}: {text}", 120, subsequent_indent="  ", break_long_words=False)
    lines += ["", "| program, eight devices | losses, default precision | losses, highest | first weights | "
              "losses, rounding alone |", "|---|---:|---:|---:|---:|"]
    for name, far in kept["programs"].items():
        keys = ("default", "highest", "weights", "rounding")
        cells = " | ".join(f"{far[key]:.0e}" if far[key] else "equal" for key in keys)
        lines.append(f"| {label(PROGRAMS, name)} | {cells} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", type=Path)
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    if options.functions:
        kept |= folded(json.loads(options.functions.read_text(encoding="utf-8")))
    if options.programs:
        kept["programs"] = json.loads(options.programs.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    before, found, rest = page.partition(BEGIN)
    if not found or END not in rest:
        sys.exit(f"jax_support: {PAGE} has no lines {BEGIN.strip()} and {END.strip()}")
    made = before + BEGIN + tables(kept) + END + rest.partition(END)[2]
    if options.check:
        print("jax_support: the tables are up to date" if made == page else
              "jax_support: docs/jax_support.md has other tables than tests/data/jax_support.json gives: run "
              "sim_scripts/jax_support.py")
        return 0 if made == page else 1
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
