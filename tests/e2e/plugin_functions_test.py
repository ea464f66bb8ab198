"""The functions of functions_test.py by jax.jit on the PJRT plugin, against JAX's CPU backend in the same process.

Usage: plugin_functions_test.py [--every N] [--only SUBSTRING] [--json FILE]. TPU_LIBRARY_PATH names the plugin.
Products of matrices are asked for in full precision on both sides, so that the bounds of the cases hold as they are;
integers are equal. `--json` writes one result for each function (sim_scripts/jax_support.py makes a table of them).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "tpu,cpu"  # the modules below would set the CPU alone

import distances
import function_cases
from case_runner import Case

import jax
import numpy as np


def results_on(device: jax.Device, case: Case) -> list[np.ndarray]:
    """Results in flattened order."""
    with jax.default_device(device):
        return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(case.function)(*case.inputs))]


def compare(case: Case) -> str | None:
    """Text of a failure, or None."""
    try:
        ours = results_on(jax.devices()[0], case)
    except Exception as error:  # noqa: BLE001 - JAX has no common class of errors
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    theirs = results_on(jax.devices("cpu")[0], case)
    assert len(ours) == len(theirs), case.name
    for index, (got, expected) in enumerate(zip(ours, theirs, strict=True)):
        problem = distances.difference(got, expected, case.ulp, case.l2)
        if problem:
            return f"result {index}: {problem}"
    return None


def refusal(case: Case) -> str | None:
    """What the error says first, without operation and source line; None when there was none that has both."""
    try:
        results_on(jax.devices()[0], case)
    except NotImplementedError as error:
        return f"JAX: {str(error).splitlines()[0]}"
    except jax.errors.JaxRuntimeError as error:
        found = re.search(r"_\w+\.py:\d+:\d+: stablehlo\.\w+: ([^\[\n]+)", str(error))
        return found[1].strip() if found and str(error).startswith("UNIMPLEMENTED: ") else None
    return None


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="run only every N-th function")
    parser.add_argument("--only", default="", help="run only functions with this in their names")
    parser.add_argument("--json", type=Path, help="write the results there")
    options = parser.parse_args()
    jax.config.update("jax_default_matmul_precision", "highest")
    assert jax.devices()[0].device_kind == "TPU v3", jax.devices()
    groups = {group.__name__: group() for group in function_cases.GROUPS}
    chosen = [(name, case) for name, cases in groups.items() for case in cases if options.only in case.name]
    results = []
    for group, case in chosen[:: options.every]:
        problem = compare(case)
        results.append({"group": group, "name": case.name, "problem": problem})
        if problem:
            print(f"FAILED {case.name}: {problem}", flush=True)
    failed = sum(result["problem"] is not None for result in results)
    refused: dict[str, str | None] = {}
    for case in function_cases.refused():
        refused[case.name] = refusal(case)
        if refused[case.name] is None:
            failed += 1
            print(f"FAILED {case.name}: was not refused", flush=True)
    print(f"{len(results)} functions, {len(refused)} to be refused, {failed} failed")
    if options.json:
        options.json.write_text(json.dumps({"functions": results, "refused": refused}, indent=0), encoding="utf-8")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
