"""The other side of the benchmarks, and the graphs of ours: JAX, OpenBLAS and NumPy. Runs in the virtual environment of
tests/requirements.txt, started by run.py; each command prints one JSON object.

  references.py export-matmul N FILE        f32[N,N] x f32[N,N] for one core
  references.py export-chain N FILE         ten elementwise operations on N f32, split over 8 cores
  references.py export-convnet BATCH FILE [CHANNELS]
      the convnet's training step for 8 cores with this global batch, and as many channels in each convolution
  references.py sgemm N ROUNDS              best seconds of OpenBLAS; threads and core type come from the environment
  references.py chain N ROUNDS              best seconds of NumPy
  references.py convnet STEPS BATCH CHANNELS DATA WHERE
      seconds of each training step of the convnet in JAX; WHERE is cpu: one CPU device; jit: the eight devices of the
      plugin, which TPU_LIBRARY_PATH names, arguments with NamedSharding; shard_map: the same with jax.shard_map
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path

COMMAND = sys.argv[1] if len(sys.argv) > 1 else ""
os.environ["JAX_PLATFORMS"] = "tpu,cpu" if sys.argv[-1] in ("jit", "shard_map") else "cpu"
DEVICES = 1 if COMMAND == "convnet" else 8
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"

import numpy as np  # noqa: E402, the variables above are read when JAX is imported

ROOT = Path(__file__).resolve().parent.parent
CORES = 8


def write(exported, path: str) -> dict:
    """Writes an exported program."""
    Path(path).write_bytes(exported.mlir_module_serialized)
    return {"bytes": len(exported.mlir_module_serialized)}


def export_matmul(size: str, path: str) -> dict:
    """A single product, operands rounded to bf16 as the matrix units do."""
    import jax
    import jax.numpy as jnp

    shape = jax.ShapeDtypeStruct((int(size), int(size)), jnp.float32)
    return write(jax.export.export(jax.jit(lambda a, b: a @ b), platforms=["tpu"])(shape, shape), path)


def export_chain(size: str, path: str) -> dict:
    """The operations of numpy_chain."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P

    def chain(x, y):
        z = x * 1.5
        z = z + y
        z = jnp.maximum(z, -2.0)
        z = jnp.minimum(z, 2.0)
        z = z - x
        z = jnp.abs(z)
        z = jnp.sqrt(z)
        z = z * y
        z = z / 3.7
        return -z

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:CORES]), ("data",))
    split = jax.shard_map(chain, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False)
    shape = jax.ShapeDtypeStruct((int(size),), jnp.float32)
    return write(jax.export.export(jax.jit(split), platforms=["tpu"])(shape, shape), path)


def numpy_chain(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> None:
    """Ten operations without temporary arrays, which is the faster way to write it."""
    np.multiply(x, np.float32(1.5), out=z)
    np.add(z, y, out=z)
    np.maximum(z, np.float32(-2.0), out=z)
    np.minimum(z, np.float32(2.0), out=z)
    np.subtract(z, x, out=z)
    np.abs(z, out=z)
    np.sqrt(z, out=z)
    np.multiply(z, y, out=z)
    np.divide(z, np.float32(3.7), out=z)
    np.negative(z, out=z)


def chain(size: str, rounds: str) -> dict:
    """Best of `rounds`."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(int(size), dtype=np.float32) for _ in range(2))
    z = np.zeros_like(x)
    return {"seconds": best(int(rounds), lambda: numpy_chain(x, y, z)), "what": f"NumPy {np.__version__}"}


def best(rounds: int, run) -> float:
    """Least seconds of some runs; the first one warms up."""
    run()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def sgemm(size: str, rounds: str) -> dict:
    """OpenBLAS of the system, else the one inside of NumPy."""
    n = int(size)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    c = np.zeros((n, n), np.float32)
    try:
        library = ctypes.CDLL("libopenblas.so.0")
    except OSError:
        return {"seconds": best(int(rounds), lambda: np.matmul(a, b, out=c)), "what": "the OpenBLAS of NumPy"}
    library.openblas_get_corename.restype = ctypes.c_char_p
    pointer = ctypes.POINTER(ctypes.c_float)
    arrays = [array.ctypes.data_as(pointer) for array in (a, b, c)]
    row_major, as_is, one, zero = 101, 111, ctypes.c_float(1), ctypes.c_float(0)

    def run() -> None:
        library.cblas_sgemm(row_major, as_is, as_is, n, n, n, one, arrays[0], n, arrays[1], n, zero, arrays[2], n)

    seconds = best(int(rounds), run)
    if not np.allclose(c[0], a[0] @ b, rtol=1e-3, atol=1e-3):
        raise SystemExit("references.py: OpenBLAS gave a wrong product")
    return {"seconds": seconds, "what": f"OpenBLAS sgemm, {library.openblas_get_corename().decode()} kernels"}


def convnet_model():
    """The module that exports the example."""
    sys.path.insert(0, str(ROOT / "examples" / "mnist_convnet"))
    import export

    return export


def convnet_shapes(channels: str) -> list[tuple[int, ...]]:
    """Shapes of the example's weights with so many channels in each convolution."""
    return convnet_model().weight_shapes(channels=(int(channels),) * 2)


def export_convnet(batch: str, path: str, channels: str = "256") -> dict:
    """The example's training step in another size."""
    return write(convnet_model().export_train_step(CORES, batch=int(batch), shapes=convnet_shapes(channels)), path)


def convnet(steps: str, batch: str, channels: str, data: str, where: str) -> dict:
    """Steps of the example's very function, jitted, its state donated; the first one compiles."""
    import jax  # before the example, which asks for the CPU
    import optax
    from jax.sharding import NamedSharding, PartitionSpec as P

    model = convnet_model()
    assert jax.device_count() == (1 if where == "cpu" else CORES)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    everywhere, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    images = np.load(Path(data) / "images.npy").reshape(-1, *model.IMAGE)
    labels = np.load(Path(data) / "labels.npy")
    step = jax.jit(model.make_train_step(mesh if where == "shard_map" else None), donate_argnums=(0, 1),
                   in_shardings=(everywhere, everywhere, cut, cut), out_shardings=everywhere)
    params = model.init_params(1, convnet_shapes(channels))
    params, state = jax.device_put((params, optax.adam(model.LEARNING_RATE).init(params)), everywhere)
    seconds = []
    for i in range(int(steps)):
        first = i * int(batch) % len(labels)
        rows = slice(first, first + int(batch))
        start = time.perf_counter()
        params, state, loss = step(params, state, images[rows], labels[rows])
        jax.block_until_ready((params, state, loss))
        seconds.append(time.perf_counter() - start)
    what = "one CPU device" if where == "cpu" else f"{where} on the plugin"
    return {"step_seconds": seconds, "loss": float(loss), "what": f"JAX {jax.__version__}, {what}"}


COMMANDS = {"export-matmul": export_matmul, "export-chain": export_chain, "export-convnet": export_convnet,
            "sgemm": sgemm, "chain": chain, "convnet": convnet}


def main() -> None:
    """Command line."""
    if COMMAND not in COMMANDS:
        raise SystemExit(__doc__)
    print(json.dumps(COMMANDS[COMMAND](*sys.argv[2:])))


if __name__ == "__main__":
    main()
