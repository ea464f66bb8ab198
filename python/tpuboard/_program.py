"""Programs without JAX: compile or read them, load them on cores, run them on NumPy arrays."""

from __future__ import annotations

import atexit
import ctypes as c
import itertools
import os
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ._errors import TpuError
from ._files import write_file
from ._library import (
    CALLBACK,
    ArrayInfo,
    CompileOptions,
    HostArray,
    ParameterStruct,
    ProgramInfo,
    RunOptions,
    load,
    sized,
)
from ._types import board_dtype, numpy_dtype

_UPDATE_SHARDING = {"auto": 0, "off": 1, "on": 2}


class _Handle:
    """Owns a handle of the C interface; ends it with the object."""

    _kind = ""

    def __init__(self, handle: c.c_void_p) -> None:
        self._handle = handle
        weakref.finalize(self, getattr(load(), f"tpu_{self._kind}_destroy"), handle)


@dataclass(frozen=True)
class Parameter:
    """An argument or result of a program."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    local_shape: tuple[int, ...]
    """Of the box that each core holds."""
    offsets: tuple[tuple[int, ...], ...]
    """By core of the program: where its box begins in the global array."""
    replicated: bool
    """Every core has the whole array."""
    donated_to: int | None
    """Arguments: the result that takes over the memory."""


class Event(_Handle):
    """The future of work on the board."""

    _kind = "event"

    def ready(self) -> bool:
        """True when the work is over, well or badly. Never blocks."""
        return bool(load().tpu_event_ready(self._handle))

    def wait(self, timeout: float | None = None) -> None:
        """Waits, at most `timeout` wall-clock seconds (TpuError, code Timeout). Raises the failure of the work."""
        load().tpu_event_wait(self._handle, -1 if timeout is None else int(timeout * 1e9))

    def on_ready(self, callback: Callable[[TpuError | None], None]) -> None:
        """Calls `callback(None)` or `callback(error)` once, perhaps on another thread. It must not wait.

        The interpreter waits at its end for callbacks that are still to come.
        """

        key = next(_keys)
        _callbacks[key] = callback
        try:
            load().tpu_event_on_ready(self._handle, _call, key)
        except TpuError:
            del _callbacks[key]
            raise


# What is still to be called. One function for all, so that none ends while it is being called.
_callbacks: dict[int, Callable[[TpuError | None], None]] = {}
_keys = itertools.count(1)


def _call_back(key: int, status: int, message: bytes) -> None:
    try:
        _callbacks[key](None if status == 0 else TpuError(load().tpu_status_name(status).decode(), message.decode()))
    except Exception:
        traceback.print_exc()  # nobody is there to catch it
    finally:
        del _callbacks[key]  # the last thing, see below


_call = CALLBACK(_call_back)


@atexit.register
def _wait_for_callbacks() -> None:
    # A thread that enters an interpreter which has ended is taken down, and the process with it.
    while _callbacks:
        time.sleep(1e-3)


os.register_at_fork(after_in_child=_callbacks.clear)  # the board's threads stay with the parent


class Array(_Handle):
    """An array in the memory of one core or of several. `numpy.asarray(array)` copies it to the host."""

    _kind = "array"

    def __init__(self, handle: c.c_void_p) -> None:
        super().__init__(handle)
        info = self._info()
        self.dtype = numpy_dtype(info.dtype)
        self.shape: tuple[int, ...] = tuple(info.shape[:info.rank])
        """Of the global array."""
        self.local_shape: tuple[int, ...] = tuple(info.local_shape[:info.rank])
        """Of each core's part."""
        self.devices: list[int] = [load().tpu_array_device(handle, part) for part in range(info.part_count)]
        """Cores that hold a part of it, or all."""

    def _info(self) -> ArrayInfo:
        info: ArrayInfo = sized(ArrayInfo)
        load().tpu_get_array_info(self._handle, c.byref(info))
        return info

    def __repr__(self) -> str:
        return f"<tpuboard.Array {self.dtype.name}{list(self.shape)} on {self.devices}>"

    @property
    def live(self) -> bool:
        """False after it was donated or discarded, or lost by a fault."""
        return bool(self._info().live)

    def numpy(self) -> npt.NDArray[Any]:
        """Waits, and copies to the host."""
        made = np.empty(self.shape, self.dtype)
        load().tpu_array_read(self._handle, made.ctypes.data, made.nbytes)
        return made

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("copy=False: an array of the board can only be read by a copy")
        made = self.numpy()
        return made if dtype is None else made.astype(dtype, copy=False)

    def discard(self) -> None:
        """Gives the board's memory back, now or when work in flight with it is over."""
        load().tpu_array_discard(self._handle)


class Executable(_Handle):
    """A program on a group of cores."""

    _kind = "executable"

    def __init__(self, handle: c.c_void_p, program: Program) -> None:
        super().__init__(handle)
        self.program = program

    def put(self, index: int, value: npt.ArrayLike) -> Array:
        """Uploads a global array as argument `index` wants it: to all cores of the program, whole or cut."""
        parameters = self.program.arguments
        if not 0 <= index < len(parameters):
            raise TpuError("InvalidArgument", f"there is no argument {index}; the program has {len(parameters)}")
        host = np.asarray(value)
        if host.dtype != parameters[index].dtype and not isinstance(value, np.ndarray | np.generic):
            host = np.asarray(value, parameters[index].dtype)  # Python's numbers have no type of their own
        handle = c.c_void_p()
        load().tpu_executable_put(self._handle, index, c.byref(_host_view(host)), c.byref(handle))
        return Array(handle)

    def start(self, *arguments: Array | npt.ArrayLike, steps: int = 1, keep: Sequence[int] = (),
              after: Sequence[Event] = ()) -> tuple[list[Array], Event]:
        """Launches and returns at once: results as arrays of the board, and an event of the launch.

        Args:
            arguments: arrays of the board, or of the host, which are uploaded.
            steps: of one launch; more than one needs a program whose state is donated.
            keep: arguments that stay live although the program would take them over.
            after: events that the launch comes behind.
        """
        given = [value if isinstance(value, Array) else self.put(i, value) for i, value in enumerate(arguments)]
        options: RunOptions = sized(RunOptions)
        options.steps = steps
        options.keep = (c.c_uint32 * len(keep))(*keep)
        options.keep_count = len(keep)
        options.after = (c.c_void_p * len(after))(*(event._handle for event in after))
        options.after_count = len(after)
        results = (c.c_void_p * len(self.program.results))()
        done = c.c_void_p()
        load().tpu_run(self._handle, (c.c_void_p * len(given))(*(array._handle for array in given)), len(given),
                       c.byref(options), results, len(results), c.byref(done))
        return [Array(c.c_void_p(result)) for result in results], Event(done)

    def run(self, *arguments: Array | npt.ArrayLike, steps: int = 1,
            keep: Sequence[int] = ()) -> list[npt.NDArray[Any]]:
        """Runs to the end: NumPy arrays in and out. Arguments as of `start()`."""
        results, done = self.start(*arguments, steps=steps, keep=keep)
        done.wait()
        return [result.numpy() for result in results]

    def unload(self) -> None:
        """Gives the board's memory for code and constants back; the program cannot run there any more."""
        load().tpu_executable_unload(self._handle)


def _host_view(array: npt.NDArray[Any]) -> HostArray:
    """A view of the array, which must outlive it."""
    extent = c.c_int64 * array.ndim
    return HostArray(board_dtype(array.dtype), array.ndim, extent(*array.shape), extent(*array.strides),
                     array.ctypes.data)


class Program(_Handle):
    """A compiled program, on no core yet: made by `compile()` or `read()`."""

    _kind = "program"

    def __init__(self, handle: c.c_void_p) -> None:
        super().__init__(handle)
        info = sized(ProgramInfo)
        load().tpu_get_program_info(handle, c.byref(info))
        self.name: str = info.name.decode()
        self.partitions: int = info.partitions
        """Cores that run it together."""
        self.cores: list[int] = [load().tpu_program_core(handle, i) for i in range(info.partitions)]
        """For which it was compiled; a program of one core runs on any."""
        self.arguments = [self._parameter("argument", i) for i in range(info.argument_count)]
        self.results = [self._parameter("result", i) for i in range(info.result_count)]
        self.notes: list[str] = [load().tpu_program_note(handle, i).decode() for i in range(info.note_count)]
        """Remarks of the compiler."""
        figures = [name for name, kind in ProgramInfo._fields_ if kind is c.c_uint64]
        self.cost: dict[str, int] = {name: getattr(info, name) for name in figures}
        """What one core does in one step, and its memory: names as in struct tpu_program_info of tpu/tpu.h."""

    def __repr__(self) -> str:
        return f"<tpuboard.Program {self.name}, {self.partitions} cores>"

    def _parameter(self, what: str, index: int) -> Parameter:
        from_c: ParameterStruct = sized(ParameterStruct)
        getattr(load(), f"tpu_program_{what}")(self._handle, index, c.byref(from_c))
        rank = from_c.rank
        offsets = tuple(tuple(from_c.offsets[p * rank:(p + 1) * rank]) for p in range(self.partitions))
        return Parameter(from_c.name.decode(), numpy_dtype(from_c.dtype), tuple(from_c.shape[:rank]),
                         tuple(from_c.local_shape[:rank]), offsets, bool(from_c.replicated),
                         from_c.donated_to if from_c.donated_to >= 0 else None)

    def __bytes__(self) -> bytes:
        """The contents of a .tpuexe file."""
        data, size = c.c_void_p(), c.c_size_t()
        load().tpu_program_bytes(self._handle, c.byref(data), c.byref(size))
        return c.string_at(data, size.value)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a .tpuexe file, for `read()` and the command `tpuboard`."""
        write_file(path, bytes(self))

    def load(self, devices: Sequence[int] | None = None) -> Executable:
        """Loads it on `devices`, in the order of the program's cores (None: as it was compiled, `self.cores`)."""
        cores = [] if devices is None else list(devices)
        handle = c.c_void_p()
        load().tpu_load(self._handle, (c.c_int32 * len(cores))(*cores), len(cores), c.byref(handle))
        return Executable(handle, self)


def compile(artifact: bytes, *, name: str = "main",  # noqa: A001
            update_sharding: Literal["auto", "off", "on"] = "auto", cores: Sequence[int] = ()) -> Program:
    """Compiles a StableHLO portable artifact (`jax.export.export(..)(..).mlir_module_serialized`).

    Args:
        artifact: the bytes.
        name: of the program.
        cores: core on which each part of a program of several cores runs, in any order; none: 0, 1, ..
        update_sharding: whether each core updates only its part of replicated state (docs/operations.md).

    Raises:
        TpuError: Unimplemented names the operation that the compiler does not have, and its source line.
    """
    if update_sharding not in _UPDATE_SHARDING:
        raise ValueError(f"invalid update_sharding {update_sharding!r}: expected one of {', '.join(_UPDATE_SHARDING)}")
    options = sized(CompileOptions)
    options.name = name.encode()
    options.update_sharding = _UPDATE_SHARDING[update_sharding]
    options.cores = (c.c_int32 * len(cores))(*cores)
    options.core_count = len(cores)
    handle = c.c_void_p()
    load().tpu_compile(bytes(artifact), len(artifact), c.byref(options), c.byref(handle))
    return Program(handle)


def read(source: bytes | str | os.PathLike[str]) -> Program:
    """A program from a .tpuexe file, or from its bytes."""
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    handle = c.c_void_p()
    load().tpu_program_read(data, len(data), c.byref(handle))
    return Program(handle)
