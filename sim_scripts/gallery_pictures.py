#!/usr/bin/env python3
"""Makes pictures of docs/gallery.md: floor_plan.svg, the units of a board with the numbers of its board file, and
curves.png, the report of a training run of examples/mnist_mlp as a headless Chromium shows it.

Usage: gallery_pictures.py --bin DIR --out FOLDER [--only floor_plan|curves]
The curves need the digits (sim_scripts/fetch_mnist.py --out out/data/mnist) and Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOARD = "spec/board/v3_8.toml"
CORE_WIDTH, CORE_HEIGHT, MARGIN, HBM, TITLE = 268, 268, 16, 40, 26
FILLS = {"mxu": "#f2d7d5", "vector": "#d4e8d4", "memory": "#d6e4f0", "control": "#f5ecc8", "io": "#e3dcef"}
EPOCHS = 3


class Drawing:
    """Boxes and texts of an SVG."""

    def __init__(self, width: int, height: int) -> None:
        self.lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                      f'height="{height}" font-family="sans-serif" font-size="12">',
                      f'<rect width="{width}" height="{height}" fill="#ffffff"/>']

    def box(self, x: int, y: int, width: int, height: int, text: list[str], fill: str = "none") -> None:
        """A box with lines of text in its middle."""
        self.lines.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="{fill}" '
                          'stroke="#555555"/>')
        for i, line in enumerate(text):
            at = y + height // 2 + 4 + 15 * i - 15 * (len(text) - 1) // 2
            self.text(x + width // 2, at, line)

    def text(self, x: int, y: int, text: str, style: str = 'text-anchor="middle"') -> None:
        self.lines.append(f'<text x="{x}" y="{y}" fill="#222222" {style}>{escape(text)}</text>')

    def line(self, x: int, y: int, to_x: int, to_y: int) -> None:
        self.lines.append(f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="#8860aa" stroke-width="5"/>')

    def svg(self) -> str:
        return "\n".join([*self.lines, "</svg>"]) + "\n"


def draw_core(drawing: Drawing, x: int, y: int, number: int, board: dict) -> None:
    """The units of a core."""
    core, mxu, vpu = board["core"], board["mxu"], board["vpu"]
    inner, left, top = CORE_WIDTH - 2 * 8, x + 8, y + TITLE
    drawing.box(x, y, CORE_WIDTH, CORE_HEIGHT, [])
    drawing.text(x + CORE_WIDTH // 2, y + 18, f"TPU:{number}, {core['clock_mhz']} MHz", 'text-anchor="middle" '
                                                                                      'font-weight="bold"')
    half = (inner - 6) // 2
    drawing.box(left, top, half, 34, ["control hart", "RV32IMC"], FILLS["control"])
    drawing.box(left + half + 6, top, half, 34, ["sequencer", f"{core['semaphores']} semaphores"], FILLS["control"])
    units = core["mxus"]
    width = (inner - 6 * (units - 1)) // units
    for unit in range(units):
        drawing.box(left + unit * (width + 6), top + 40, width, 62, [f"mxu{unit}", f"{mxu['rows']} x {mxu['cols']}"],
                    FILLS["mxu"])
    drawing.box(left, top + 108, half, 40, ["vpu", f"{vpu['sublanes']} x {vpu['lanes']}"], FILLS["vector"])
    drawing.box(left + half + 6, top + 108, half, 40, ["xlu", "transposes"], FILLS["vector"])
    drawing.box(left, top + 154, inner, 36, [f"VMEM {core['vmem_kib'] // 1024} MiB, SMEM {core['smem_kib']} KiB"],
                FILLS["memory"])
    third = (inner - 12) // 3
    for i, name in enumerate(("dma_in", "dma_out", "dma_remote")):
        drawing.box(left + i * (third + 6), top + 196, third, 34, [name], FILLS["io"])


def floor_plan(path: Path) -> str:
    """SVG of the chips of a board file without includes, on their torus."""
    board = {section: {key: entry["value"] for key, entry in entries.items()}
             for section, entries in tomllib.loads(path.read_text("utf-8")).items()}
    chips, columns, cores = (board["board"][key] for key in ("chips", "torus_x", "cores_per_chip"))
    width = cores * CORE_WIDTH + (cores + 1) * MARGIN
    height = TITLE + CORE_HEIGHT + 2 * MARGIN + HBM + 34
    step_x, step_y, rows = width + 84, height + 56, -(-chips // columns)
    drawing = Drawing(columns * step_x - 84 + 2 * MARGIN, rows * step_y - 56 + 2 * MARGIN)
    link = f"{board['ici']['link_gbps']} GB/s"
    for chip in range(chips):
        x, y = MARGIN + chip % columns * step_x, MARGIN + chip // columns * step_y
        if (chip + 1) % columns and chip + 1 < chips:
            drawing.line(x + width, y + height // 2, x + step_x, y + height // 2)
            drawing.text(x + width + 42, y + height // 2 - 8, link)
        if chip + columns < chips:
            drawing.line(x + width // 2, y + height, x + width // 2, y + step_y)
            drawing.text(x + width // 2 + 42, y + height + 32, link)
        drawing.box(x, y, width, height, [], "#fafafa")
        drawing.text(x + width // 2, y + 19, f"chip {chip}", 'text-anchor="middle" font-weight="bold"')
        for core in range(cores):
            left = x + MARGIN + core * (CORE_WIDTH + MARGIN)
            draw_core(drawing, left, y + TITLE, chip * cores + core, board)
            drawing.box(left, y + TITLE + CORE_HEIGHT + 8, CORE_WIDTH, HBM,
                        [f"HBM {board['hbm']['gib_per_core']} GiB"], FILLS["memory"])
        drawing.box(x + MARGIN, y + height - 42, width - 2 * MARGIN, 30,
                    [f"HBM {board['hbm']['gbps_per_chip']} GB/s, PCIe {board['pcie']['gbps_per_chip']} GB/s, "
                     "ICI router"], FILLS["io"])
    return drawing.svg()


def curves(tools: Path, picture: Path) -> None:
    """Trains for some epochs, and takes the picture of the report."""
    chromium, data = shutil.which("chromium"), ROOT / "out/data/mnist"
    if chromium is None or not (data / "images.npy").exists():
        raise SystemExit("gallery_pictures: curves need chromium (sim_scripts/setup --tests) and the digits "
                         "(sim_scripts/fetch_mnist.py --out out/data/mnist)")
    example = ROOT / "examples/mnist_mlp"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for graph in ("train_step", "eval_step"):
            subprocess.run([tools / "tpuc", example / f"{graph}.mlirbc", "-o", folder / f"{graph}.tpuexe"], check=True)
        text = (example / "train.toml.in").read_text("utf-8").replace("@OUT@", name).replace("@DATA@", str(data))
        (folder / "train.toml").write_text(text, "utf-8")
        subprocess.run([tools / "tpuboard", "train", "train.toml", "--epochs", str(EPOCHS), "--out", name], cwd=folder,
                       check=True, stdout=subprocess.DEVNULL)
        subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                        "--disable-background-networking", f"--user-data-dir={name}/chromium",
                        "--window-size=1000,1330", f"--screenshot={picture}", f"file://{name}/report.html"],
                       check=True, stderr=subprocess.DEVNULL)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True, help="folder of tpuc and tpuboard")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=("floor_plan", "curves"))
    arguments = parser.parse_args()
    if arguments.only != "curves":
        (arguments.out / "floor_plan.svg").write_text(floor_plan(ROOT / BOARD), "utf-8")
    if arguments.only != "floor_plan":
        curves(arguments.bin.resolve(), arguments.out.resolve() / "curves.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
