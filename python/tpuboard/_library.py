"""The shared library and its C interface (tpu/tpu.h) as ctypes sees it. Structs and functions mirror the header."""

from __future__ import annotations

import ctypes as c
import functools
import os
from pathlib import Path
from typing import Any

from ._errors import TpuError

NAME = "libtpuboard_pjrt.so"


def library_path() -> Path:
    """The shared library: the one that TPU_LIBRARY_PATH gives to JAX, since both are to see one board, if it is such a
    library; else what was installed with the package."""
    named = Path(os.environ.get("TPU_LIBRARY_PATH", ""))
    return named if named.name == NAME else Path(__file__).parent / NAME


class BoardInfo(c.Structure):
    """tpu_board_info"""

    _fields_ = (("struct_size", c.c_size_t), ("name", c.c_char_p), ("device_count", c.c_uint32),
                ("counter_count", c.c_uint32), ("clock_hz", c.c_double), ("peak_flops_per_cycle", c.c_uint64))


class DeviceInfo(c.Structure):
    """tpu_device_info"""

    _fields_ = (("struct_size", c.c_size_t), ("chip", c.c_int32), ("core", c.c_int32), ("x", c.c_int32),
                ("y", c.c_int32), ("hbm_bytes", c.c_uint64), ("hbm_used", c.c_uint64), ("hbm_peak", c.c_uint64),
                ("hbm_free_part", c.c_uint64))


class ChecksInfo(c.Structure):
    """tpu_checks"""

    _fields_ = (("struct_size", c.c_size_t), ("lockstep_tiles", c.c_uint64), ("lockstep_mismatches", c.c_uint64),
                ("check_findings", c.c_uint64), ("lockstep_semaphores", c.c_uint64),
                ("lockstep_transfers", c.c_uint64))


class OpTimeStruct(c.Structure):
    """tpu_op_time"""

    _fields_ = (("struct_size", c.c_size_t), ("program", c.c_char_p), ("op", c.c_char_p), ("source", c.c_char_p),
                ("cycles", c.c_uint64), ("busy_cycles", c.c_uint64), ("commands", c.c_uint64))


class CompileOptions(c.Structure):
    """tpu_compile_options"""

    _fields_ = (("struct_size", c.c_size_t), ("name", c.c_char_p), ("update_sharding", c.c_int),
                ("cores", c.POINTER(c.c_int32)), ("core_count", c.c_size_t))


class ProgramInfo(c.Structure):
    """tpu_program_info"""

    _fields_ = (("struct_size", c.c_size_t), ("name", c.c_char_p), ("partitions", c.c_uint32),
                ("argument_count", c.c_uint32), ("result_count", c.c_uint32), ("note_count", c.c_uint32),
                ("estimated_cycles", c.c_uint64), ("matmul_flops", c.c_uint64), ("vector_ops", c.c_uint64),
                ("hbm_read_bytes", c.c_uint64), ("hbm_written_bytes", c.c_uint64), ("link_bytes", c.c_uint64),
                ("vmem_peak_bytes", c.c_uint64), ("hbm_bytes", c.c_uint64))


class ParameterStruct(c.Structure):
    """tpu_parameter"""

    _fields_ = (("struct_size", c.c_size_t), ("name", c.c_char_p), ("dtype", c.c_int), ("donated_to", c.c_int32),
                ("rank", c.c_size_t), ("shape", c.POINTER(c.c_int64)), ("local_shape", c.POINTER(c.c_int64)),
                ("offsets", c.POINTER(c.c_int64)), ("replicated", c.c_int32))


class HostArray(c.Structure):
    """tpu_host_array"""

    _fields_ = (("dtype", c.c_int), ("rank", c.c_size_t), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("data", c.c_void_p))


class ArrayInfo(c.Structure):
    """tpu_array_info"""

    _fields_ = (("struct_size", c.c_size_t), ("dtype", c.c_int), ("part_count", c.c_uint32), ("rank", c.c_size_t),
                ("shape", c.POINTER(c.c_int64)), ("local_shape", c.POINTER(c.c_int64)), ("bytes", c.c_uint64),
                ("live", c.c_int32))


class RunOptions(c.Structure):
    """tpu_run_options"""

    _fields_ = (("struct_size", c.c_size_t), ("steps", c.c_uint32), ("keep", c.POINTER(c.c_uint32)),
                ("keep_count", c.c_size_t), ("after", c.POINTER(c.c_void_p)), ("after_count", c.c_size_t))


# tpu_event_callback
CALLBACK = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)

_handle, _out, _size, _u32, _i32, _i64 = c.c_void_p, c.POINTER(c.c_void_p), c.c_size_t, c.c_uint32, c.c_int32, c.c_int64
_u64_out = c.POINTER(c.c_uint64)
_struct = c.c_void_p  # by byref(); each call is given the struct of its name

# Calls that return a tpu_status, with their arguments.
_CALLS: dict[str, list[Any]] = {
    "tpu_board_open": [],
    "tpu_get_board_info": [_struct],
    "tpu_get_device_info": [_i32, _struct],
    "tpu_board_now": [_u64_out],
    "tpu_board_synchronize": [_i64],
    "tpu_board_counters": [_u64_out, _size, _u64_out, _struct],
    "tpu_board_change": [c.POINTER(c.c_char_p), c.POINTER(c.c_char_p), _size],
    "tpu_board_op_times": [_out],
    "tpu_op_times_get": [_handle, _u32, _struct],
    "tpu_write_report": [c.c_char_p, c.c_char_p, _u32],
    "tpu_compile": [c.c_char_p, _size, _struct, _out],
    "tpu_program_read": [c.c_char_p, _size, _out],
    "tpu_program_bytes": [_handle, _out, c.POINTER(_size)],
    "tpu_get_program_info": [_handle, _struct],
    "tpu_program_argument": [_handle, _u32, _struct],
    "tpu_program_result": [_handle, _u32, _struct],
    "tpu_event_wait": [_handle, _i64],
    "tpu_event_on_ready": [_handle, CALLBACK, _handle],
    "tpu_array_put": [_i32, _struct, _out],
    "tpu_get_array_info": [_handle, _struct],
    "tpu_array_read": [_handle, _handle, _size],
    "tpu_array_read_async": [_handle, _handle, _size, _out],
    "tpu_array_discard": [_handle],
    "tpu_load": [_handle, c.POINTER(_i32), _size, _out],
    "tpu_executable_put": [_handle, _u32, _struct, _out],
    "tpu_run": [_handle, _out, _size, _struct, _out, _size, _out],
    "tpu_executable_unload": [_handle],
}
# All others: what they return, and their arguments.
_OTHERS: dict[str, tuple[Any, list[Any]]] = {
    "tpu_version": (c.c_char_p, []),
    "tpu_status_name": (c.c_char_p, [c.c_int]),
    "tpu_error_message": (c.c_char_p, []),
    "tpu_board_is_open": (c.c_int, []),
    "tpu_counter_name": (c.c_char_p, [_u32]),
    "tpu_op_times_count": (_u32, [_handle]),
    "tpu_op_times_destroy": (None, [_handle]),
    "tpu_program_core": (_i32, [_handle, _u32]),
    "tpu_program_note": (c.c_char_p, [_handle, _u32]),
    "tpu_program_destroy": (None, [_handle]),
    "tpu_event_ready": (c.c_int, [_handle]),
    "tpu_event_destroy": (None, [_handle]),
    "tpu_array_device": (_i32, [_handle, _u32]),
    "tpu_array_destroy": (None, [_handle]),
    "tpu_executable_destroy": (None, [_handle]),
}


def _raise_failure(status: int, _function: object, _arguments: object) -> int:
    if status != 0:
        library = load()
        raise TpuError(library.tpu_status_name(status).decode(), library.tpu_error_message().decode())
    return status


@functools.cache
def load() -> Any:
    """The library; calls that fail raise TpuError."""
    path = library_path()
    if not path.exists():
        raise ImportError(f"{path}: no such file; install the package (pip install . in the repository), or set the "
                          f"environment variable TPU_LIBRARY_PATH to a built {NAME}")
    library = c.CDLL(str(path))
    for name, arguments in _CALLS.items():
        function = _function(library, name, path)
        function.argtypes, function.restype, function.errcheck = arguments, c.c_int, _raise_failure
    for name, (result, arguments) in _OTHERS.items():
        function = _function(library, name, path)
        function.argtypes, function.restype = arguments, result
    return library


def _function(library: Any, name: str, path: Path) -> Any:
    try:
        return getattr(library, name)
    except AttributeError:
        raise ImportError(f"{path} is not the library of this package: it has no function {name}; unset "
                          f"TPU_LIBRARY_PATH, or let it name a {NAME} of the same version") from None


def sized(kind: type[Any]) -> Any:
    """A struct whose `struct_size` is set."""
    made = kind()
    made.struct_size = c.sizeof(kind)
    return made


@functools.cache
def version() -> str:
    """Version of the library."""
    text: bytes = load().tpu_version()
    return text.decode()
