"""Findings of --check: the command that each run prints is run as it stands, and finds the same.

Usage: replay_command_test.py --tpuc FILE --tpuboard FILE
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

SLOTS = """.slot argument bytes=4096
.slot result bytes=4096
.arg "x" elem=i32 global=[1024] slot=0
.result "y" elem=i32 global=[1024] slot=1
.op "load" file="model.py" line=7
.op "store" file="model.py" line=9
"""
ROW = "elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]"
# Name: code, cores, what is found. In `credit` the first core writes into its peer twice and asks for the place once.
PROGRAMS = {
    "race": (f"""
  dma_in.dma op=0 signal=0:1 src=hbm[0]+0 dst=vmem+0 {ROW}
  dma_out.dma op=1 src=vmem+0 dst=hbm[1]+0 {ROW}
  swait r0, r0, 1
  halt
""", 1, ("core 0 dma_in (word 0, op 0 load at model.py:7)", "core 0 dma_out (word 21, op 1 store at model.py:9)")),
    "credit": (f"""
  rid r1
  bne r1, r0, taker
  li r2, 1
  dma_in.dma op=0 signal=1:1 src=hbm[0]+0 dst=vmem+0 {ROW}
  dma_remote.dma op=0 wait=1:1:take signal=5:1:r2 peer_reg=2 src=vmem+0 dst=vmem+65536 {ROW}
  dma_remote.dma op=0 signal=5:1:r2 peer_reg=2 src=vmem+0 dst=vmem+65536 {ROW}
  jmp end
taker:
  dma_out.dma op=1 wait=5:1:take src=vmem+65536 dst=hbm[1]+0 {ROW}
  dma_out.nop op=1 wait=5:1:take
end:
  halt
""", 2, ("core 0 dma_remote (word ", "core 1 dma_out (word ", " of VMEM of core 1")),
}


class Bench:
    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args = args
        self.folder = folder

    def assemble(self, name: str, code: str, cores: int, *board: str) -> None:
        source = self.folder / f"{name}.s"
        source.write_text(f'.program "{name}"\n.partitions {cores}\n{SLOTS}{code}')
        subprocess.run([self.args.tpuc, "--asm", source, "-o", source.with_suffix(".tpuexe"), *board], check=True)

    def run(self, words: list[str]) -> tuple[list[str], str]:
        """What a run finds, without its steps, and the command that it prints."""
        done = subprocess.run([self.args.tpuboard, *words], cwd=self.folder, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 1, f"{words}: exit code {done.returncode}: {done.stderr}"
        found = re.findall(r"^step \d+: (.*)$", done.stderr, re.MULTILINE)
        again = re.findall(r"^again: tpuboard (.*)$", done.stderr, re.MULTILINE)
        assert found and again, done.stderr
        return found, again[0]

    def check(self, name: str, *options: str, board: tuple[str, ...] = (), file: str = "",
              device: int = 0) -> None:
        """`file`: the program is called so there, instead of as it calls itself."""
        code, cores, says = PROGRAMS[name]
        self.assemble(name, code, cores, *board)
        if file:
            target = self.folder / file
            target.parent.mkdir(exist_ok=True)
            (self.folder / f"{name}.tpuexe").replace(target)
        on = ["--device", str(device)] if device else []
        found, again = self.run(["run", file or f"{name}.tpuexe", "--check", "--no-data", *on, *options, *board])
        says = tuple(part.replace("core 0", f"core {device}") for part in says)
        assert any(all(part in line for part in says) for line in found), found
        assert self.run(shlex.split(again)) == (found, again), f"{again} finds something else than {found}"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--tpuc", "--tpuboard"):
        parser.add_argument(name, required=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(parser.parse_args(), Path(folder))
        bench.check("race")
        bench.check("race", "--schedule-seed", "40")
        bench.check("race", file="programs of mine/a race.tpuexe")
        bench.check("race", file="third.tpuexe", device=3)
        bench.check("credit", "--schedule-seed", "7")
        own = Path(folder) / "a board.toml"
        own.write_text((Path(__file__).resolve().parents[2] / "spec" / "board" / "v2_8.toml").read_text())
        bench.check("race", board=("--board", str(own), "--set", "core.semaphore_cycles=9"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
