"""Control flow on eight cores, in timing-only runs, and loops that never end.

Usage: control_flow_test.py --bin DIR [--only SUBSTRING]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import case_runner
import distances
import jax_reference as reference

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

CORES = 8


def _sharded(function: Callable, outputs: object, *inputs: object) -> Callable:
    """A shard_map over all cores with the given input and output specs."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:CORES]), ("data",))
    return jax.shard_map(function, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False)


def _within(l2: float) -> Callable:
    """Every result within a relative L2 distance."""
    return lambda _, ours, theirs: distances.difference(ours, theirs, l2=l2)


def _train(w: jax.Array, x: jax.Array, y: jax.Array) -> tuple:
    """Six steps of data-parallel momentum SGD in one program: a scan with an all_reduce in its body."""
    def step(state, batch):
        w, m = state
        a, b = batch
        loss, g = jax.value_and_grad(lambda p: jnp.mean((jnp.tanh(a @ p) - b) ** 2))(w)
        g, loss = lax.pmean(g, "data"), lax.pmean(loss, "data")
        m = 0.9 * m + g
        return (w - 0.1 * m, m), loss

    (w, _), losses = lax.scan(step, (w, jnp.zeros_like(w)), (x, y))
    return w, losses


def _until_small(x: jax.Array) -> tuple:
    """Halves everything until the sum over all cores is small; the condition needs the sum."""
    def body(state):
        v, _, n = state
        v = v * 0.5
        return v, lax.psum(jnp.sum(jnp.abs(v)), "data"), n + 1

    return lax.while_loop(lambda s: s[1] > 5.0, body, (x, jnp.float32(1e9), jnp.int32(0)))


def _own_way(x: jax.Array) -> jax.Array:
    """Every core runs as many iterations as its number, and then its own branch."""
    i = lax.axis_index("data")
    x = lax.fori_loop(0, i, lambda k, v: v + 1.0, x)
    x = lax.switch(i, [lambda v: v, lambda v: v * 2, lambda v: -v], x)
    return x + lax.psum(x, "data")


def _by_stage(x: jax.Array) -> jax.Array:
    """Conditions made of the place along one axis, around sums over the other."""
    stage, part = lax.axis_index("stage"), lax.axis_index("part")
    x = lax.cond(stage > 1, lambda v: lax.psum(v, "part"), lambda v: v * 2, x)
    return lax.fori_loop(0, part + 1, lambda i, v: v + lax.psum(v, "stage"), x)


def eight_cores(bins: Path, folder: Path) -> str | None:
    """Training loops and conditions over all cores, against JAX, under the checker."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(12, 5)).astype(np.float32)
    x, y = rng.normal(size=(6, 32, 12)).astype(np.float32), rng.normal(size=(6, 32, 5)).astype(np.float32)
    wide = rng.normal(size=(16, 40)).astype(np.float32)
    stages = jax.sharding.Mesh(np.array(jax.devices()[:CORES]).reshape(4, 2), ("stage", "part"))
    rows = P(("stage", "part"))
    cases = {
        "train": (_sharded(_train, (P(), P()), P(), P(None, "data"), P(None, "data")), (w, x, y), 1e-5),
        "until_small": (_sharded(_until_small, (P("data"), P(), P()), P("data")), (wide,), 1e-5),
        "own_way": (_sharded(_own_way, P("data"), P("data")), (wide,), 1e-6),
        "by_stage": (jax.shard_map(_by_stage, mesh=stages, in_specs=rows, out_specs=rows, check_vma=False), (wide,),
                     1e-6),
    }
    for name, (function, inputs, limit) in cases.items():
        failure = case_runner.against_jax(case_runner.export(function, inputs), inputs, bins, folder / name,
                                          ["--check"], True, _within(limit))
        if failure:
            return f"{name}: {failure}"
    return None


def _compile(bins: Path, folder: Path, function: Callable, inputs: tuple,
             *options: str) -> subprocess.CompletedProcess:
    (folder / "p.mlirbc").write_bytes(case_runner.export(function, inputs).mlir_module_serialized)
    command = [str(bins / "tpuc"), str(folder / "p.mlirbc"), "-o", str(folder / "p.tpuexe"), "-v", *options]
    return subprocess.run(command,
                          capture_output=True, text=True, check=False, timeout=60)


def _run(bins: Path, folder: Path, inputs: tuple, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run([str(bins / "tpuboard"), "run", str(folder / "p.tpuexe"),
                           *reference.save_inputs(folder, [np.asarray(x) for x in inputs]), *options],
                          capture_output=True, text=True, check=False, timeout=120)


def _line(word: str) -> str:
    """File and line of this file's line that holds `word` (not this call)."""
    lines = Path(__file__).read_text().splitlines()
    return f"{Path(__file__).name}:{next(i for i, text in enumerate(lines, 1) if word in text)}"


VECTOR = np.arange(1, 9, dtype=np.float32)


def refused(bins: Path, folder: Path) -> str | None:
    """A collective under a condition that differs between cores: the op and its line."""
    function = _sharded(lambda x: lax.cond(jnp.sum(x) > 3, lambda v: lax.psum(v, "data"), lambda v: v, x),  # psum-line
                        P("data"), P("data"))
    done = _compile(bins, folder, function, (np.ones((8, 4), np.float32),))
    words = ("same on all cores", "all_reduce", _line("# psum-line"))
    missing = [word for word in words if word not in done.stderr]
    return f"exit {done.returncode}, {missing} not in: {done.stderr}" if done.returncode != 1 or missing else None


def pair_in_a_branch(bins: Path, folder: Path) -> str | None:
    """Two cores alone take a branch in which one sends to the other: nobody else is waited for."""
    def body(x):
        i = lax.axis_index("data")
        return lax.cond((i == 0) | (i == 3), lambda v: lax.ppermute(v, "data", [(0, 3)]), lambda v: v * 2, x)

    x = np.arange(1, 9, dtype=np.float32)
    done = _compile(bins, folder, _sharded(body, P("data"), P("data")), (x,))
    if done.returncode != 0:
        return done.stderr
    done = _run(bins, folder, (x,), "--check", "--out-dir", str(folder))
    if done.returncode != 0:
        return done.stdout + done.stderr
    out, want = np.load(folder / "0.npy"), 2 * x
    want[0], want[3] = 0, x[0]
    return None if np.array_equal(out, want) else f"{out} is not {want}"


def endless(bins: Path, folder: Path) -> str | None:
    """A loop that never ends: a fault with its line and the iteration; the limit comes from the board."""
    def loop(x):
        return lax.while_loop(lambda s: jnp.sum(s) > -1, lambda s: s * 0.5, x)  # endless-line

    done = _compile(bins, folder, loop, (VECTOR,))
    if done.returncode != 0:
        return done.stderr
    done = _run(bins, folder, (VECTOR,), "--set", "mgmt.watchdog_us=50")
    words = ("WATCHDOG", "does not end", "iteration", _line("# endless-line"))
    missing = [word for word in words if word not in done.stderr + done.stdout]
    failed = done.returncode == 0 or missing
    return f"exit {done.returncode}, {missing} not in: {done.stdout}{done.stderr}" if failed else None


def _language_model(table: jax.Array, out: jax.Array, tokens: jax.Array) -> tuple:
    """A training step: embedding, one layer, cross entropy of the next token. The table's gradient is a scatter."""
    def loss(table, out):
        logits = jnp.tanh(table[tokens[:, :-1]]) @ out
        chosen = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)

    value, (g, h) = jax.value_and_grad(loss, argnums=(0, 1))(table, out)
    return table - 0.1 * g, out - 0.1 * h, value


def timing_only(bins: Path, folder: Path) -> str | None:
    """Without data: what data only place or choose takes the same cycles; loops and branches on them are errors."""
    rng = np.random.default_rng(3)

    def counted(x):
        return lax.fori_loop(0, 5, lambda i, c: lax.dynamic_update_index_in_dim(
            c, c[i] + i.astype(jnp.float32), (i + 3) % 8, 0), x)

    model = (rng.normal(size=(300, 64)).astype(np.float32), rng.normal(size=(64, 300)).astype(np.float32),
             rng.integers(0, 300, (8, 17)).astype(np.int32))
    timed = {
        "counted": (counted, (np.ones((8, 30), np.float32),)),
        "index": (lambda x, i: lax.dynamic_slice(x, (i,), (2,)), (VECTOR, np.asarray(1, np.int32))),
        "language_model": (_language_model, model),
    }
    by_data = {
        "while": (lambda x: lax.while_loop(lambda s: jnp.sum(s) > 1, lambda s: s * 0.5, x), (VECTOR,)),  # while-line
        "cond": (lambda x: lax.cond(x[0] > 0, lambda v: v, lambda v: -v, x), (VECTOR,)),  # cond-line
    }
    for name, (function, inputs) in timed.items():
        cycles = []
        done = _compile(bins, folder, function, inputs)
        if done.returncode != 0:
            return f"{name}: {done.stderr}"
        for option in ("--check", "--no-data"):
            done = _run(bins, folder, inputs, option, "--json", str(folder / "run.json"))
            if done.returncode != 0:
                return f"{name} {option}: {done.stdout}{done.stderr}"
            cycles.append(json.loads((folder / "run.json").read_text())["sim_cycles"])
        if cycles[0] != cycles[1]:
            return f"{name}: {cycles[0]} cycles with data, {cycles[1]} without"
    for name, (function, inputs) in by_data.items():
        done = _compile(bins, folder, function, inputs)
        done = _run(bins, folder, inputs, "--no-data") if done.returncode == 0 else done
        words = ("NO_DATA", "depends on data", "--no-data", _line(f"# {name}-line"))
        missing = [word for word in words if word not in done.stderr + done.stdout]
        if done.returncode == 0 or missing:
            return f"{name}: exit {done.returncode}, {missing} not in: {done.stdout}{done.stderr}"
    return None


def embedding_gradient(bins: Path, folder: Path) -> str | None:
    """The same step with data, against JAX: rows that many tokens share."""
    rng = np.random.default_rng(4)
    tokens = rng.integers(0, 6, (8, 17)).astype(np.int32)
    tokens[2, 3:5] = (299, -1)
    inputs = (rng.normal(size=(300, 64)).astype(np.float32), rng.normal(size=(64, 300)).astype(np.float32), tokens)
    return case_runner.against_jax(case_runner.export(_language_model, inputs), inputs, bins, folder, ["--check"], True,
                                   _within(1e-5))


def tight(bins: Path, folder: Path) -> str | None:
    """A loop whose kernels do not fit beside its carried values, were all of them kept in VMEM, nor in one piece."""
    def loop(*state):
        def body(_, state):
            p, q, r = state
            return q, jax.nn.softmax(p * q, axis=0) + jnp.cumsum(r, axis=0), p - r
        return lax.fori_loop(0, 3, body, state)

    rng = np.random.default_rng(5)
    inputs = tuple(rng.normal(size=(64, 16)).astype(np.float32) for _ in range(3))
    small = ("--set", "core.vmem_kib=16")
    done = _compile(bins, folder, loop, inputs, *small)
    if done.returncode == 0:
        done = _run(bins, folder, inputs, *small, "--check", "--out-dir", str(folder))
    if done.returncode != 0:
        return done.stdout + done.stderr
    for index, theirs in enumerate(reference.run(case_runner.export(loop, inputs), list(inputs), False)):
        problem = distances.difference(np.load(folder / f"{index}.npy"), theirs, l2=1e-5)
        if problem:
            return f"result {index}: {problem}"
    return None


TESTS = (eight_cores, tight, refused, pair_in_a_branch, endless, timing_only, embedding_gradient)

if __name__ == "__main__":
    sys.exit(case_runner.run_all(TESTS, case_runner.parser(__doc__).parse_args(),
                                 lambda test, tools, folder: test(tools, folder), attrgetter("__name__")))
