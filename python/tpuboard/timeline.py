"""Draws one launch of one core as an SVG timeline: a row for each engine queue, colour by opcode, time in microseconds.

python -m tpuboard.timeline FILE -o FILE.svg

FILE is that of `tpuboard run|train --timeline FILE.pftrace` or TPUBOARD_TIMELINE, or the text of `--trace FILE.txt` or
TPUBOARD_TRACE, one line an engine command: `start end core queue opcode op=N pc=N step=N free=N`, times in core cycles.
A file of --timeline has the clock of the core; a text needs --clock-mhz (see `tpuboard devices`). A launch begins where
no queue of the core had work for --gap cycles.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

MARKS = "marks"  # row of the program's own marks: iterations of loops, branches
ENGINE_ORDER = [MARKS, "dma_in", "mxu", "vpu", "xlu", "dma_out", "dma_remote"]
PALETTE = ["#4477aa", "#cc6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#777777"]
OPCODE_COLOURS = {"dma": "#4477aa", "fill": "#66ccee", "matmul": "#cc6677", "vpu_kernel": "#228833",
                  "transpose": "#ccbb44", "nop": "#bbbbbb"}
WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 1180, 96, 66, 56, 30, 20


@dataclass
class Command:
    """One line of the trace."""

    start: int
    end: int
    core: int
    queue: str
    opcode: str
    fields: str


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Fields of a protocol buffer: numbers, or the bytes of a text or message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 in (1, 5):
            size = 8 if tag & 7 == 1 else 4
            yield tag >> 3, int.from_bytes(message[at:at + size], "little")
            at += size
        elif tag & 7 == 2:
            size = varint()
            if at + size > len(message):
                raise IndexError("the message ends early")
            yield tag >> 3, message[at:at + size]
            at += size
        else:
            raise ValueError("not a protocol buffer")


def one(message: bytes, number: int, default: int | bytes = 0) -> int | bytes:
    """The field of that number."""
    return next((value for key, value in fields_of(message) if key == number), default)


@dataclass
class PerfettoNames:
    """Tracks and texts of a Perfetto trace, as far as they have been read."""

    tracks: dict[int, tuple[int, str]] = field(default_factory=dict)  # parent, name
    texts: dict[int, dict[int, str]] = field(default_factory=dict)  # by field of InternedData

    def learn(self, key: int, packet: bytes) -> None:
        """A packet that describes a track, or brings texts."""
        if key == 60:
            name = one(packet, 2, b"")
            assert isinstance(name, bytes)
            self.tracks[int(one(packet, 1))] = (int(one(packet, 5)), name.decode())
        elif key == 12:
            for kind, entry in fields_of(packet):
                text = one(entry, 2, b"") if isinstance(entry, bytes) else b""
                if isinstance(entry, bytes) and isinstance(text, bytes):
                    self.texts.setdefault(kind, {})[int(one(entry, 1))] = text.decode()

    def row(self, track: int, core: int) -> str:
        """Row of a track that shows commands or marks of the core, else nothing."""
        parent, name = self.tracks.get(track, (0, ""))
        queue = name.split(" (")[0]
        mine = self.tracks.get(parent, (0, ""))[1].startswith(f"TPU:{core} ")
        return queue if mine and (queue == MARKS or queue.rstrip("0123456789") in ENGINE_ORDER) else ""


def clock_of(path: Path) -> float | None:
    """MHz, as the tracks of a Perfetto trace have it in their descriptions; None: they do not."""
    try:
        for _, packet in fields_of(path.read_bytes()):
            track = one(packet, 60, b"") if isinstance(packet, bytes) else b""
            text = one(track, 14, b"") if isinstance(track, bytes) else b""
            found = re.fullmatch(rb"core clock ([0-9.]+) MHz", text) if isinstance(text, bytes) else None
            if found:
                return float(found[1])
    except (IndexError, ValueError):
        raise damaged(path) from None
    return None


def damaged(path: Path) -> SystemExit:
    """The error of a file that begins as one of --timeline."""
    return SystemExit(f"timeline: {path}: damaged, or not a file of --timeline")


def read_perfetto(path: Path, core: int, clock_mhz: float) -> list[Command]:
    """Commands and marks of one core in the order of their start. Times are nanoseconds, rounded down."""
    names = PerfettoNames()
    commands: list[Command] = []
    open_slices: dict[int, list[Command]] = {}

    def slice_event(cycle: int, event: bytes) -> None:
        """The begin or end of a slice."""
        track, kind = int(one(event, 11)), int(one(event, 9))
        row = names.row(track, core)
        if row and kind == 1:
            notes = [dict(fields_of(note)) for number, note in fields_of(event)
                     if number == 4 and isinstance(note, bytes)]
            text = " ".join(f"{names.texts[3][int(note[1])]}={int(note[3])}" for note in notes)
            opcode = names.texts.get(1, {}).get(int(one(event, 3)), "mark")
            text = text or names.texts[2][int(one(event, 10))]
            open_slices.setdefault(track, []).append(Command(cycle, cycle, core, row, opcode, text))
        elif row and kind == 2 and open_slices.get(track):
            commands.append(open_slices[track].pop())
            commands[-1].end = cycle

    try:
        for _, packet in fields_of(path.read_bytes()):
            if not isinstance(packet, bytes):
                raise ValueError("not a trace")
            cycle = 0
            for key, value in fields_of(packet):
                if key == 8 and isinstance(value, int):
                    cycle = -int(-value * clock_mhz // 1000)
                elif key == 11 and isinstance(value, bytes):
                    slice_event(cycle, value)
                elif isinstance(value, bytes):
                    names.learn(key, value)
    except (IndexError, KeyError, ValueError, AttributeError):
        raise damaged(path) from None
    return sorted(commands, key=lambda each: (each.start, each.end))


def is_perfetto(path: Path) -> bool:
    """Field 1, a message: no text begins so."""
    with path.open("rb") as file:
        return file.read(1) == b"\n"


def read_trace(path: Path, core: int, clock_mhz: float) -> list[Command]:
    """Commands of one core in the order of their start."""
    if is_perfetto(path):
        return read_perfetto(path, core, clock_mhz)
    commands: list[Command] = []
    open_marks: list[tuple[int, str]] = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            words = line.split()
            try:
                if len(words) == 4 and words[2] == "hart":  # a trace word of firmware
                    continue
                if len(words) == 5 and words[2] == "mark":
                    if int(words[1]) == core and words[3] == "begin":
                        open_marks.append((int(words[0]), words[4]))
                    elif int(words[1]) == core and open_marks:
                        start, fields = open_marks.pop()
                        commands.append(Command(start, int(words[0]), core, MARKS, "mark", fields))
                    continue
                command = Command(int(words[0]), int(words[1]), int(words[2]), words[3], words[4], " ".join(words[5:7]))
            except (IndexError, ValueError):
                raise SystemExit(f"timeline: {path}:{number}: not a line of a trace: {line.strip()[:60]!r}") from None
            if command.core == core:
                commands.append(command)
    return sorted(commands, key=lambda each: (each.start, each.end))


def launches(commands: list[Command], gap: int) -> list[list[Command]]:
    """Cuts where nothing ran for `gap` cycles."""
    parts: list[list[Command]] = []
    busy_until = -gap - 1
    for command in commands:
        if command.start - busy_until > gap:
            parts.append([])
        parts[-1].append(command)
        busy_until = max(busy_until, command.end)
    return parts


def row_of(queue: str) -> tuple[int, str]:
    """Sorts the queues: by engine, then by the number of the unit behind the engine's name."""
    engine = queue.rstrip("0123456789")
    return ENGINE_ORDER.index(engine) if engine in ENGINE_ORDER else len(ENGINE_ORDER), queue


def busy_cycles(commands: list[Command]) -> int:
    """Cycles in which at least one of the commands runs."""
    total, until = 0, 0
    for command in commands:
        total += max(0, command.end - max(command.start, until))
        until = max(until, command.end)
    return total


def nice_step(span: float) -> float:
    """Distance of ticks: 1, 2 or 5 times a power of ten, about twelve of them."""
    step = 1e-3
    while True:
        for factor in (1, 2, 5):
            if span / (step * factor) <= 14:
                return step * factor
        step *= 10


def halves(commands: list[Command]) -> list[tuple[Command, int]]:
    """Commands of one queue overlap where a queue is pipelined: they lie in two halves of its row by turns."""
    ends = [0, 0]
    placed = []
    for command in commands:
        half = 0 if ends[0] <= command.start or ends[0] <= ends[1] else 1
        ends[half] = max(ends[half], command.end)
        placed.append((command, half))
    return placed


def draw(commands: list[Command], clock_mhz: float, title: str) -> str:
    """The SVG text."""
    first = min(command.start for command in commands)
    last = max(command.end for command in commands)
    span = max(1, last - first)
    scale = (WIDTH - LEFT - RIGHT) / span
    names = {command.queue for command in commands}
    queues = sorted(names, key=row_of)
    opcodes = sorted({command.opcode for command in commands})
    spare = [colour for colour in PALETTE if colour not in OPCODE_COLOURS.values()] or PALETTE
    colour = {name: OPCODE_COLOURS.get(name, spare[i % len(spare)]) for i, name in enumerate(opcodes)}
    bottom = TOP + ROW * len(queues)
    height = bottom + 62
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
        f'<text x="{WIDTH - RIGHT + 8}" y="{TOP - 8}" fill="#555">busy</text>',
    ]
    microseconds = span / clock_mhz
    step = nice_step(microseconds)
    tick = 0.0
    while tick <= microseconds:
        x = LEFT + tick * clock_mhz * scale
        out.append(f'<path d="M{x:.1f} {TOP}V{bottom}" stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#555">{tick:g}</text>')
        tick = round(tick + step, 6)
    out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{bottom + 16}" fill="#555">us</text>')
    for row, queue in enumerate(queues):
        mine = [command for command in commands if command.queue == queue]
        y = TOP + ROW * row
        out.append(f'<text x="{LEFT - 8}" y="{y + 19}" text-anchor="end">{escape(queue)}</text>')
        share = 100 * busy_cycles(mine) / span
        out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{y + 19}" fill="#555">{share:.0f} %</text>')
        out.append(f'<path d="M{LEFT} {y + ROW}H{WIDTH - RIGHT}" stroke="#eee"/>')
        for command, half in halves(mine):
            x = LEFT + (command.start - first) * scale
            width = max(0.6, (command.end - command.start) * scale)
            top = y + (ROW - BAR) // 2 + half * BAR // 2
            tip = f"{command.opcode} {command.fields}, {(command.end - command.start) / clock_mhz:.2f} us"
            out.append(f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{BAR // 2}" '
                       f'fill="{colour[command.opcode]}"><title>{escape(tip)}</title></rect>')
    x = LEFT
    for name in opcodes:
        out.append(f'<rect x="{x}" y="{bottom + 34}" width="12" height="12" fill="{colour[name]}"/>')
        out.append(f'<text x="{x + 17}" y="{bottom + 45}">{escape(name)}</text>')
        x += 40 + 8 * len(name)
    out.append("</svg>")
    return "\n".join(out) + "\n"


def clock_for(path: Path, given: float | None) -> float:
    """MHz: as given, else as the trace has it."""
    if given is None and is_perfetto(path):
        given = clock_of(path)
    if given is None:
        raise SystemExit(f"timeline: {path}: has no core clock, as texts have none; give that of the board, which "
                         "`tpuboard devices` prints, by --clock-mhz")
    if not 0 < given < float("inf"):
        raise SystemExit(f"timeline: --clock-mhz {given:g}: expected a number above 0")
    return given


def main() -> int:
    """Reads the command line, writes the picture."""
    parser = argparse.ArgumentParser(prog="python -m tpuboard.timeline", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("trace", type=Path, help="file made by --timeline or --trace")
    parser.add_argument("-o", "--out", type=Path, required=True, help="SVG file to write")
    parser.add_argument("--core", type=int, default=0, help="TPU number (default 0)")
    parser.add_argument("--launch", type=int, default=0, help="which launch of the trace (default 0, the first)")
    parser.add_argument("--gap", type=int, default=1000, help="cycles without work that part launches (default 1000)")
    parser.add_argument("--clock-mhz", type=float,
                        help="core clock of the board (core.clock_mhz; default: that of the trace, which a text lacks)")
    parser.add_argument("--title", help="headline of the picture")
    arguments = parser.parse_args()
    try:
        clock_mhz = clock_for(arguments.trace, arguments.clock_mhz)
        commands = read_trace(arguments.trace, arguments.core, clock_mhz)
    except OSError as error:
        raise SystemExit(f"timeline: {error}") from None
    parts = launches(commands, arguments.gap)
    if arguments.launch >= len(parts):
        raise SystemExit(f"timeline: {arguments.trace} holds {len(parts)} launches of core {arguments.core}")
    chosen = parts[arguments.launch]
    cycles = max(command.end for command in chosen) - min(command.start for command in chosen)
    title = arguments.title or f"TPU:{arguments.core}, one launch"
    title += f": {sum(each.queue != MARKS for each in chosen)} engine commands, {cycles / clock_mhz:.1f} us"
    try:
        arguments.out.write_text(draw(chosen, clock_mhz, title), encoding="utf-8")
    except OSError as error:
        raise SystemExit(f"timeline: {arguments.out}: cannot be written: {error.strerror}") from None
    return 0


if __name__ == "__main__":
    sys.exit(main())
