"""JAX on the plugin with each of its functions missing in turn: no hang, no crash but by JAX's own checks.

Frameworks call what they find, and a function that the plugin lacks says UNIMPLEMENTED. Many of those that it has are
of no need to JAX: without them its programs must run as before. TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable
from jax.sharding import Mesh, PartitionSpec as P

ABI = Path(__file__).resolve().parents[2] / "pjrt_plugin" / "pjrt_abi.h"
LIMIT = 60.0  # seconds for one process
# Words of wrong results, and of aborts that are not jaxlib's.
OURS = ("AssertionError", "terminate called", "pure virtual", "free():", "double free", "corrupt")

# jaxlib crashes by itself: it asks the first for the code of the first's own error, without end, and its serialize
# looks at the program that the second did not give.
JAXLIB_ENDS_WITHOUT = ("PJRT_Error_GetCode", "PJRT_Executable_OptimizedProgram")


def program() -> None:
    """A little of everything: transfers, a donating step, a sum over the cores, getters, a stored executable."""
    devices = np.array(jax.devices("tpu"))
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    step = jax.jit(lambda a, b: a * 2 + b, donate_argnums=0)
    state = jax.device_put(x)
    for _ in range(3):
        state = step(state, x)
    np.testing.assert_array_equal(np.asarray(state), x * 15)
    mesh = Mesh(devices, ("x",))
    total = jax.jit(jax.shard_map(lambda a: jax.lax.psum(a, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
    np.testing.assert_array_equal(np.asarray(total(x)), x.sum(0, keepdims=True))
    np.testing.assert_array_equal(np.asarray(jax.device_put(jax.device_put(x, devices[2]), devices[5])), x)
    state.delete()


def getters() -> None:
    """What a program that only computes does not ask for."""
    device = jax.devices("tpu")[0]
    compiled = jax.jit(lambda a: a + 1).lower(jnp.ones(4)).compile()
    x = jax.device_put(np.ones(4, np.float32))
    for call in (lambda: (str(device), repr(device), device.device_kind),
                 device.memory_stats, device.default_memory, compiled.cost_analysis, compiled.memory_analysis,
                 compiled.as_text,
                 lambda: serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))[0](x),
                 x.is_deleted, x.on_device_size_in_bytes, x.unsafe_buffer_pointer, x.block_until_ready):
        try:
            call()
        except Exception as error:  # noqa: BLE001
            print("refused:", str(error).splitlines()[0] if str(error) else repr(error))


def child(output: Path) -> None:
    """Runs in a process of its own; its exit code is 0 where the program computes what it must."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    code = 0
    try:
        program()
        getters()
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def outcome(slot: str, output: Path) -> int:
    """Exit status of a process whose plugin lacks `slot`; negative: the signal that ended it."""
    os.environ["SHIM_SLOT"] = slot
    pid = os.fork()
    if pid == 0:
        child(output)
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError(f"without {slot}: no end after {LIMIT} s\n{output.read_text(errors='replace')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shim", required=True, help="the library of slot_shim.cpp")
    shim = parser.parse_args().shim
    os.environ["SHIM_LIBRARY"] = os.environ["TPU_LIBRARY_PATH"]
    os.environ["TPU_LIBRARY_PATH"] = shim
    slots = re.findall(r"^  X\((\w+)\)", ABI.read_text(encoding="utf-8"), re.MULTILINE)
    for slot in JAXLIB_ENDS_WITHOUT:
        slots.remove(slot)
    assert len(slots) > 80, slots
    needless = []
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        assert outcome("", output) == 0, output.read_text(errors="replace")
        for slot in slots:
            status = outcome(slot, output)
            text = output.read_text(errors="replace")
            assert status in (0, 1, -signal.SIGABRT), f"without {slot}: exit status {status}\n{text}"
            assert not any(word in text for word in OURS), f"without {slot}: exit status {status}\n{text}"
            by_jaxlib = "is not supported" in text or "Check failed" in text
            assert status >= 0 or by_jaxlib, f"without {slot}: exit status {status}\n{text}"
            if status == 0:
                needless.append(slot)
            print(f"{status:4d} {slot}", flush=True)
    assert len(needless) >= 41, f"fewer functions than before are optional: {needless}"
    print(f"{len(slots)} functions, {len(needless)} of which JAX can do without")


if __name__ == "__main__":
    main()
