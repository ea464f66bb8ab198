"""The board of this process: what it is, its clock, its counters, and the options with which it is opened."""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ._errors import TpuError
from ._library import BoardInfo, ChecksInfo, DeviceInfo, load, sized


@dataclass(frozen=True)
class Device:
    """A core of the board; `hbm_*` in bytes."""

    id: int
    chip: int
    core: int
    coords: tuple[int, int]
    hbm_bytes: int
    hbm_used: int
    hbm_peak: int


@dataclass(frozen=True)
class Checks:
    """What lockstep with the Verilog and the checker of accesses found so far."""

    lockstep_tiles: int
    lockstep_mismatches: int
    check_findings: int


@dataclass(frozen=True)
class Counters:
    """One snapshot of the performance counters; meanings: docs/registers.md, block perf."""

    cycles: int
    """Board time of the snapshot."""
    cores: tuple[Mapping[str, int], ...]
    """By device: name of the counter to its value since the board was opened."""
    checks: Checks

    def total(self, name: str) -> int:
        """Sum of a counter over all cores."""
        return sum(core[name] for core in self.cores)


class Board:
    """The board of this process, shared with JAX. Get it by `tpuboard.board()`."""

    def __init__(self) -> None:
        info = sized(BoardInfo)
        load().tpu_get_board_info(c.byref(info))
        self.name: str = info.name.decode()
        """Of the board file: `v3_8`."""
        self.clock_hz: float = info.clock_hz
        """Core cycles a second."""
        self.peak_flops_per_cycle: int = info.peak_flops_per_cycle
        """Matmul operations of one core."""
        self._device_count: int = info.device_count
        self._counter_names = [load().tpu_counter_name(i).decode() for i in range(info.counter_count)]

    def __repr__(self) -> str:
        return f"<tpuboard.Board {self.name}, {self._device_count} cores>"

    @property
    def devices(self) -> list[Device]:
        """All cores, with the present use of their memory."""
        return [self._device(i) for i in range(self._device_count)]

    def _device(self, index: int) -> Device:
        info = sized(DeviceInfo)
        load().tpu_get_device_info(index, c.byref(info))
        return Device(index, info.chip, info.core, (info.x, info.y), info.hbm_bytes, info.hbm_used, info.hbm_peak)

    @property
    def cycles(self) -> int:
        """Simulated time so far, in core cycles."""
        cycles = c.c_uint64()
        load().tpu_board_now(c.byref(cycles))
        return cycles.value

    @property
    def seconds(self) -> float:
        """Simulated time so far."""
        return self.cycles / self.clock_hz

    def synchronize(self, timeout: float | None = None) -> None:
        """Waits until all submitted work is over, JAX's too; at most `timeout` seconds of host time (code Timeout)."""
        load().tpu_board_synchronize(-1 if timeout is None else int(timeout * 1e9))

    def counters(self) -> Counters:
        """All counters of all cores at one cycle. Taking them costs some board time."""
        count = len(self._counter_names)
        values = (c.c_uint64 * (count * self._device_count))()
        cycles = c.c_uint64()
        checks = sized(ChecksInfo)
        load().tpu_board_counters(values, len(values), c.byref(cycles), c.byref(checks))
        cores = tuple(dict(zip(self._counter_names, values[i * count:(i + 1) * count], strict=True))
                      for i in range(self._device_count))
        return Counters(cycles.value, cores,
                        Checks(checks.lockstep_tiles, checks.lockstep_mismatches, checks.check_findings))

    @property
    def file(self) -> str:
        """Preset or board file that it was opened from."""
        return os.environ.get("TPUBOARD_BOARD", "v3_8")

    @property
    def waves(self) -> str | None:
        """Waveform file of the board's signals; chosen by `tpuboard.configure(waves=..)` before the board opens."""
        return os.environ.get("TPUBOARD_WAVES") or None

    @property
    def lockstep(self) -> str | None:
        """Which matrix units run as Verilog or beside it; chosen by `tpuboard.configure(mxu=..)`, as above."""
        return os.environ.get("TPUBOARD_MXU") or None


def board() -> Board:
    """The board; opens it if neither this package nor JAX has done so."""
    return Board()


def configure(
    *,
    file: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, object] | None = None,
    mxu: Mapping[str, str] | None = None,
    waves: str | os.PathLike[str] | None = None,
    waves_steps: str | None = None,
    trace: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    check: bool | None = None,
) -> None:
    """Chooses how the board of this process is opened; before the first use of JAX or `tpuboard.board()`.

    Sets the environment variables TPUBOARD_* of docs/jax.md, which say the same to programs that cannot be changed.

    Args:
        file: preset (`v3_8`) or board file.
        overrides: board numbers, as `{"hbm.gbps_per_chip": 450}`.
        mxu: engine of matrix units by path: `{"board.chip0.core0.mxu0": "lockstep:1/1000"}`.
        waves: FST file for the board's signals; `waves_steps` chooses the steps (`"2..5"`).
        trace: text file with a line for each command, which `sim_scripts/timeline.py` draws.
        threads: host threads that do data work.
        check: look for accesses of core programs that nothing orders.

    Raises:
        TpuError: FailedPrecondition when the board is open: its simulation cannot change any more.
    """
    if load().tpu_board_is_open():
        raise TpuError("FailedPrecondition",
                       "the board is open, and its options are fixed for the rest of the process: call "
                       "tpuboard.configure() before the first use of JAX, or set the environment variables TPUBOARD_*")
    values: dict[str, str | None] = {
        "BOARD": _path(file),
        "SET": _pairs(overrides),
        "MXU": _pairs(mxu),
        "WAVES": _path(waves),
        "WAVES_STEPS": waves_steps,
        "TRACE": _path(trace),
        "THREADS": None if threads is None else str(threads),
        "CHECK": None if check is None else str(int(check)),
    }
    for name, value in values.items():
        if value is not None:
            os.environ[f"TPUBOARD_{name}"] = value


def _path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else str(Path(path))


def _pairs(pairs: Mapping[str, object] | None) -> str | None:
    return None if pairs is None else ";".join(f"{key}={value}" for key, value in pairs.items())
