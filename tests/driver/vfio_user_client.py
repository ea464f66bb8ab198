"""A client of the vfio-user protocol: a driver of one chip, as a guest has it, from the layouts of the specifications.

Knows nothing of the project's code but the tables of registers (spec/regs) and the numbers of spec/formats/rings.toml.
"""

from __future__ import annotations

import array
import json
import mmap
import os
import select
import socket
import struct
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
SPEC = Path(__file__).resolve().parents[2] / "spec"
VERSION, DMA_MAP, DMA_UNMAP, DEVICE_INFO, REGION_INFO, _, IRQ_INFO, SET_IRQS, READ, WRITE = range(1, 11)
DMA_READ, DMA_WRITE, RESET, WRITE_MULTI = 11, 12, 13, 15
REPLY, NO_REPLY, ERROR = 1, 1 << 4, 1 << 5
BAR0, BAR2, CONFIG = 0, 2, 7
MSI = 1
ERRORS = 3
EVENTFD, BOOL, NONE, TRIGGER = 4, 2, 1, 32
CORE_BASE, CORE_STRIDE = 0x10000, 0x10000
ITCM = 0x10000000  # of a hart: where its image is


def registers(page: str) -> dict[str, int]:
    """Name -> offset."""
    return {reg["name"]: reg["offset"] for reg in tomllib.loads((SPEC / f"regs/{page}.toml").read_text())["reg"]}


def ring_numbers() -> dict[str, int]:
    table = tomllib.loads((SPEC / "formats/rings.toml").read_text())["constant"]
    return {name: row["value"] for name, row in table.items()}


CHIP, CORE, RING = registers("chip_page"), registers("core_page"), ring_numbers()
CRC_TABLE = []
for byte in range(256):
    for _bit in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC_TABLE.append(byte)


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for each in data:
        value = value >> 8 ^ CRC_TABLE[(value ^ each) & 0xFF]
    return value ^ 0xFFFFFFFF


def read_until(read: Callable[[], T], is_wanted: Callable[[T], object], what: str, seconds: float = 60) -> T:
    """What is read once it is wanted; an error with the last one if that takes too long."""
    end = time.monotonic() + seconds
    while not is_wanted(found := read()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:g} s until {what}; found {found}")
    return found


class Refused(Exception):
    """An error reply; its number is that of errno."""

    def __init__(self, command: int, error: int) -> None:
        super().__init__(f"command {command}: {os.strerror(error)}")
        self.error = error


class Client:
    """One chip. Answers requests for DMA memory without descriptors (`far`: address -> bytes) while it waits."""

    def __init__(self, path: str, hello: bytes | None = None) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.number = 0
        self.open: list[int] = []
        self.far: dict[int, bytearray] = {}
        self.far_reads = self.far_writes = 0
        offer = {"capabilities": {"max_msg_fds": 8, "max_data_xfer_size": 1 << 20, "write_multiple": True}}
        try:
            reply = self.call(VERSION, hello or struct.pack("<HH", 0, 0) + json.dumps(offer).encode() + b"\0")
        except BaseException:
            self.socket.close()
            raise
        self.capabilities = json.loads(reply[4:-1])["capabilities"]

    def close(self) -> None:
        self.socket.close()
        while self.open:
            os.close(self.open.pop())

    # ---- frames

    def send(self, command: int, payload: bytes = b"", fds: tuple[int, ...] = (), flags: int = 0) -> int:
        self.number = self.number + 1 & 0xFFFF
        frame = struct.pack("<HHIII", self.number, command, 16 + len(payload), flags, 0) + payload
        if fds:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            sent = self.socket.sendmsg([frame], rights)
            frame = frame[sent:]
        self.socket.sendall(frame)
        return self.number

    def bytes(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError("the server has ended the connection")
            data += more
        return data

    def frame(self) -> tuple[int, int, int, int, bytes]:
        number, command, size, flags, error = struct.unpack("<HHIII", self.bytes(16))
        return number, command, flags, error, self.bytes(size - 16)

    def call(self, command: int, payload: bytes = b"", fds: tuple[int, ...] = ()) -> bytes:
        number = self.send(command, payload, fds)
        while True:
            got, which, flags, error, data = self.frame()
            if not flags & REPLY:
                self.serve(got, which, data)
                continue
            assert (got, which) == (number, command), (got, which, number, command)
            if flags & ERROR:
                raise Refused(command, error)
            return data

    def serve(self, number: int, command: int, data: bytes) -> None:
        """A request of the server for memory that it has no descriptor of."""
        address, count = struct.unpack_from("<QQ", data)
        base = max((each for each in self.far if each <= address), default=None)
        error = 14 if base is None or address + count > base + len(self.far[base]) else 0
        reply = b""
        if not error:
            at = address - base
            reply = data[:16]
            if command == DMA_READ:
                self.far_reads += 1
                reply += bytes(self.far[base][at:at + count])
            else:
                self.far_writes += 1
                self.far[base][at:at + count] = data[16:]
        head = struct.pack("<HHIII", number, command, 16 + len(reply), REPLY | (ERROR if error else 0), error)
        self.socket.sendall(head + reply)

    # ---- regions, memory, interrupts

    def read(self, region: int, offset: int, count: int = 4) -> bytes:
        return self.call(READ, struct.pack("<QII", offset, region, count))[16:]

    def write(self, region: int, offset: int, data: bytes, posted: bool = False) -> None:
        payload = struct.pack("<QII", offset, region, len(data)) + data
        if posted:
            self.send(WRITE, payload, flags=NO_REPLY)
        else:
            self.call(WRITE, payload)

    def read32(self, region: int, offset: int) -> int:
        return int.from_bytes(self.read(region, offset), "little")

    def write32(self, region: int, offset: int, value: int) -> None:
        self.write(region, offset, value.to_bytes(4, "little"))

    def region(self, index: int) -> tuple[int, int]:
        """Flags and size."""
        data = self.call(REGION_INFO, struct.pack("<IIIIQQ", 32, 0, index, 0, 0, 0))
        _argsz, flags, _index, _cap, size, _offset = struct.unpack("<IIIIQQ", data)
        return flags, size

    def map(self, address: int, size: int, fd: int = -1, offset: int = 0, flags: int = 3) -> None:
        self.call(DMA_MAP, struct.pack("<IIQQQ", 32, flags, offset, address, size), (fd,) if fd >= 0 else ())

    def unmap(self, address: int, size: int) -> int:
        """The bytes that were mapped there."""
        return struct.unpack("<IIQQ", self.call(DMA_UNMAP, struct.pack("<IIQQ", 24, 0, address, size)))[3]

    def shared(self, address: int, size: int) -> mmap.mmap:
        """Memory that the server maps."""
        fd = os.memfd_create("guest")
        os.ftruncate(fd, size)
        self.map(address, size, fd)
        memory = mmap.mmap(fd, size)
        os.close(fd)
        return memory

    def vectors(self) -> list[int]:
        """Eventfds of the eight MSI vectors."""
        events = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(8)]
        self.open += events
        self.call(SET_IRQS, struct.pack("<IIIII", 20, EVENTFD | TRIGGER, MSI, 0, 8), tuple(events))
        return events

    # ---- the board

    def enable(self) -> None:
        self.write(CONFIG, 4, struct.pack("<H", 6))  # memory space, bus master

    def clock(self) -> tuple[int, int]:
        """Whether nothing is in flight, and simulated time."""
        return struct.unpack("<IxxxxQ", self.read(CONFIG, 0x158, 16))

    def pass_time(self, until: int) -> int:
        """Has the board run to a cycle although nothing is in flight; simulated time then."""
        self.write(CONFIG, 0x168, struct.pack("<Q", until))
        return self.await_idle()

    def await_idle(self) -> int:
        """Simulated time when nothing is in flight any more."""
        return read_until(self.clock, lambda found: found[0], "nothing is in flight (idle, cycle)")[1]

    def core(self, core: int, name: str) -> int:
        return CORE_BASE + core * CORE_STRIDE + CORE[name]

    def await_state(self, core: int, state: int) -> None:
        read_until(lambda: self.read32(BAR0, self.core(core, "FW_STATE")) & 0xF, lambda found: found == state,
                   f"FW_STATE of core {core} is {state}")

    def boot(self, core: int, image: bytes, rings: int, piece: int = 4096) -> None:
        """Loads the firmware of a core by pieces of so many bytes; its rings are at `rings` (commands) and 0x8000
        behind (completions)."""
        self.write32(BAR0, self.core(core, "CORE_CTRL"), 2)
        for at in range(0, len(image), piece):
            self.write(BAR2, core * 0x40000 + at, image[at:at + piece], posted=True)
        for name, value in (("BOOT_ENTRY", ITCM), ("BOOT_LEN", len(image)), ("BOOT_CRC", crc32c(image)),
                            ("CORE_CTRL", 1)):
            self.write32(BAR0, self.core(core, name), value)
        self.await_state(core, 3)
        assert self.read32(BAR0, self.core(core, "FW_ABI")) == RING["RING_ABI"]
        low, high = rings & 0xFFFFFFFF, rings >> 32
        for name, value in (("HOST_ABI", RING["RING_ABI"]), ("CMD_BASE_LO", low), ("CMD_BASE_HI", high),
                            ("CMD_LOG2", RING["CMD_RING_LOG2"]), ("CPL_BASE_LO", low + 0x8000), ("CPL_BASE_HI", high),
                            ("CPL_LOG2", RING["CPL_RING_LOG2"]), ("QUEUE_EN", 1)):
            self.write32(BAR0, self.core(core, name), value)
        self.await_state(core, 5)


def command(opcode: int, seq: int, waits: tuple[int, int, int], epoch: int, payload: bytes) -> bytes:
    """An entry of a command ring: 64 bytes with their checksum."""
    head = struct.pack("<HHIIIII", opcode, RING["CMD_FLAG_INTERRUPT"], seq, *waits, epoch)
    body = (head + payload).ljust(60, b"\0")
    return body + struct.pack("<I", crc32c(body))


def copy(kind: int, src: int, dst: int, count: int) -> bytes:
    return struct.pack("<QQQBBHI", src, dst, count, kind, 0, 0, 0)


def wait_for(event: int, seconds: float) -> int:
    """How often an eventfd was signalled; 0: not in that time."""
    ready, _, _ = select.select([event], [], [], seconds)
    return int.from_bytes(os.read(event, 8), "little") if ready else 0
