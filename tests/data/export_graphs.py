#!/usr/bin/env python3
"""Exports the small StableHLO artifacts of this folder with JAX.

Usage: export_graphs.py [--out-dir DIR]. Needs jax, jaxlib and optax in the versions of
tests/requirements.txt. The artifacts are checked in; a test runs this script again and compares, when
JAX is available.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

F32 = jnp.float32
I32 = jnp.int32


def arg(shape: tuple[int, ...], dtype=F32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def mesh8() -> Mesh:
    return Mesh(np.array(jax.devices()[:8]), ("data",))


def dense(x, w, b):
    return jnp.tanh(x @ w + b)


def init_mlp(sizes: tuple[int, ...]):
    return [
        {"w": arg((sizes[i], sizes[i + 1])), "b": arg((sizes[i + 1],))}
        for i in range(len(sizes) - 1)
    ]


def mlp_loss(params, x, labels):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    logits = x @ params[-1]["w"] + params[-1]["b"]
    one_hot = (labels[:, None] == lax.broadcasted_iota(I32, logits.shape, 1)).astype(F32)
    return -jnp.mean(jnp.sum(one_hot * jax.nn.log_softmax(logits), axis=-1))


def mlp_step(optimizer, sizes: tuple[int, ...], batch: int):
    params = init_mlp(sizes)
    state = jax.eval_shape(optimizer.init, params)

    def per_core(params, state, x, labels):
        loss, grads = jax.value_and_grad(mlp_loss)(params, x, labels)
        loss, grads = lax.pmean((loss, grads), "data")
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    step = jax.shard_map(
        per_core, mesh=mesh8(), in_specs=(P(), P(), P("data"), P("data")),
        out_specs=(P(), P(), P()), check_vma=False,
    )
    return jax.jit(step, donate_argnums=(0, 1)), (
        params, state, arg((batch, sizes[0])), arg((batch,), I32))


def elementwise(x, y):
    a = jnp.exp(-jnp.abs(x)) + jnp.log(jnp.abs(y) + 1.0) * lax.logistic(x)
    b = lax.rsqrt(jnp.abs(x) + 1.0) + jnp.sqrt(jnp.abs(y)) - jnp.power(jnp.abs(x), y)
    c = jnp.sign(x) * lax.rem(x, jnp.abs(y) + 0.5)
    d = jnp.where((x > y) & ~(x == 0.0) | (y < -1.0), a, jnp.clip(b, -2.0, 2.0))
    return jnp.maximum(a, c), jnp.minimum(d, b) / (1.0 + jnp.abs(c)), jnp.tanh(d)


def shapes(x, i):
    t = jnp.transpose(x, (2, 0, 1))
    s = lax.slice(t, (1, 0, 1), (4, 2, 3), (2, 1, 1))
    c = jnp.concatenate([s, s * 2.0], axis=1)
    u = i.astype(jnp.uint32) * jnp.uint32(2654435761)
    return c.reshape(4, 4), jnp.broadcast_to(u[None, :], (3, 5)), jnp.sum(x, axis=(0, 2))


def reductions(x, i, m):
    return (jnp.max(x, axis=0), jnp.min(x, axis=1), jnp.sum(x), jnp.any(m, axis=0),
            jnp.all(m, axis=1), jnp.sum(i, axis=1), jnp.argmax(x, axis=1))


def dots(a, b, v):
    return (a @ b, jnp.einsum("ij,kj->ik", a, a), jnp.einsum("ij,ik->jk", a, a), a @ v,
            jnp.outer(v, v),
            jnp.einsum("bij,bjk->bik", a.reshape(2, 2, 6), b.reshape(2, 6, 4)[:, :, :3]))


def integers(a, b, u, v):
    return (a * b - a, a // (b + 1), a % (b + 1), -a, jnp.abs(a - 2), jnp.sign(a - 1),
            u * v + u, u ^ v, u & ~v, u << (v & 31), u >> (v & 31),
            lax.population_count(u), lax.clz(u), jnp.minimum(u, v),
            jnp.maximum(a, b), u < v, a >= b, u.astype(F32), (a.astype(F32) * 1.5).astype(I32),
            a.astype(jnp.bool_), lax.div(a, b), lax.rem(a, b))


def constants():
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    return (jnp.asarray(table), jnp.full((2, 3), 7, jnp.int32), jnp.asarray([True, False, True]),
            jnp.asarray([1.5, -2.0], jnp.bfloat16), jnp.asarray([1, 2, 3], jnp.uint32),
            jnp.zeros((0, 4), F32), jnp.asarray([-1, 5], jnp.int8))


def bf16_dense(x, w):
    return jax.nn.relu(jnp.dot(x, w)).astype(F32)


def collectives(x):
    def per_core(x):
        i = lax.axis_index("data")
        return (lax.psum(x, "data"), lax.pmax(x, "data"), lax.pmin(x, "data"), x + i.astype(F32))
    return jax.shard_map(per_core, mesh=mesh8(), in_specs=P("data"),
                         out_specs=(P(), P(), P(), P("data")), check_vma=False)(x)


def collectives_2d(x):
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("a", "b"))

    def per_core(x):
        return lax.psum(x, "a"), lax.psum(x, "b"), lax.psum(x, ("a", "b"))
    return jax.shard_map(per_core, mesh=mesh, in_specs=P("a", "b"),
                         out_specs=(P(None, "b"), P("a"), P()), check_vma=False)(x)


def control(x, n):
    y = lax.fori_loop(0, 3, lambda i, c: c * 2.0 + i, x)
    y = lax.while_loop(lambda c: jnp.sum(c) < 100.0, lambda c: c + 1.0, y)
    return lax.cond(n > 0, lambda v: v + 1.0, lambda v: v - 1.0, y), lax.top_k(x, 2)


def conv_net(x, w):
    y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jnp.sum(y ** 2)


def f16_add(x):
    return x + x


def cholesky(x):
    return jnp.linalg.cholesky(x)


def fft(x):
    y = jnp.fft.fft(x)
    return y, jnp.abs(y[0])


def narrow_types(x):
    return x.astype(jnp.float16), x.astype(jnp.float8_e5m2)


def auto_sharding(x):
    return x * 2.0 + jnp.sum(x)


def outside_ops(scale, x):
    inner = jax.shard_map(lambda s, v: (v * s, lax.psum(v, "data")), mesh=mesh8(),
                          in_specs=(P(), P("data")), out_specs=(P("data"), P()), check_vma=False)
    scaled, total = inner(jnp.exp(scale), x)
    return scaled, total * 0.5


def scale_rows(x):
    return jax.shard_map(lambda v: v * 2.0, mesh=mesh8(), in_specs=P("data"), out_specs=P("data"),
                         check_vma=False)(x)


def sharded_outside(x):
    return jnp.tanh(scale_rows(x))


def shard_map_in_loop(x):
    return lax.fori_loop(0, 3, lambda i, v: scale_rows(v), x)


def table() -> dict:
    sgd = optax.sgd(0.1)
    momentum = optax.sgd(0.1, momentum=0.9)
    adam = optax.adam(1e-3)
    sizes = (12, 10, 6, 4)
    return {
        "dense": (jax.jit(dense), (arg((5, 7)), arg((7, 3)), arg((3,)))),
        "mlp_sgd": mlp_step(sgd, sizes, 16),
        "mlp_momentum": mlp_step(momentum, sizes, 16),
        "mlp_adam": mlp_step(adam, sizes, 16),
        "elementwise": (jax.jit(elementwise), (arg((3, 5)), arg((3, 5)))),
        "shapes": (jax.jit(shapes), (arg((2, 3, 5)), arg((5,), I32))),
        "reductions": (jax.jit(reductions),
                       (arg((4, 6)), arg((4, 6), I32), arg((4, 6), jnp.bool_))),
        "dots": (jax.jit(dots), (arg((4, 6)), arg((6, 8)), arg((6,)))),
        "integers": (jax.jit(integers), (arg((9,), I32), arg((9,), I32), arg((9,), jnp.uint32),
                                         arg((9,), jnp.uint32))),
        "constants": (jax.jit(constants), ()),
        "bf16_dense": (jax.jit(bf16_dense), (arg((4, 6), jnp.bfloat16), arg((6, 3), jnp.bfloat16))),
        "collectives": (jax.jit(collectives), (arg((16, 3)),)),
        "collectives_2d": (jax.jit(collectives_2d), (arg((4, 8)),)),
        "control": (jax.jit(control), (arg((2, 6)), arg((), I32))),
        "conv_grad": (jax.jit(jax.grad(conv_net, (0, 1))), (arg((1, 6, 6, 2)), arg((3, 3, 2, 3)))),
        "outside_ops": (jax.jit(outside_ops), (arg(()), arg((16, 3)))),
        "sharded_outside": (jax.jit(sharded_outside), (arg((16, 3)),)),
        "shard_map_in_loop": (jax.jit(shard_map_in_loop), (arg((16, 3)),)),
        "spectrum": (jax.jit(fft), (arg((8,), jnp.complex64),)),
        "bad_types": (jax.jit(narrow_types), (arg((8,)),)),
        "auto_sharding": (
            jax.jit(auto_sharding, in_shardings=NamedSharding(mesh8(), P("data"))), (arg((16,)),)),
        "bad_f16": (jax.jit(f16_add), (arg((2,), jnp.float16),)),
        "bad_cholesky": (jax.jit(cholesky), (arg((3, 3)),)),
    }


def export_dynamic() -> bytes:
    (n,) = jax.export.symbolic_shape("n")
    f = jax.jit(lambda x: x * 2.0)
    return jax.export.export(f)(jax.ShapeDtypeStruct((n, 3), F32)).mlir_module_serialized


def export_f64() -> bytes:
    with jax.enable_x64(True):
        f = jax.jit(lambda x: x * 2.0)
        return jax.export.export(f)(jax.ShapeDtypeStruct((3,), jnp.float64)).mlir_module_serialized


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out-dir", type=Path, default=Path(__file__).parent)
    parser.add_argument("--text", action="store_true", help="also write the StableHLO text")
    args = parser.parse_args()
    args.out_dir.mkdir(parents=True, exist_ok=True)
    # Locations name the script without its folder: artifacts must not depend on the machine.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    for name, (fn, inputs) in table().items():
        exported = jax.export.export(fn)(*inputs)
        (args.out_dir / f"{name}.mlirbc").write_bytes(exported.mlir_module_serialized)
        if args.text:
            (args.out_dir / f"{name}.mlir").write_text(exported.mlir_module())
    (args.out_dir / "double.mlirbc").write_bytes(export_f64())
    (args.out_dir / "bad_dynamic.mlirbc").write_bytes(export_dynamic())


if __name__ == "__main__":
    main()
