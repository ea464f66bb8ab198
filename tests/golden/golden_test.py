"""Digests and simulated cycles of collectives and training runs against table.json, and the bits of every collective
against a model of the orders in docs/numerics.md.

Values are such that another order of sums gives other bits in at least a tenth of the elements; that is checked too.
The table changes only by update.py beside this file, in a commit that says why.

Usage: golden_test.py --bin DIR --group collectives|training
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cases

import numpy as np

TABLE = Path(__file__).resolve().parent / "table.json"
LEAST_TOLD_APART = 0.1
GROUPS = ("collectives", "training")

Figures = dict[str, str | int | float]


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def check_model(case: cases.Collective, folder: Path) -> list[str]:
    """Compares the results in `folder` with the model, and the model with another order of sums."""
    errors = []
    arrays = case.arrays()
    wanted = case.model(arrays)
    for index, theirs in enumerate(wanted):
        ours = np.load(folder / f"{index}.npy")
        if ours.shape != theirs.shape:
            errors.append(f"result {index} has the shape {ours.shape}, the model {theirs.shape}")
            continue
        wrong = np.flatnonzero(_bits(ours) != _bits(theirs))
        if wrong.size:
            core, element = np.unravel_index(wrong[0], theirs.shape)
            errors.append(f"result {index}: {wrong.size} of {theirs.size} elements are not in the documented order, "
                          f"the first is element {element} of core {core}")
    if case.other is not None:
        pairs = [(a, b) for a, b in zip(wanted, case.other(arrays), strict=True) if a.dtype.kind != "i"]
        told_apart = max(np.mean(_bits(a) != _bits(b)) for a, b in pairs)
        if told_apart < LEAST_TOLD_APART:
            errors.append(f"the values tell the orders apart in {told_apart:.1%} of the elements only")
    return errors


def figures_of(group: str, tools: Path) -> Iterator[tuple[str, Figures, list[str]]]:
    """Name, figures and other errors of every run of a group."""
    if group == "collectives":
        for case in cases.collectives():
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch)
                figures = cases.launch(tools, folder, cases.GRAPHS / f"{case.name}.mlirbc", case.arrays())
                yield case.name, figures, check_model(case, folder)
        return
    for case in cases.trainings():
        with tempfile.TemporaryDirectory() as scratch:
            folder, arrays = Path(scratch), case.arrays()
            figures = cases.launch(tools, folder, case.graph, arrays, case.launches, case.options)
            loss = np.load(folder / f"{len(arrays) - 2}.npy")
            yield case.name, figures, [] if np.isfinite(loss) else [f"the loss is {loss}: such bits show nothing"]
    with tempfile.TemporaryDirectory() as scratch:
        yield "mnist_mlp_train", cases.train_epochs(tools, Path(scratch)), []


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--group", choices=GROUPS, required=True)
    args = parser.parse_args()
    table: dict[str, Figures] = json.loads(TABLE.read_text(encoding="utf-8"))[args.group]
    failed, digests = 0, {}
    for name, figures, errors in figures_of(args.group, args.bin):
        golden = table.pop(name, {})
        errors += [f"{key} is {figures[key]}, the table has {golden.get(key)}"
                   for key in figures if figures[key] != golden.get(key)]
        digests[name] = figures["digest"]
        failed += bool(errors)
        print(f"{'FAILED' if errors else 'ok'} {name}", *errors, sep="\n  ", flush=True)
    if args.group == "training" and digests["convnet_update_sharding_on"] != digests["convnet_update_sharding_off"]:
        failed += 1
        print("FAILED: sharding the update changes bits")
    if table:
        failed += 1
        print(f"FAILED: the table has runs that are gone: {', '.join(table)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
