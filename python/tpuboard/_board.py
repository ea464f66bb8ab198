"""The board of this process: what it is, its clock, its counters, and the options with which it is opened."""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ._errors import TpuError
from ._library import BoardInfo, ChecksInfo, DeviceInfo, OpTimeStruct, load, sized


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
    """Of tiles, semaphores and transfers; failed assertions in the Verilog too."""
    check_findings: int
    lockstep_semaphores: int = 0
    """Values of semaphores that were compared."""
    lockstep_transfers: int = 0
    """Transfers of DMA queues that were compared."""


@dataclass(frozen=True)
class Counters:
    """One snapshot of the performance counters.

    Meanings: docs/registers.md, block perf. `time_compute`, `time_links`, `time_hbm`, `time_stalled`, `time_input` and
    `time_host` are cycles by what the core did, or waited for (docs/monitor.md, "Metrics").
    """

    cycles: int
    """Simulated time of the snapshot."""
    cores: tuple[Mapping[str, int], ...]
    """By device: name of the counter to its value since the board was opened."""
    checks: Checks

    def total(self, name: str) -> int:
        """Sum of a counter over all cores."""
        return sum(core[name] for core in self.cores)


@dataclass(frozen=True)
class OpTime:
    """Where cores spent the time of programs: one operation of one program, all cores and launches together.

    Each cycle of a program belongs to one operation: of those with commands under way, to that of the foremost engine
    (matrix units, vector unit, XLU, transfers to other cores, in, out). A transfer that arithmetic hides costs nothing.
    """

    program: str
    op: str
    """Name in the graph; empty: cycles in which no command was under way."""
    source: str
    """``file:line``; empty when unknown."""
    cycles: int
    """That belong to it; those of a program sum to its run time on all its cores."""
    busy_cycles: int
    """With a command of it under way, hidden ones too."""
    commands: int
    """That engines have done for it."""

    @property
    def place(self) -> tuple[str, str, str]:
        """Program, operation and source: one place of a program has one time."""
        return self.program, self.op, self.source


def op_table(times: Sequence[OpTime], rows: int = 10) -> str:
    """The `rows` operations with most cycles as lines of text: share of the time in which programs run (idle time is in
    no row), cycles, commands, operation, source line."""
    total = sum(time.cycles for time in times)
    lines = [f"{'share':>7} {'cycles':>12} {'commands':>9}  operation, source (share of the time that programs run)"]
    for time in sorted(times, key=lambda each: -each.cycles)[:rows]:
        name = time.op or "(no command under way)"
        lines.append(f"{100 * time.cycles / max(total, 1):5.1f} % {time.cycles:12,} {time.commands:9,}  "
                     f"{name}{', ' if time.source else ''}{time.source}")
    return "\n".join(lines)


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
        """Waits until all submitted work is over, JAX's too; at most `timeout` wall-clock seconds (code Timeout)."""
        load().tpu_board_synchronize(-1 if timeout is None else int(timeout * 1e9))

    def counters(self) -> Counters:
        """All counters of all cores at one cycle. Taking them costs some simulated time."""
        count = len(self._counter_names)
        values = (c.c_uint64 * (count * self._device_count))()
        cycles = c.c_uint64()
        checks = sized(ChecksInfo)
        load().tpu_board_counters(values, len(values), c.byref(cycles), c.byref(checks))
        cores = tuple(dict(zip(self._counter_names, values[i * count:(i + 1) * count], strict=True))
                      for i in range(self._device_count))
        return Counters(cycles.value, cores,
                        Checks(checks.lockstep_tiles, checks.lockstep_mismatches, checks.check_findings,
                               checks.lockstep_semaphores, checks.lockstep_transfers))

    def op_times(self) -> list[OpTime]:
        """What launches that are over spent, since `configure(op_times=True)`; `measure(ops=10)` prints it of a block.

        Operations of one program with the same name and source line are one.
        """
        handle = c.c_void_p()
        load().tpu_board_op_times(c.byref(handle))
        sums: dict[tuple[str, str, str], OpTime] = {}
        for index in range(load().tpu_op_times_count(handle)):
            time = self._op_time(handle, index)
            before = sums.get(time.place)
            sums[time.place] = time if before is None else replace(
                time, cycles=time.cycles + before.cycles, busy_cycles=time.busy_cycles + before.busy_cycles,
                commands=time.commands + before.commands)
        load().tpu_op_times_destroy(handle)
        return list(sums.values())

    @staticmethod
    def _op_time(handle: c.c_void_p, index: int) -> OpTime:
        time = sized(OpTimeStruct)
        load().tpu_op_times_get(handle, index, c.byref(time))
        return OpTime(time.program.decode(), time.op.decode(), time.source.decode(), time.cycles, time.busy_cycles,
                      time.commands)

    @property
    def file(self) -> str:
        """Preset or board file that it was opened from."""
        return os.environ.get("TPUBOARD_BOARD", "v3_8")

    @property
    def waves(self) -> str | None:
        """Waveform file of the board's signals, chosen by `tpuboard.configure(waves=..)`."""
        return os.environ.get("TPUBOARD_WAVES") or None

    @property
    def lockstep(self) -> str | None:
        """Which matrix units run as Verilog or beside it, chosen by `tpuboard.configure(mxu=..)`."""
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
    waves_scope: Sequence[str] | None = None,
    waves_trigger: str | None = None,
    waves_for: str | None = None,
    waves_before: int | None = None,
    trace: str | os.PathLike[str] | None = None,
    timeline: str | os.PathLike[str] | None = None,
    timeline_steps: str | None = None,
    record: str | os.PathLike[str] | None = None,
    record_steps: str | None = None,
    op_times: bool | None = None,
    threads: int | None = None,
    check: bool | None = None,
) -> None:
    """Chooses how the board of this process is simulated. What is None stays as it is.

    Sets the environment variables TPUBOARD_* of docs/jax.md, which say the same to programs that cannot be changed.
    While the board is open `mxu`, `waves` with its window, `trace`, `timeline`, `timeline_steps`, `record`,
    `record_steps` and `op_times` can change: this waits then until all submitted work is over. All others are fixed by
    the first use of JAX or `tpuboard.board()`.

    Args:
        file: preset (`v3_8`) or board file.
        overrides: board numbers, as `{"hbm.gbps_per_chip": 450}`.
        mxu: engine of matrix units by path: `{"board.chip0.core0.mxu0": "lockstep:1/1000"}`; `{}`: all fast.
        waves: FST file for the board's signals; `""`: none. `waves_steps` chooses the steps (`"2..5"`, counted since
            the board was opened); without it, waves of an open board are of all steps until they are switched off.
            `waves_scope`: globs of the instances in it (`["board.chip0.core0"]`; `[]`: all). `waves_trigger` names the
            event that it begins with in place of steps (`"line=train.py:42"`, `"nan"`; docs/waves.md lists them),
            `waves_for` how long it goes on (`"5000cycles"`, `"3steps"`), `waves_before` how many cycles from before
            are in it; `""` and 0: none.
        trace: text file with a line for each command, which `python -m tpuboard.timeline` draws; `""`: none.
        timeline: Perfetto trace of all cores, for https://ui.perfetto.dev; `""`: none. `timeline_steps` chooses the
            steps; without it all are in it.
        record: file for the graph of the longest step, of which `tpuboard report` makes a page that says why it waits;
            `""`: none. `record_steps` chooses the steps of which it is the longest (`"5..5"`); without it all are. It
            is written after the last of them, when this is changed, or when the process ends.
        op_times: count where cores spend their time, from zero: `Board.op_times()`.
        threads: host threads that do data work.
        check: look for accesses of core programs that nothing orders.

    Raises:
        TpuError: FailedPrecondition for what an open board cannot change (`file`, `overrides`, `threads`, `check`);
            nothing has changed then. Also when waves, a
            trace, a record or lockstep that this ends were not complete or showed nothing; all is as it was asked for
            then.
    """
    values: dict[str, str | None] = {
        "BOARD": _path(file),
        "SET": _pairs(overrides),
        "MXU": _pairs(mxu),
        "WAVES": _path(waves),
        "WAVES_STEPS": waves_steps,
        "WAVES_SCOPE": None if waves_scope is None else ";".join(waves_scope),
        "WAVES_TRIGGER": waves_trigger,
        "WAVES_FOR": waves_for,
        "WAVES_BEFORE": None if waves_before is None else str(waves_before or ""),
        "TRACE": _path(trace),
        "TIMELINE": _path(timeline),
        "TIMELINE_STEPS": timeline_steps,
        "RECORD": _path(record),
        "RECORD_STEPS": record_steps,
        "OP_TIMES": None if op_times is None else str(int(op_times)),
        "THREADS": None if threads is None else str(threads),
        "CHECK": None if check is None else str(int(check)),
    }
    changes = {f"TPUBOARD_{name}": value for name, value in values.items() if value is not None}
    if load().tpu_board_is_open():
        if fixed := sorted(changes.keys() - _CHANGING):
            names = {"TPUBOARD_BOARD": "file", "TPUBOARD_SET": "overrides"}
            given = ", ".join(names.get(name, name.removeprefix("TPUBOARD_").lower()) for name in fixed)
            can = ", ".join(sorted(name.removeprefix("TPUBOARD_").lower() for name in _CHANGING))
            raise TpuError("FailedPrecondition",
                           f"configure({given}): {', '.join(fixed)} cannot change while the board is open; call it "
                           f"before JAX or tpuboard uses the board. Of an open board can change: {can}")
        text = c.c_char_p * len(changes)
        try:
            load().tpu_board_change(text(*(name.encode() for name in changes)),
                                    text(*(value.encode() for value in changes.values())), len(changes))
        except TpuError as error:
            if error.code == "FailedPrecondition" and _CHANGING.issuperset(changes):
                _set_variables(changes)  # what was ended was not complete; it has ended
            raise
    _set_variables(changes)


# What an open board can change.
_CHANGING = frozenset(f"TPUBOARD_{name}" for name in (
    "MXU", "TRACE", "WAVES", "WAVES_STEPS", "WAVES_SCOPE", "WAVES_TRIGGER", "WAVES_FOR", "WAVES_BEFORE", "TIMELINE",
    "TIMELINE_STEPS", "RECORD", "RECORD_STEPS", "OP_TIMES"))


def _set_variables(changes: Mapping[str, str]) -> None:
    for name, value in changes.items():
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


def _path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else str(path)


def _pairs(pairs: Mapping[str, object] | None) -> str | None:
    return None if pairs is None else ";".join(f"{key}={value}" for key, value in pairs.items())
