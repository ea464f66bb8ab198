"""Finishes the firmware images: writes their build ids and the C++ source that embeds images, mask ROM and code maps.

The build id (a word at byte 4) is the first 32 bits of the SHA-256 of the image with that word zero. The code map gives
function, file and line of every address; it comes from the texts of nm and objdump. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from pathlib import Path

BUILD_ID_AT = 4
PER_LINE = 24


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), as the board's CRC unit computes it."""
    table = []
    for index in range(256):
        value = index
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def array(name: str, data: bytes) -> str:
    """A constexpr byte array."""
    rows = (", ".join(str(byte) for byte in data[i:i + PER_LINE]) for i in range(0, len(data), PER_LINE))
    return f"constexpr std::array<uint8_t, {len(data)}> {name} = {{\n    " + ",\n    ".join(rows) + "};\n"


def read_symbols(text: str) -> dict[int, str]:
    """Functions by address, from the output of nm."""
    found: dict[int, str] = {}
    for line in text.splitlines():
        address, kind, name = line.split()
        if kind in "tT":
            found.setdefault(int(address, 16), name)
    return found


def read_lines(text: str, first: int) -> dict[int, tuple[str, int]]:
    """File and line by address, from the output of objdump --dwarf=decodedline; line 0: the end of a piece of code.

    Code that the linker dropped stands there too, at address 0: its pieces begin in front of `first`, or where another
    one has begun."""
    found: dict[int, tuple[str, int]] = {}
    begun: set[int] = set()
    piece: list[tuple[int, str, int]] = []
    for row in re.finditer(r"^(\S+)\s+(\d+|-)\s+(0x[0-9a-f]+|0)\b", text, re.MULTILINE):
        piece.append((int(row[3], 16), row[1], 0 if row[2] == "-" else int(row[2])))
        if piece[-1][2] != 0:
            continue
        if piece[0][0] >= first and piece[0][0] not in begun:
            begun.add(piece[0][0])
            found.setdefault(piece[-1][0], ("", 0))
            # The last line of several at an address is the one whose instruction stands there.
            found.update({address: (file, line) for address, file, line in piece[:-1]})
        piece = []
    return found


def code_map(folders: list[Path]) -> tuple[list[str], list[str]]:
    """Rows of CodeLine, by address, and the names that they use."""
    rows: dict[int, tuple[str, str, int]] = {}
    for path in folders:
        symbols = read_symbols(path.with_name(path.name + ".symbols").read_text())
        lines = read_lines(path.with_name(path.name + ".lines").read_text(), min(symbols, default=0))
        if not symbols or not lines:
            raise SystemExit(f"expected functions in {path}.symbols and source lines in {path}.lines, found none")
        function, place = "", ("", 0)
        for address in sorted(address for address in symbols.keys() | lines.keys() if address < max(lines)):
            function = symbols.get(address, function)
            place = lines.get(address, ("", 0) if address in symbols else place)
            rows[address] = (function, *place)
        rows[max(lines)] = ("", "", 0)  # constants, or the next memory
    names = sorted({name for function, file, _ in rows.values() for name in (function, file)} | {""})
    index = {name: i for i, name in enumerate(names)}
    entries = [f"{{{address:#x}, {index[function]}, {index[file]}, {line}}}"
               for address, (function, file, line) in sorted(rows.items())]
    return entries, [f'"{name}"' for name in names]


def read_frames(text: str, first: int) -> dict[int, tuple[int, int]]:
    """Bytes of the frame and place of the return address by address, from objdump --dwarf=frames-interp.

    -1, 0: not known, behind a function. Code that the linker dropped lies in front of `first`."""
    found: dict[int, tuple[int, int]] = {}
    for entry in re.split(r"\n(?=[0-9a-f]{8} [0-9a-f]{8} )", text):
        extent = re.search(r" FDE cie=\S+ pc=([0-9a-f]+)\.\.([0-9a-f]+)", entry)
        if extent is None or int(extent[1], 16) < first or extent[1] == extent[2]:
            continue
        begin, end = int(extent[1], 16), int(extent[2], 16)
        found[begin] = (0, 0)  # without a table: no frame
        columns = re.search(r"^ *LOC +CFA +(.*)$", entry, re.MULTILINE)
        at = columns[1].split().index("ra") if columns and "ra" in columns[1].split() else None
        for row in re.finditer(r"^([0-9a-f]{8}) sp\+(\d+) +(.*)$", entry, re.MULTILINE):
            rule = row[3].split()[at] if at is not None else "u"
            found[int(row[1], 16)] = (int(row[2]), int(rule[1:]) if rule.startswith("c") else 0)
        found.setdefault(end, (-1, 0))
    return found


def unwind_rows(folders: list[Path]) -> list[str]:
    """Rows of UnwindRow, by address."""
    rows: dict[int, tuple[int, int]] = {}
    for path in folders:
        first = min(read_symbols(path.with_name(path.name + ".symbols").read_text()), default=0)
        for address, row in read_frames(path.with_name(path.name + ".frames").read_text(), first).items():
            if row[0] >= 0 or address not in rows:
                rows[address] = row
    return [f"{{{address:#x}, {frame}, {place}}}" for address, (frame, place) in sorted(rows.items())]


def emit_image(function: str, firmware: Path, rom: Path) -> tuple[bytes, list[str]]:
    """The finished image, and C++ of the function that returns it with its mask ROM and code map."""
    image = bytearray(firmware.read_bytes())
    image += bytes(-len(image) % 4)
    if len(image) < BUILD_ID_AT + 4 or any(image[BUILD_ID_AT:BUILD_ID_AT + 4]):
        raise SystemExit(f"{firmware}: expected 4 zero bytes for the build id at byte {BUILD_ID_AT}")
    image[BUILD_ID_AT:BUILD_ID_AT + 4] = hashlib.sha256(image).digest()[:4]
    build = int.from_bytes(image[BUILD_ID_AT:BUILD_ID_AT + 4], "little")
    maps = [firmware.with_suffix(""), rom.with_suffix("")]
    lines, names = code_map(maps)
    frames = unwind_rows(maps)
    return bytes(image), [
        "namespace {", "", f"namespace {function}_data {{", "",
        array("kImage", bytes(image)), array("kRom", rom.read_bytes()),
        array("kSha256", hashlib.sha256(image).digest()),
        f"constexpr std::array<CodeLine, {len(lines)}> kLines = {{{{\n    " + ",\n    ".join(lines) + "}};\n",
        f"constexpr std::array<std::string_view, {len(names)}> kNames = {{\n    " + ",\n    ".join(names) + "};\n",
        f"constexpr std::array<UnwindRow, {len(frames)}> kUnwind = {{{{\n    " + ",\n    ".join(frames) + "}};\n",
        f"}}  // namespace {function}_data", "", "}  // namespace", "",
        f"const Image& {function}() {{", f"  using namespace {function}_data;",
        f"  static const Image instance{{kImage, kRom, kSha256, {crc32c(bytes(image)):#x}U, {build:#x}U,",
        "                              kLines, kNames, kUnwind};",
        "  return instance;", "}", ""]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--firmware", type=Path, required=True, help="flat image as linked")
    parser.add_argument("--log-firmware", type=Path, required=True, help="the same with log lines")
    parser.add_argument("--rom", type=Path, required=True,
                        help="flat mask ROM; .symbols, .lines and .frames of all three are read too")
    parser.add_argument("--image-out", type=Path, required=True, help="flat image with its build id")
    parser.add_argument("--source-out", type=Path, required=True, help="C++ source")
    args = parser.parse_args()
    image, source = emit_image("image", args.firmware, args.rom)
    _, log_source = emit_image("log_image", args.log_firmware, args.rom)
    args.image_out.write_bytes(image)
    text = ["// Generated by firmware/image/make_image.py. Do not edit.", '#include "image/firmware_image.hpp"', "",
            "#include <array>", "", "namespace tpu::firmware {", *source, *log_source,
            "}  // namespace tpu::firmware", ""]
    args.source_out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
