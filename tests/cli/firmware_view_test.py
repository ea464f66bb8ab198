"""What can be seen of the firmware: the trace of registers and rings, the log, and firmware of the user's own.

Nothing of it but the log's own instructions may change a run.

Usage: firmware_view_test.py --tpuc FILE --tpuboard FILE --images FOLDER [NAME]
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"
CORES = 8
HEX = r"0x[0-9a-f]{8}"
PLACE = r"\w+ \(\w+\.[chS]:\d+\)"
REGISTER = r"[a-z_]+\.[A-Z0-9_]+(?:\[\d+\])?"
HART = re.compile(rf"(\d+) (\d) hart (read|write) ({REGISTER}|{HEX}) ({HEX}) pc=({HEX}) ({PLACE})")
HOST = re.compile(rf"(\d+) (\d) host write (core_page\.[A-Z0-9_]+) ({HEX})")
DEVICE = re.compile(rf"(\d+) (\d) (device|chip) ({REGISTER}) ({HEX})")
COMMAND = re.compile(r"(\d+) (\d) command (\d+) ([A-Z_]+) flags=0x[0-9a-f]+ wait=\d+/\d+/\d+ epoch=0(?: .*)?")
COMPLETION = re.compile(r"(\d+) (\d) completion (\d+) ([A-Z_]+) flags=(0x[0-9a-f]+) step=\d+ epoch=0")
LOG = re.compile(r"\[(\d+) TPU:(\d)\] (.*)")


class Bench:
    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.folder = folder
        self.images = Path(args.images)
        program = folder / "program.tpuexe"
        subprocess.run([args.tpuc, DATA / "collectives.mlirbc", "-o", program], check=True)
        self.command = [args.tpuboard, "run", str(program), "--no-data", "--threads", "1", "--json", "-"]
        self.plain = self.run()[0]

    def run(self, *options: str) -> tuple[dict, str]:
        """The figures of a run that ends well, and what it says on standard error."""
        done = subprocess.run([*self.command, *options], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        run = json.loads(done.stdout)
        names = ("sim_cycles", "sim_cycles_per_core", "instructions_per_hart", "digest")
        return {name: run[name] for name in names}, done.stderr

    def refused(self, says: str, *options: str) -> None:
        done = subprocess.run([*self.command, *options], capture_output=True, text=True, check=False)
        assert done.returncode != 0 and says in done.stderr, f"{options}: {done.returncode}, {done.stderr}"

    # ---- cases

    def trace(self) -> None:
        path = self.folder / "mmio.txt"
        figures, _ = self.run("--trace-mmio", str(path))
        assert figures == self.plain, f"the trace changed the run: {figures} for {self.plain}"
        kinds: collections.Counter = collections.Counter()
        tails, commands, completions = {}, collections.Counter(), collections.Counter()
        last = 0
        for line in path.read_text().splitlines():
            found = next((m for p in (HART, HOST, DEVICE, COMMAND, COMPLETION) if (m := p.fullmatch(line))), None)
            assert found, f"not understood: {line}"
            cycle, core = int(found[1]), int(found[2])
            assert cycle >= last, f"time goes back: {line}"
            last = cycle
            if found.re is HART:
                kinds[found[3], found[4]] += 1
            elif found.re is HOST and found[3] == "core_page.CMD_TAIL":
                tails[core] = int(found[4], 16)
            elif found.re is COMMAND:
                assert int(found[3]) == commands[core], f"a command was left out before: {line}"
                commands[core] += 1
                kinds[found[4]] += 1
            elif found.re is COMPLETION:
                assert found[4] == "OK", line
                completions[core] += 1
        assert tails == dict(commands) == dict(completions) and set(tails) == set(range(CORES)), (tails, commands)
        assert kinds["LAUNCH"] == kinds["LOAD_PROGRAM"] == CORES and kinds["FILL"] >= CORES, kinds
        assert kinds["write", "seq.START"] == kinds["write", "sysctl.FW_BUILD"] == CORES, kinds
        assert kinds["read", "irq.TAKE"] > CORES and kinds["write", "hostdma.START[0]"] >= CORES, kinds

    def lines_of(self, text: str) -> dict[int, list[tuple[int, str]]]:
        """Cycle and text by core."""
        lines: dict[int, list[tuple[int, str]]] = {core: [] for core in range(CORES)}
        for line in text.splitlines():
            found = LOG.fullmatch(line)
            assert found, f"not understood: {line}"
            lines[int(found[2])].append((int(found[1]), found[3]))
        return lines

    def log(self) -> None:
        path = self.folder / "log.txt"
        figures, _ = self.run("--firmware-log", str(path))
        assert figures["digest"] == self.plain["digest"]
        assert figures["instructions_per_hart"] > self.plain["instructions_per_hart"], "no line costs nothing"
        for core, lines in self.lines_of(path.read_text()).items():
            texts = [text for _, text in lines]
            assert sorted(lines, key=lambda line: line[0]) == lines, "time goes back"
            assert re.fullmatch(rf"boot: core {core} of 8, build [0-9a-f]{{8}}", texts[0]), texts[0]
            begin = texts.index("launch 1 step 0 starts")
            end = texts.index("launch 1 step 0 done")
            assert any(re.fullmatch(r"launch 1 bound: program 0, \d+ slots, cores 0xff, 1 steps", text)
                       for text in texts[:begin]), texts
            assert begin < end and "fetched 1 commands from 0" in texts, texts
        _, said = self.run("--firmware-log", "-")
        logged = "".join(line + "\n" for line in said.splitlines() if LOG.fullmatch(line))
        assert logged == path.read_text(), "standard error has other lines than the file"

    def own_firmware(self) -> None:
        elf = self.images / "firmware.elf"
        figures, _ = self.run("--firmware", str(elf))
        assert figures == self.plain, f"the same firmware, another run: {figures} for {self.plain}"
        built_in, own = self.folder / "built_in.txt", self.folder / "own.txt"
        self.run("--firmware-log", str(built_in), "--trace-mmio", str(self.folder / "built_in_mmio.txt"))
        self.run("--firmware-log", str(own), "--firmware", str(self.images / "firmware_log.elf"), "--trace-mmio",
                 str(self.folder / "own_mmio.txt"))
        builds = re.compile(r"build [0-9a-f]{8}")
        assert builds.sub("", own.read_text()) == builds.sub("", built_in.read_text())
        own_places = {line.rsplit(" pc=", 1)[1] for line in (self.folder / "own_mmio.txt").read_text().splitlines()
                      if " pc=" in line}
        assert any(place.endswith(" ring_fetch") for place in own_places), own_places

    def bad_input(self) -> None:
        elf = self.images / "firmware.elf"
        self.refused("firmware.bin: not an ELF file; use the output of the linker", "--firmware",
                     str(self.images / "firmware.bin"))
        self.refused("rom.elf: segment", "--firmware", str(self.images / "rom.elf"))
        self.refused("no.elf", "--firmware", str(self.folder / "no.elf"))
        self.refused("would be written over the input", "--firmware", str(elf), "--trace-mmio", str(elf))
        self.refused("would be written over the input", "--firmware", str(elf), "--firmware-log", str(elf))
        for option in ("--trace-mmio", "--firmware-log"):
            self.refused("No such file or directory", option, str(self.folder / "none" / "file.txt"))
            self.refused("is the disk full?", option, "/dev/full")
            self.refused("needs --transport to be sim", option, str(self.folder / "x.txt"), "--transport", "null")
        self.refused("needs --transport to be sim", "--firmware", str(elf), "--transport", "null")

    def cases(self) -> dict:
        return {case.__name__: case for case in (self.trace, self.log, self.own_firmware, self.bad_input)}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--tpuc", "--tpuboard", "--images"):
        parser.add_argument(name, required=True)
    parser.add_argument("names", nargs="*", help="cases (default: all)")
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        cases = Bench(args, Path(folder)).cases()
        for name in args.names or cases:
            try:
                cases[name]()
            except AssertionError as error:
                failed += 1
                print(f"{name}: {error}", flush=True)
            print(f"{name}: done", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
