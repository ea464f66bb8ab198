"""Waves of a training step, read back by a reader that is not ours.

At a thousand places chosen by a seed the signals of five queues say what the text trace, another view of the same
run, says, in numbers and in words. The save files name signals that are there and show all of the file's time.
Usage: waves_test.py --bin DIR [--seed N]
"""

import argparse
import random
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import pywellen

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples/mnist_convnet/train_step.mlirbc"
QUEUES = ["mxu0", "vpu", "xlu", "dma_in", "dma_out"]
SAMPLES = 200  # of each queue
CLOCK_MHZ = 940
WAVES_PIXELS = 1000  # that the waves have at least, in a window of the save files' size
TRANSLATED, ENUM, HEX, DECIMAL, CURVE = 1 << 13, 1 << 32, 1 << 1, 1 << 2, 1 << 15  # flags of rows


class Command:
    """A line of the trace: START DONE CORE QUEUE OPCODE op=N pc=N step=N free=N."""

    def __init__(self, line: str) -> None:
        words = line.split()
        self.start, self.done = int(words[0]), int(words[1])
        self.core, self.queue, self.opcode = int(words[2]), words[3], words[4]
        fields = dict(word.split("=") for word in words[5:])
        self.op, self.pc = int(fields["op"]), int(fields["pc"])


def traced(path: Path) -> dict[str, list[Command]]:
    """Commands of core 1 by queue, in the order of their starts."""
    queues: dict[str, list[Command]] = defaultdict(list)
    for line in path.read_text().splitlines():
        if " op=" in line and " mark " not in line:
            command = Command(line)
            if command.core == 1:
                queues[command.queue].append(command)
    return queues


def operations(listing: str) -> list[str]:
    """Of a program, by number: name, and source line without the folder."""
    found = re.findall(r"^op \d+: (.*) at (.*):(\d+):\d+$", listing, re.MULTILINE)
    return [f"{name} {file.rpartition('/')[2]}:{line}" if file else name for name, file, line in found]


def expected(commands: list[Command], cycle: int, ops: list[str]) -> dict[str, int | str | None]:
    """What the signals are at the end of `cycle`; None: the trace does not say."""
    started = [c for c in commands if c.start <= cycle]
    in_flight = sum(c.done > cycle for c in started)
    last = started[-1] if started else None
    return {
        "in_flight": in_flight,
        "busy": int(in_flight != 0),
        "op_id": last.op if last else 0,
        "pc": last.pc if last else 0,
        "opcode": last.opcode if last and in_flight else "-",
        "op": ops[last.op] if last and in_flight else None,
    }


def check_queue(waves: pywellen.Waveform, queue: str, commands: list[Command], ops: list[str],
                rng: random.Random) -> int:  # fmt: skip
    """Compares samples between the starts and ends of the commands; their number."""
    signals = {var.name: var for var in waves.all_vars() if var.full_name.startswith(f"board.chip0.core1.{queue}.")}
    opcodes = {int(bits, 2): name for bits, name in signals["opcode"].enum_type[1]}
    assert signals["state"].enum_type[0] == "queue_state"
    assert signals["op"].is_string
    edges = sorted({c.start for c in commands} | {c.done for c in commands})
    for _ in range(SAMPLES):
        cycle = rng.choice(edges) + rng.choice([-1, 0, 0, 1])
        if cycle < edges[0]:
            continue
        # A cycle is 10^6 / MHz picoseconds, rounded down: the last one before the next cycle's.
        at = (cycle + 1) * 1_000_000 // CLOCK_MHZ - 1
        for name, value in expected(commands, cycle, ops).items():
            got = signals[name].signal.value_at(at)
            got = opcodes[got] if name == "opcode" else got
            if value is None:
                assert got in ("", "queued") or got.startswith("waits sem"), f"{queue}.{name} at cycle {cycle}: {got}"
            else:
                assert got == value, f"{queue}.{name} at cycle {cycle}: {got} in the file, {value} in the trace"
    return SAMPLES


def check_save_file(path: Path, waves: pywellen.Waveform, end: int) -> int:
    """Its rows are signals of the file, shown as what they are; their number."""
    widths = {var.full_name: var for var in waves.all_vars()}
    rows, flags = 0, 0
    for line in path.read_text().splitlines():
        if line.startswith("@"):
            flags = int(line[1:], 16)
        elif found := re.fullmatch(r"\+\{(.*)\} ([^\[]*)(?:\[(\d+):0\])?", line):
            var = widths[found[2]]
            assert var.bitwidth == int(found[3] or 0) + 1, line
            assert bool(flags & ENUM) == (var.enum_type is not None), line
            assert bool(flags & TRANSLATED) == found[2].endswith(".op_number"), line
            assert not found[2].endswith("_address") or flags & HEX, line
            assert not found[2].endswith(("step", "queued", "op_id", "_bytes")) or flags & DECIMAL, line
            assert not found[2].endswith("_per_kcycle") or "flow" in found[2] or flags & CURVE, line
            rows += 1
    text = path.read_text()
    start = int(re.search(r"^\[timestart\] (\d+)$", text, re.MULTILINE)[1])
    zoom, marker, trigger = re.search(r"^\*(\S+) (\d+) (\d+)$", text, re.MULTILINE).groups()
    shown = 2 ** -float(zoom) / 200 * WAVES_PIXELS
    assert 0.8 * (end - start) < shown < 1.2 * (end - start) + 1, f"{path.name} shows {shown} of {end - start} ps"
    assert start == int(marker) == int(trigger), "the window opens with the step"
    return rows


def check_tones(path: Path, waves: pywellen.Waveform) -> None:
    """GTKWave's names of numbers are the strings of the file."""
    tones = {}
    for line in path.read_text().splitlines()[1:]:
        number, text = line.split(maxsplit=1)
        tones[int(number, 16)] = re.sub(r"^(\?\w+\?|-$)", "", text)
    signals = {var.full_name: var.signal for var in waves.all_vars()}
    for name, signal in signals.items():
        if name.endswith(".op"):
            numbers = signals[name + "_number"]
            for at in range(0, 100_000_000, 999_983):
                assert signal.value_at(at) == (None if numbers.value_at(at) is None else tones[numbers.value_at(at)])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        subprocess.run([arguments.bin / "tpuc", PROGRAM, "-o", work / "step.tpuexe"], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        run = [arguments.bin / "tpuboard", "run", work / "step.tpuexe", "--no-data", "--trace", work / "t.txt",
               "--waves", work / "w.fst", "--waves-scope", "board.chip0.core1"]  # fmt: skip
        subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
        waves = pywellen.Waveform(str(work / "w.fst"))
        assert waves.timescale.unit.to_exponent() == -12
        queues = traced(work / "t.txt")
        rng = random.Random(arguments.seed)
        listing = subprocess.run([arguments.bin / "tpuboard", "objdump", work / "step.tpuexe"], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout  # fmt: skip
        ops = operations(listing)
        samples = sum(check_queue(waves, queue, queues[queue], ops, rng) for queue in QUEUES)
        end = max(command.done for commands in queues.values() for command in commands) * 1_000_000 // CLOCK_MHZ
        rows = check_save_file(work / "w.gtkw", waves, end)
        assert rows > 200, rows
        assert check_save_file(work / "w.chip0.core1.gtkw", waves, end) == rows
        check_tones(work / "w.ops.txt", waves)
        print(f"{samples} samples of {len(QUEUES)} queues agree (--seed={arguments.seed})")


if __name__ == "__main__":
    sys.exit(main())
