#!/usr/bin/env python3
"""Compares the compiler's front half with JAX on the CPU: import, passes and the graph interpreter.

Usage: jax_compare_test.py --tool GRAPH_INTERPRET --data TESTS_DATA. Exits with 77
(skipped) without JAX. The passes must not change a bit: every program is interpreted with and
without them, dots by the semantics of the matrix unit. Against JAX dots are taken without rounding of
operands; integers must be equal, floats within the bounds of CASES, which leave room for another
order of f32 sums.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import ml_dtypes
    import numpy as np
    TESTS = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(TESTS / "data"), str(TESTS / "e2e")]
    import distances
    import export_graphs

    import jax
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

# Largest relative L2 distance of an output; sums of mixed signs lose digits.
CASES = {
    "dense": 1e-6, "mlp_sgd": 1e-6, "mlp_momentum": 1e-5, "mlp_adam": 1e-5, "elementwise": 1e-6,
    "shapes": 1e-6, "reductions": 1e-5, "dots": 1e-6, "constants": 0.0, "bf16_dense": 2e-3,
    "collectives": 1e-6, "collectives_2d": 1e-6, "integers": 0.0,
}
DTYPES = {"i1": np.bool_, "i8": np.int8, "i32": np.int32, "ui32": np.uint32, "f32": np.float32,
          "bf16": ml_dtypes.bfloat16, "i64": np.int64, "ui64": np.uint64}


def random_input(spec: jax.ShapeDtypeStruct, rng: np.random.Generator) -> np.ndarray:
    if spec.dtype == np.bool_:
        return rng.integers(0, 2, spec.shape).astype(np.bool_)
    if np.issubdtype(spec.dtype, np.unsignedinteger):
        return rng.integers(0, 2**32, spec.shape, dtype=np.uint64).astype(spec.dtype)
    if np.issubdtype(spec.dtype, np.integer):
        return rng.integers(0, 4, spec.shape).astype(spec.dtype)
    sign = rng.choice([-1, 1], spec.shape).astype(spec.dtype)
    return rng.uniform(0.1, 1.0, spec.shape).astype(spec.dtype) * sign


def interpret(tool: Path, program: Path, inputs: list[np.ndarray],
              flags: list[str]) -> list[np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for i, value in enumerate(inputs):
            path = Path(folder) / f"in{i}.bin"
            path.write_bytes(np.ascontiguousarray(value).tobytes())
            files.append(str(path))
        done = subprocess.run([str(tool), str(program), folder, *flags, *files], check=True,
                              capture_output=True, text=True)
        out = []
        for i, line in enumerate(done.stdout.splitlines()):
            elem, dims = line.rstrip("]").split("[")
            shape = [int(d) for d in dims.split(",")] if dims else []
            data = (Path(folder) / f"{i}.bin").read_bytes()
            out.append(np.frombuffer(data, DTYPES[elem]).reshape(shape))
        return out


def distance(got: np.ndarray, want: np.ndarray) -> float:
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if want.dtype.kind in "biu":
        return 0.0 if np.array_equal(got, want) else float("inf")
    return distances.relative_l2(got, want)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    failures = 0
    table = export_graphs.table()
    for name, bound in CASES.items():
        fn, specs = table[name]
        rng = np.random.default_rng(7)
        leaves, tree = jax.tree.flatten(specs)
        # The second moments of Adam are sums of squares: no negative state.
        values = [np.abs(random_input(s, rng)) if name == "mlp_adam" else random_input(s, rng)
                  for s in leaves]
        want = [np.asarray(x) for x in jax.tree.leaves(fn(*jax.tree.unflatten(tree, values)))]
        program = args.data / f"{name}.mlirbc"
        got = interpret(args.tool, program, values, [])
        unrounded = interpret(args.tool, program, values, ["--unrounded"])
        raw = interpret(args.tool, program, values, ["--no-passes"])
        same = all(a.tobytes() == b.tobytes() for a, b in zip(got, raw, strict=True))
        worst = max((distance(g, w) for g, w in zip(unrounded, want, strict=True)), default=0.0)
        ok = same and worst <= bound
        failures += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {name}: worst distance {worst:.2e} (bound {bound:.0e}), "
              f"passes {'keep' if same else 'CHANGE'} the bits")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
