"""The convnet of examples/mnist_convnet, exported for `tpuboard train` from record files.

Writes images.npy u8[n,28,28,1] and labels.npy i32[n] (what `tpuboard convert` makes records of), train_step.mlirbc,
eval_step.mlirbc and train.toml (train.toml.in with the numbers of the network).

Usage: convnet_records.py --data DIR [--out DIR] [--batch N] [--channels A,B] [--dense A,B,10]
DIR of --data holds images.npy f32[n,784] in 0..1 and labels.npy (sim_scripts/fetch_mnist.py).
"""

from __future__ import annotations

import argparse
import importlib.util
import string
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent
GRAPHS = EXAMPLE.parent / "mnist_convnet" / "export.py"
graphs_spec = importlib.util.spec_from_file_location("mnist_convnet", GRAPHS)
model = importlib.util.module_from_spec(graphs_spec)  # sets up JAX's environment
graphs_spec.loader.exec_module(model)

import jax  # noqa: E402
import numpy as np  # noqa: E402


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("out/convnet_records"))
    parser.add_argument("--batch", type=int, default=model.BATCH, help="examples of a step, all cores together")
    parser.add_argument("--channels", default=",".join(map(str, model.CHANNELS)))
    parser.add_argument("--dense", default=",".join(map(str, model.DENSE)))
    args = parser.parse_args()
    if args.batch % model.CORES != 0:
        parser.error(f"--batch must be a multiple of {model.CORES}, one part for each core")
    shapes = model.weight_shapes(model.IMAGE, *(tuple(map(int, sizes.split(",")))
                                                for sizes in (args.channels, args.dense)))
    pixels = np.load(args.data / "images.npy")
    args.out.mkdir(parents=True, exist_ok=True)
    np.save(args.out / "images.npy", np.rint(pixels * 255).astype(np.uint8).reshape(-1, *model.IMAGE))
    np.save(args.out / "labels.npy", np.load(args.data / "labels.npy").astype(np.int32))

    train = model.export_train_step(model.CORES, shapes=shapes, batch=args.batch)
    params, _, *batch = model.argument_shapes(shapes, batch=args.batch)
    evaluate = jax.jit(model.make_eval_step(model.make_mesh(model.CORES)), keep_unused=True)
    (args.out / "train_step.mlirbc").write_bytes(train.mlir_module_serialized)
    (args.out / "eval_step.mlirbc").write_bytes(
        jax.export.export(evaluate, platforms=["tpu"])(params, *batch).mlir_module_serialized)
    config = string.Template((EXAMPLE / "train.toml.in").read_text(encoding="utf-8")).substitute(
        leaves=len(train.in_avals) - 2, params=2 * len(shapes), moments=4 * len(shapes) + 1, batch=args.batch,
        layers=", ".join(["\"zeros\", \"glorot_uniform\""] * len(shapes)), classes=shapes[-1][-1])
    (args.out / "train.toml").write_text(config, encoding="utf-8")
    print(f"{args.out}: {len(pixels)} images, {sum(int(np.prod(shape)) for shape in shapes)} weights")


if __name__ == "__main__":
    main()
