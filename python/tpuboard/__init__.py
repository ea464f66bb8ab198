"""tpuboard: a virtual Cloud TPU v3-8 board in this process.

Once the package is installed, JAX sees the board as eight TPU devices; nothing needs to be imported for that. This
module is for looking at the board, and for running programs on it without JAX::

    import tpuboard

    with tpuboard.measure():           # prints simulated time, MXU %, idle %, wall-clock time
        train_step(state, batch)

    program = tpuboard.compile(artifact)          # bytes of jax.export's mlir_module_serialized
    (y,) = program.load(devices=[3]).run(x, w)    # NumPy arrays in and out

docs/jax.md and docs/package.md tell more. A page that is named so is in docs/ of the source tree, and in the site of
the documentation as jax.html.
"""

from . import _host

_host.check()

from ._board import Board, Checks, Counters, Device, OpTime, board, configure, op_table  # noqa: E402
from ._errors import TpuError  # noqa: E402
from ._library import library_path, version  # noqa: E402
from ._measure import Measurement, measure  # noqa: E402
from ._program import Array, Event, Executable, Parameter, Program, compile, read  # noqa: A004, E402

__all__ = [
    "Array",
    "Board",
    "Checks",
    "Counters",
    "Device",
    "Event",
    "Executable",
    "Measurement",
    "OpTime",
    "Parameter",
    "Program",
    "TpuError",
    "board",
    "compile",
    "configure",
    "library_path",
    "measure",
    "op_table",
    "read",
    "version",
]


def __getattr__(name: str) -> str:
    """The version is that of the library, which is not loaded before it is used: PyTorch/XLA imports the package to
    find out whether it is meant."""
    if name == "__version__":
        return version()
    raise AttributeError(f"module 'tpuboard' has no attribute '{name}'")
