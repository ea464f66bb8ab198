"""Waves of a training step, read back by a reader that is not ours.

At a thousand places chosen by a seed the signals of five queues say what the text trace, another view of the same
run, says.
Usage: waves_test.py --bin DIR [--seed N]
"""

import argparse
import random
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


def expected(commands: list[Command], cycle: int) -> dict[str, int | str]:
    """What the signals are at the end of `cycle`."""
    started = [c for c in commands if c.start <= cycle]
    in_flight = sum(c.done > cycle for c in started)
    last = started[-1] if started else None
    return {
        "in_flight": in_flight,
        "busy": int(in_flight != 0),
        "op_id": last.op if last else 0,
        "pc": last.pc if last else 0,
        "opcode": last.opcode if last and in_flight else "-",
    }


def check_queue(waves: pywellen.Waveform, queue: str, commands: list[Command], rng: random.Random) -> int:
    """Compares samples between the starts and ends of the commands; their number."""
    signals = {var.name: var for var in waves.all_vars() if var.full_name.startswith(f"board.chip0.core1.{queue}.")}
    opcodes = {int(bits, 2): name for bits, name in signals["opcode"].enum_type[1]}
    edges = sorted({c.start for c in commands} | {c.done for c in commands})
    for _ in range(SAMPLES):
        cycle = rng.choice(edges) + rng.choice([-1, 0, 0, 1])
        if cycle < edges[0]:
            continue
        # A cycle is 10^6 / MHz picoseconds, rounded down: the last one before the next cycle's.
        at = (cycle + 1) * 1_000_000 // CLOCK_MHZ - 1
        for name, value in expected(commands, cycle).items():
            got = signals[name].signal.value_at(at)
            got = opcodes[got] if name == "opcode" else got
            assert got == value, f"{queue}.{name} at cycle {cycle}: {got} in the file, {value} in the trace"
    return SAMPLES


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        run = [arguments.bin / "tpuboard", "run", PROGRAM, "--no-data", "--trace", work / "t.txt",
               "--waves", work / "w.fst", "--waves-scope", "board.chip0.core1"]  # fmt: skip
        subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
        waves = pywellen.Waveform(str(work / "w.fst"))
        assert waves.timescale.unit.to_exponent() == -12
        queues = traced(work / "t.txt")
        rng = random.Random(arguments.seed)
        samples = sum(check_queue(waves, queue, queues[queue], rng) for queue in QUEUES)
        print(f"{samples} samples of {len(QUEUES)} queues agree (--seed={arguments.seed})")


if __name__ == "__main__":
    sys.exit(main())
