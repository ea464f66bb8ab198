"""Cases of op_matrix_test.py: factorisations of matrices and what jax.numpy.linalg makes of them, as JAX sends them to
a TPU (custom calls Qr, LuDecomposition, Eigh, ...), against the CPU's LAPACK.

A factor that is unique up to signs is compared by what does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable

from case_runner import Case
from op_cases import _random

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jax import lax

NEAR = 1e-5  # 100 roundings of f32; errors of LAPACK are as large


def _case(name: str, function: Callable, *inputs: np.ndarray, l2: float = NEAR) -> Case:
    return Case(name, function, inputs, l2=l2, oracle=function, platform="tpu")


def _positive(*shape: int, seed: int = 0) -> np.ndarray:
    """Symmetric matrices, eigenvalues of 1 and more."""
    a = _random(*shape, seed=seed)
    return (a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1])).astype(np.float32)


def _no_signs(function: Callable) -> Callable:
    return lambda a: jax.tree.map(jnp.abs, function(a))


def factorisations() -> list[Case]:
    """One factorisation each: tall, wide, square, batches, sizes of one, failures."""
    twos = np.ones((3, 3), np.float32)
    bad = np.stack([_positive(4, 4), -_positive(4, 4)])
    upper = _positive(3, 6, 6)
    return [
        _case("cholesky", jnp.linalg.cholesky, _positive(3, 6, 6)),
        _case("cholesky_upper", lambda a: jnp.linalg.cholesky(a, upper=True), upper),
        _case("cholesky_not_positive", jnp.linalg.cholesky, bad),
        Case("cholesky_bf16", lambda a: lax.linalg.cholesky(a.astype(jnp.bfloat16)),
             (np.round(_positive(4, 4) * 8) / 8,), l2=4e-3, platform="tpu",
             oracle=lambda a: lax.linalg.cholesky(a).astype(jnp.bfloat16)),
        _case("cholesky_large", jnp.linalg.cholesky, _positive(130, 130)),
        _case("qr_tall", jnp.linalg.qr, _random(3, 7, 4)),
        _case("qr_wide", jnp.linalg.qr, _random(4, 7)),
        _case("qr_complete", lambda a: jnp.linalg.qr(a, mode="complete"), _random(7, 4)),
        _case("qr_large", jnp.linalg.qr, _random(150, 140)),
        _case("qr_zero_column", lambda a: jnp.linalg.qr(a.at[:, 0].set(0))[1], _random(4, 3)),
        _case("lu", lax.linalg.lu, _random(3, 5, 5)),
        _case("lu_tall", lax.linalg.lu, _random(6, 4)),
        _case("lu_wide", lax.linalg.lu, _random(4, 6)),
        _case("lu_singular", lax.linalg.lu, twos),
        _case("lu_large", lambda a: lax.linalg.lu(a)[0], _random(130, 130), l2=1e-4),
        _case("eigh", _no_signs(jnp.linalg.eigh), _positive(2, 5, 5), l2=1e-4),
        _case("eigh_upper", _no_signs(lambda a: jnp.linalg.eigh(a, UPLO="U", symmetrize_input=False)),
              np.triu(_positive(6, 6)), l2=1e-4),
        _case("eigh_one", jnp.linalg.eigh, _positive(2, 1, 1)),
        _case("eigvalsh", jnp.linalg.eigvalsh, _random(40, 40) + _random(40, 40).T),
        _case("svd", lambda a: (lambda u, s, v: (s, u * s @ v))(*jnp.linalg.svd(a, full_matrices=False)),
              _random(6, 4), l2=2e-2),  # the product rounds its operands to bf16
        _case("approx_max_k", lambda a: lax.approx_max_k(a, 3), _random(4, 300)),
        _case("approx_min_k", lambda a: lax.approx_min_k(a, 2, reduction_dimension=0), _random(40, 3)),
        _case("top_k", lambda a: lax.top_k(a, 3), _random(4, 30)),
        _case("orthogonal", lambda k: jax.nn.initializers.orthogonal()(k, (8, 6)), np.array([0, 7], np.uint32)),
        _case("device_memory", lambda a: jax.device_put(a, jax.memory.Space.Device) + 1, _random(3)),
    ]


def solvers() -> list[Case]:
    """What solves systems, inverts, and measures matrices."""
    a, b = _random(2, 5, 5) + 3 * np.eye(5, dtype=np.float32), _random(2, 5, 3, seed=1)
    forms = [_case(f"triangular_{left:d}{lower:d}{transpose:d}{unit:d}",
                   lambda a, b, left=left, lower=lower, transpose=transpose, unit=unit: lax.linalg.triangular_solve(
                       a, b, left_side=left, lower=lower, transpose_a=transpose, unit_diagonal=unit),
                   a / 4, b if left else np.swapaxes(b, 1, 2).copy())
             for left in (False, True) for lower in (False, True) for transpose in (False, True)
             for unit in (False, True)]
    return [
        *forms,
        _case("solve", jnp.linalg.solve, a, b),
        _case("inv", jnp.linalg.inv, a),
        _case("det", jnp.linalg.det, a),
        _case("slogdet", jnp.linalg.slogdet, a),
        _case("pinv", jnp.linalg.pinv, _random(6, 4)),
        _case("lstsq", lambda a, b: jnp.linalg.lstsq(a, b)[0], _random(6, 4), _random(6, 2)),
        _case("cond", jnp.linalg.cond, a[0], l2=1e-4),
        _case("matrix_power", lambda a: jnp.linalg.matrix_power(a, -1), a[0]),
        _case("matrix_rank", jnp.linalg.matrix_rank, _random(4, 5)),
        _case("norms", lambda a: [jnp.linalg.norm(a, ord=o) for o in (None, 1, -1, 2, -2, "nuc")], a[0]),
        _case("expm", lambda a: jsp.linalg.expm(a / 8), a[0], l2=1e-4),
        _case("cho_solve", lambda a, b: jsp.linalg.cho_solve(jsp.linalg.cho_factor(a), b), _positive(4, 4), b[0, :4]),
        _case("lu_solve", lambda a, b: jsp.linalg.lu_solve(jsp.linalg.lu_factor(a), b), a[0], b[0]),
        _case("lu_parts", jsp.linalg.lu, _random(5, 4)),
        _case("polar", jsp.linalg.polar, _random(5, 4), l2=1e-4),
        _case("block", lambda a: jnp.linalg.solve(a, jnp.eye(64)), _random(64, 64) + 8 * np.eye(64, dtype=np.float32)),
        _case("polyfit", lambda x, y: jnp.polyfit(x, y, 2), _random(9), _random(9, seed=1), l2=1e-4),
        _case("normals", lambda k: jax.random.multivariate_normal(k, jnp.zeros(3), jnp.eye(3) + 0.3),
              np.array([0, 1], np.uint32), l2=2e-2),
    ]


def gradients() -> list[Case]:
    """Derivatives of the factorisations."""
    a, b = _positive(4, 4), _random(4, 2)
    weights = np.arange(16, dtype=np.float32).reshape(4, 4) / 16

    def gradient(name: str, function: Callable, *inputs: np.ndarray) -> Case:
        def exact(*values: np.ndarray) -> tuple:
            with jax.default_matmul_precision("highest"):
                return jax.grad(lambda *v: jnp.sum(function(*v)), tuple(range(len(inputs))))(*values)
        return _case(f"d_{name}", exact, *inputs, l2=1e-4)

    return [
        gradient("cholesky", lambda a: jnp.linalg.cholesky(a) * weights, a),
        gradient("qr", lambda a: jnp.linalg.qr(a)[0] ** 3, _random(5, 4)),
        gradient("inv", lambda a: jnp.linalg.inv(a) * weights, a),
        gradient("solve", jnp.linalg.solve, a, b),
        gradient("slogdet", lambda a: jnp.linalg.slogdet(a)[1], a),
        gradient("det", jnp.linalg.det, a),
        gradient("eigh", lambda a: jnp.linalg.eigh(a)[0] ** 3, a),
        gradient("svd", lambda a: jnp.linalg.svd(a, compute_uv=False) ** 3, _random(5, 4)),
        gradient("triangular", lambda a, b: jsp.linalg.solve_triangular(a, b, lower=True), a, b),
    ]
