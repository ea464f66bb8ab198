"""Figures of a block of code: simulated time, use of the matrix units, idle cores, wall-clock time."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TextIO

from ._board import Board, Counters, OpTime, board, configure, op_table
from ._errors import TpuError
from ._library import load


class Measurement:
    """What happened on the board within a `with` block; made by `measure()`. Figures are there after the block.

    Definitions (docs/timing_model.md): `mxu` is the share of the peak matmul operations, 2*M*K*N without padding, that
    was done; `idle` the share of simulated time in which a core had no program running. Both are means over the cores
    that ran a program in the block (all cores if none did).
    """

    def __init__(self, name: str, output: TextIO | None, ops: int,
                 report: str | os.PathLike[str] | None = None) -> None:
        self.name = name
        self.cycles = 0
        """Simulated time in core cycles."""
        self.seconds = 0.0
        """Simulated time."""
        self.mxu = 0.0
        """Share of the peak matmul operations, 0 to 1."""
        self.idle = 0.0
        """Share of simulated time with no program running, 0 to 1."""
        self.idle_input: float | None = None
        """Of `idle`, the share in which input was prepared or on its way to the core; None: not known."""
        self.idle_host: float | None = None
        """Of `idle`, the rest: the host dispatched, or had submitted nothing. The two add up to `idle`."""
        self.host_seconds = 0.0
        """Wall-clock time of the block."""
        self.programs = 0
        """Programs that were run, counted once for each core."""
        self.cores: list[int] = []
        """Devices that ran one."""
        self.ops: list[OpTime] = []
        """Where the cores spent the time, with `ops=`."""
        self._rows = ops
        self._report = None if report is None else Path(report)
        self._record: Path | None = None
        self._switched = False
        self._ops_before: dict[tuple[str, str, str], OpTime] = {}
        self._output = output
        self._board: Board | None = None
        self._before: Counters | None = None
        self._start_cycles = 0
        self._start_host = 0.0

    def __enter__(self) -> Measurement:
        _end_lazy_step()
        self._board = board()
        self._board.synchronize()
        if self._report is not None:
            self._begin_record(self._report)
        if self._rows:
            self._switched = os.environ.get("TPUBOARD_OP_TIMES") != "1"
            if self._switched:
                configure(op_times=True)
            self._ops_before = {each.place: each for each in self._board.op_times()}
        self._before = self._board.counters()
        self._start_cycles = self._board.cycles
        self._start_host = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._close()
        finally:
            if self._switched:
                configure(op_times=False)
            if self._record is not None:
                self._end_record(failed=kind is not None)
        if kind is None and self._output is not None:
            print(self, file=self._output, flush=True)

    def _begin_record(self, page: Path) -> None:
        """What would fail at the end of the block fails here."""
        if "TPUBOARD_RECORD" in os.environ:
            raise ValueError(f"measure(report={str(page)!r}): TPUBOARD_RECORD is set, and the board records one step "
                             "at a time; unset it, or use `tpuboard report` on the file that it names")
        if not page.parent.is_dir() or not os.access(page if page.exists() else page.parent, os.W_OK):
            raise OSError(f"measure(report={str(page)!r}): the page cannot be written there; name a file in a folder "
                          "that exists and can be written")
        self._record = Path(tempfile.mkdtemp(prefix="tpuboard_")) / "step.tpurec"
        configure(record=self._record)

    def _end_record(self, *, failed: bool) -> None:
        """The page of the longest step; an error of the block goes before one of its record."""
        assert self._record is not None and self._report is not None
        try:
            configure(record="")
            if not failed:
                load().tpu_write_report(os.fsencode(self._record), os.fsencode(self._report), 10)
        except TpuError:
            if not failed:
                raise
        finally:
            shutil.rmtree(self._record.parent)

    def _close(self) -> None:
        """Work that the block has submitted and not waited for is part of it."""
        assert self._board is not None and self._before is not None
        _end_lazy_step()
        self._board.synchronize()
        self.host_seconds = time.perf_counter() - self._start_host
        self.cycles = self._board.cycles - self._start_cycles
        self.seconds = self.cycles / self._board.clock_hz
        before, after = self._before.cores, self._board.counters().cores
        if self._rows:
            grown_ops = (_since(each, self._ops_before.get(each.place)) for each in self._board.op_times())
            self.ops = [each for each in grown_ops if each.cycles > 0 or each.commands > 0]
        grown = [{name: now[name] - then[name] for name in now} for then, now in zip(before, after, strict=True)]
        self.programs = sum(core["programs"] for core in grown)
        self.cores = [device for device, core in enumerate(grown) if core["programs"] > 0]
        used = [grown[device] for device in self.cores] or grown
        core_cycles = self.cycles * len(used)
        if core_cycles > 0:
            self.mxu = sum(core["mxu_flops"] for core in used) / (core_cycles * self._board.peak_flops_per_cycle)
            self.idle = max(0.0, 1 - sum(core["run_cycles"] for core in used) / core_cycles)
            if any(core["time_compute"] or core["time_input"] or core["time_host"] for core in used):
                self.idle_input = min(self.idle, sum(core["time_input"] for core in used) / core_cycles)
                self.idle_host = self.idle - self.idle_input

    def __str__(self) -> str:
        where = f"{len(self.cores)} core{'' if len(self.cores) == 1 else 's'}"
        parts = (f" (input {self.idle_input * 100:.1f} %, host {self.idle_host * 100:.1f} %)"
                 if self.idle_input is not None and self.idle_host is not None else "")
        return (f"{self.name}: {self.seconds * 1e3:.3f} ms simulated on {where}, MXU {self.mxu * 100:.2f} %, "
                f"idle {self.idle * 100:.1f} %{parts}, wall clock {self.host_seconds:.2f} s"
                + (f"\n{op_table(self.ops, self._rows)}" if self.ops else ""))


def _end_lazy_step() -> None:
    """PyTorch/XLA collects operations until a step ends: what it has collected runs here."""
    torch_xla = sys.modules.get("torch_xla")
    if torch_xla is not None and torch_xla._XLAC._xla_runtime_is_initialized():
        torch_xla.sync(wait=True)
        torch_xla.core.xla_model.wait_device_ops()


def _since(now: OpTime, before: OpTime | None) -> OpTime:
    if before is None:
        return now
    return replace(now, cycles=now.cycles - before.cycles, busy_cycles=now.busy_cycles - before.busy_cycles,
                   commands=now.commands - before.commands)


def measure(name: str = "tpuboard", *, output: TextIO | None = sys.stdout, ops: int = 0,
            report: str | os.PathLike[str] | None = None) -> Measurement:
    """`with measure() as m:` prints the figures of the block (`output=None`: only keeps them in `m`).

    Idle time is printed with its parts: `input` (arrays on their way to the cores) and `host` (launches, or nothing to
    do).

    With `ops=10` also the ten operations of its programs that took most of the cores' time, with their source lines.

    With `report="page.html"` also a page that says why the longest step of the block waits, and what would shorten it
    (docs/report.md). A block in which no program runs to its end has none: TpuError FailedPrecondition.

    Work that is under way before the block is waited for first, and what the block has submitted is waited for at its
    end. Compiling costs wall-clock time, but no simulated time.
    """
    return Measurement(name, output, ops, report)
