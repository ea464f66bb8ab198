"""One training step gives the same bits and cycles whatever runs it: host threads, SIMD width, fast engine, Verilog in
all 16 matrix units, or in all semaphores and DMA queues, lockstep, two runs. Of the perceptron of examples/mnist_mlp,
or of a small convnet.
Usage: determinism_test.py --bin DIR [--model mlp|convnet]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import jax_reference as reference

import jax
import numpy as np

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"

ALL_UNITS = "board.*"


def host_simd(tools: Path, exe: Path, inputs: list[str], folder: Path) -> list[str]:
    """The SIMD levels that this host accepts."""
    levels = []
    for level in ("scalar", "avx2", "avx512", "amx"):
        done = subprocess.run([str(tools / "tpuboard"), "run", str(exe), *inputs, "--out-dir", str(folder), "--simd",
                               level],
                              capture_output=True, text=True, check=False)
        if done.returncode == 0:
            levels.append(level)
        elif "this host" not in done.stderr:
            raise SystemExit(f"--simd {level}: {done.stderr}")
    return levels


def figures(tools: Path, exe: Path, inputs: list[str], folder: Path, options: list[str]) -> dict:
    """The JSON figures of one run."""
    path = folder / "figures.json"
    subprocess.run([str(tools / "tpuboard"), "run", str(exe), *inputs, "--out-dir", str(folder), "--json", str(path),
                    *options], check=True, stdout=subprocess.DEVNULL)
    return json.loads(path.read_text())


def mlp_step() -> tuple[bytes, list[np.ndarray]]:
    """The example's graph and its arguments."""
    sys.path.insert(0, str(EXAMPLES / "mnist_mlp"))
    import export as model
    import optax

    rng = np.random.default_rng(5)
    params = model.init_params(5)
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves((params, optax.adam(model.LEARNING_RATE).init(params)))]
    arrays += [rng.random((model.BATCH, model.LAYERS[0]), dtype=np.float32),
               rng.integers(0, 10, model.BATCH).astype(np.int32)]
    return (EXAMPLES / "mnist_mlp" / "train_step.mlirbc").read_bytes(), arrays


def convnet_step() -> tuple[bytes, list[np.ndarray]]:
    """The example's function with few channels, on two small images a core."""
    sys.path.insert(0, str(EXAMPLES / "mnist_convnet"))
    import export as model
    import optax

    rng = np.random.default_rng(5)
    image, batch = (9, 10, 1), 16
    shapes = model.weight_shapes(image, channels=(24, 40), dense=(20, 12, 10))
    params = model.init_params(5, shapes)
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves((params, optax.adam(model.LEARNING_RATE).init(params)))]
    arrays += [rng.random((batch, *image), dtype=np.float32), rng.integers(0, 10, batch).astype(np.int32)]
    program = model.export_train_step(model.CORES, shapes=shapes, image=image, batch=batch)
    return program.mlir_module_serialized, arrays


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--model", choices=("mlp", "convnet"), default="mlp")
    args = parser.parse_args()
    graph, arrays = mlp_step() if args.model == "mlp" else convnet_step()
    errors = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        exe = folder / "train_step.tpuexe"
        (folder / "train_step.mlirbc").write_bytes(graph)
        subprocess.run([str(args.bin / "tpuc"), str(folder / "train_step.mlirbc"), "-o", str(exe)], check=True)
        inputs = reference.save_inputs(folder, arrays)
        first = figures(args.bin, exe, inputs, folder, [])
        variants = [[], ["--threads", "1"], ["--threads", "2"], ["--threads", "4"], ["--check"]]
        variants += [["--simd", level] for level in host_simd(args.bin, exe, inputs, folder)]
        variants += [["--mxu", f"{ALL_UNITS}=rtl"], ["--mxu", f"{ALL_UNITS}=lockstep:1/3", "--threads", "3"]]
        variants += [["--verilog", f"{ALL_UNITS}=rtl"], ["--verilog", f"{ALL_UNITS}=lockstep"]]
        for options in variants:
            run = figures(args.bin, exe, inputs, folder, options)
            same = all(run[key] == first[key] for key in ("digest", "sim_cycles", "sim_cycles_per_core",
                                                          "instructions_per_hart"))
            print(f"{'same' if same else 'DIFFERENT'}: {' '.join(options) or 'again'} ({run['wall_seconds']:.1f} s, "
                  f"lockstep {run['lockstep']})", flush=True)
            if not same or run["lockstep"]["mismatches"] != 0:
                errors.append(" ".join(options))
            if "--mxu" in options and "lockstep" in " ".join(options) and run["lockstep"]["tiles"] < 10:
                errors.append("too few tiles in lockstep")
        timing = figures(args.bin, exe, inputs, folder, ["--no-data"])
        if timing["sim_cycles"] != first["sim_cycles"]:
            errors.append("--no-data has other cycles")
    for error in errors:
        print(f"FAILED {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
