"""`tpuboard serve --vfio-user` with a client of its own: what a guest's kernel and driver do to a PCI function.

Usage: vfio_user_test.py TPUBOARD FIRMWARE.bin
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
import struct
import subprocess
import sys
import time
import unittest
from pathlib import Path

from vfio_server import Server
from vfio_user_client import (
    BAR0,
    BAR2,
    BOOL,
    CHIP,
    CONFIG,
    DMA_MAP,
    ERRORS,
    EVENTFD,
    MSI,
    NO_REPLY,
    NONE,
    READ,
    RESET,
    RING,
    SET_IRQS,
    TRIGGER,
    WRITE,
    WRITE_MULTI,
    Client,
    Refused,
    command,
    copy,
    wait_for,
)

TPUBOARD, FIRMWARE = sys.argv.pop(1), sys.argv.pop(1)
ONES = 0xFFFFFFFF
RINGS, DATA, FAR = 0x100000, 0x1_0000_0000, 0x2_0000_0000
BYTES = 0x10000


class Function(unittest.TestCase):
    """What needs no time: on a board of the transport null."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server(TPUBOARD, "--transport", "null")

    @classmethod
    def tearDownClass(cls) -> None:
        assert cls.server.stop() == 0
        assert not list(Path(cls.server.folder).iterdir()), "sockets are left"

    def setUp(self) -> None:
        self.client = self.server.connect(self)

    def refused(self, number: int, call, *arguments) -> None:
        with self.assertRaises(Refused) as caught:
            call(*arguments)
        self.assertEqual(caught.exception.error, number)

    def test_sockets_are_for_their_user(self) -> None:
        for chip in range(4):
            self.assertEqual(stat.S_IMODE(Path(self.server.path(chip)).stat().st_mode), 0o600)

    def test_capabilities_are_those_that_were_offered(self) -> None:
        self.assertEqual(self.client.capabilities,
                         {"max_msg_fds": 16, "max_data_xfer_size": 1 << 20, "write_multiple": True})

    def test_configuration_space_is_enumerated(self) -> None:
        config = self.client.read(CONFIG, 0, 4096)
        self.assertEqual(struct.unpack_from("<HH", config), (0x1AE0, 0x0027))
        self.assertEqual(config[9:12], bytes([0, 0, 0x12]))
        found, at = {}, config[0x34]
        while at:
            found[config[at]] = at
            at = config[at + 1]
        self.assertEqual(set(found), {5, 0x10})
        control = struct.unpack_from("<H", config, found[5] + 2)[0]
        self.assertEqual((control >> 1 & 7, control >> 7 & 1), (3, 1))  # eight vectors, 64 bit
        self.assertEqual(config[found[0x10] + 2], 2)
        self.assertEqual(struct.unpack_from("<H", config, found[0x10] + 8)[0], 0x2010)  # device control: 512 B reads
        self.assertTrue(struct.unpack_from("<I", config, found[0x10] + 4)[0] >> 28 & 1)  # function-level reset
        extended, at = [], 0x100
        while at:
            head = struct.unpack_from("<I", config, at)[0]
            extended.append(head & 0xFFFF)
            at = head >> 20
        self.assertEqual(extended, [1, 0xB])

    def test_bars_tell_their_size(self) -> None:
        for index, at, size in ((BAR0, 0x10, 1 << 20), (BAR2, 0x18, 1 << 20)):
            self.client.write32(CONFIG, at, ONES)
            self.assertEqual(~(self.client.read32(CONFIG, at) & ~0xF) + 1 & ONES, size)
            self.client.write32(CONFIG, at, 0xE0000000)
            self.assertEqual(self.client.read32(CONFIG, at), 0xE0000000)
            self.assertEqual(self.client.region(index), (3, size))
        for at in (0x14, 0x1C, 0x20, 0x24, 0x30):
            self.client.write32(CONFIG, at, ONES)
            self.assertEqual(self.client.read32(CONFIG, at), 0)
        self.assertEqual([self.client.region(index)[1] for index in (1, 3, 4, 5, 6, 8)], [0] * 6)
        self.assertEqual(self.client.region(CONFIG), (3, 4096))

    def test_registers_answer_when_memory_space_is_on(self) -> None:
        self.assertEqual(self.client.read32(BAR0, CHIP["MAGIC"]), ONES)
        self.assertEqual(self.client.read32(CONFIG, 0x104) >> 20 & 1, 1)  # AER: unsupported request
        self.client.write32(CONFIG, 0x104, 1 << 20)
        self.assertEqual(self.client.read32(CONFIG, 0x104), 0)
        self.client.enable()
        self.assertEqual(self.client.read32(BAR0, CHIP["MAGIC"]), 0x42555054)
        self.assertEqual(self.client.read(BAR0, CHIP["MAGIC"] + 1, 2), b"PU")
        self.assertEqual(self.client.read(BAR0, CHIP["MAGIC"], 8)[:4], b"TPUB")
        self.assertEqual(self.client.read32(BAR2, 0), ONES)

    def test_a_reset_is_one(self) -> None:
        for reset in (lambda: self.client.call(RESET), lambda: self.client.write(CONFIG, 0x78, b"\0\x80")):
            self.client.enable()
            self.assertEqual(self.client.read(CONFIG, 4, 2), b"\6\0")
            reset()
            self.assertEqual(self.client.read(CONFIG, 4, 2), b"\0\0")

    def test_memory_is_checked(self) -> None:
        self.client.map(0x1000, 0x2000)
        for address, size in ((0x1000, 0x1000), (0x2000, 0x5000), (0, 0x2000)):
            self.refused(errno.EEXIST, self.client.map, address, size)
        for address, size, flags in ((0x10, 0x1000, 3), (0x10000, 0, 3), (0x10000, 7, 3), (0x10000, 0x1000, 0),
                                     (0x10000, 0x1000, 4), (2**64 - 0x1000, 0x2000, 3)):
            self.refused(errno.EINVAL, lambda a=address, s=size, f=flags: self.client.map(a, s, flags=f))
        self.refused(errno.ENOSPC, self.client.map, 1 << 50, 1 << 41)
        fd = os.memfd_create("small")
        os.ftruncate(fd, 0x1000)
        self.refused(errno.EINVAL, self.client.map, 0x100000, 0x2000, fd)
        self.refused(errno.EINVAL, self.client.map, 0x100000, 0x1000, fd, 0x1000)
        end, other = os.pipe()
        self.refused(errno.EINVAL, self.client.map, 0x100000, 0x1000, end)
        self.client.map(0x100000, 0x1000, fd)
        for address, size in ((0x1000, 0x1000), (0x2000, 0x1000), (0, 0x2000), (0x1000, 0), (2**64 - 0x1000, 0x2000)):
            self.refused(errno.EINVAL, self.client.unmap, address, size)
        self.assertEqual(self.client.unmap(0x3000, 0x1000), 0)
        self.assertEqual(self.client.unmap(0x1000, 0x2000), 0x2000)
        self.client.map(0, 0x100000)
        for each in (fd, end, other):
            os.close(each)

    def test_memory_goes_as_an_iommu_of_qemu_takes_it_away(self) -> None:
        """When a guest gives a function to a driver: ranges of powers of two, with whatever was mapped there."""
        for address in (0, 0x3000, 0xFED00000, 0xFFFFFFFFF000):
            self.client.map(address, 0x1000)
        taken, begin = [], 0
        for end in (0xFEE00000, 1 << 32, 1 << 47, 1 << 48):
            taken.append(self.client.unmap(begin, end - begin))
            begin = end
        self.assertEqual(taken, [0x3000, 0, 0, 0x1000])
        self.assertEqual(self.client.unmap(1 << 63, 1 << 63), 0)
        self.client.map(0, 0x100000)

    def test_more_memory_in_pieces_is_taken_than_is_told(self) -> None:
        """QEMU rejects a larger number than this; a guest maps 256 MiB and more in single pages."""
        hello = struct.pack("<HH", 0, 0) + b'{"capabilities":{"max_dma_maps":65535}}\0'
        client = self.server.connect(self, 1, hello)
        self.assertEqual(client.capabilities, {"max_dma_maps": 65535})
        for page in range(65600):
            client.send(DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, page * 0x2000, 0x1000), flags=NO_REPLY)
        self.assertEqual(client.unmap(0, 1 << 40), 65600 * 0x1000)

    def test_interrupts_are_checked_and_signalled(self) -> None:
        events = self.client.vectors()

        def irqs(flags: int, index: int, start: int, count: int, data: bytes = b"", fds: tuple = ()) -> None:
            self.client.call(SET_IRQS, struct.pack("<IIIII", 20, flags, index, start, count) + data, fds)

        irqs(NONE | TRIGGER, MSI, 2, 1)
        irqs(BOOL | TRIGGER, MSI, 4, 3, b"\1\0\1")
        self.assertEqual([wait_for(each, 0) for each in events], [0, 0, 1, 0, 1, 0, 1, 0])
        for arguments in ((NONE | TRIGGER, MSI, 7, 2), (NONE | TRIGGER, 5, 0, 0), (NONE | TRIGGER, 0, 0, 1),
                          (NONE | TRIGGER, ERRORS, 1, 1), (NONE, MSI, 0, 1), (NONE | BOOL | TRIGGER, MSI, 0, 1),
                          (BOOL | TRIGGER, MSI, 0, 2, b"\1"),
                          (EVENTFD | TRIGGER, MSI, 0, 2, b"", (events[0],)), (NONE | 8, MSI, 0, 1)):
            self.refused(errno.EINVAL, irqs, *arguments)
        end, other = os.pipe()
        self.refused(errno.EINVAL, irqs, EVENTFD | TRIGGER, MSI, 0, 1, b"", (other,))
        irqs(EVENTFD | TRIGGER, MSI, 2, 1)  # without a descriptor: taken away
        irqs(NONE | TRIGGER, MSI, 0, 8)
        self.assertEqual([wait_for(each, 0) for each in events], [1, 1, 0, 1, 1, 1, 1, 1])
        irqs(NONE | TRIGGER, MSI, 0, 0)  # all
        irqs(NONE | TRIGGER, MSI, 0, 8)
        self.assertEqual([wait_for(each, 0) for each in events], [0] * 8)
        os.close(end)
        os.close(other)

    def test_accesses_are_checked(self) -> None:
        self.client.enable()
        for region, offset, count in ((BAR0, 1 << 20, 4), (BAR0, (1 << 20) - 2, 4), (BAR0, 0, 0), (BAR0, 0, 8192),
                                      (CONFIG, 4095, 2), (1, 0, 4), (9, 0, 4), (BAR2, 2**64 - 1, 4)):
            self.refused(errno.EINVAL, self.client.read, region, offset, count)
        self.refused(errno.EINVAL, self.client.call, WRITE, struct.pack("<QII", 0, BAR0, 8) + b"1234")
        self.refused(errno.EINVAL, self.client.call, READ, b"123")
        self.refused(errno.ENOTSUP, self.client.call, 6)
        self.refused(errno.ENOTSUP, self.client.call, 99)
        self.refused(errno.EINVAL, self.client.call, WRITE_MULTI, struct.pack("<Q", 2))
        one = struct.pack("<QII8s", 4, CONFIG, 2, b"\6")
        self.client.call(WRITE_MULTI, struct.pack("<Q", 2) + one + struct.pack("<QII8s", 0x3C, CONFIG, 1, b"\7"))
        self.assertEqual((self.client.read(CONFIG, 4, 2), self.client.read(CONFIG, 0x3C, 1)), (b"\6\0", b"\7"))
        self.client.send(WRITE, struct.pack("<QII", 0x3C, CONFIG, 1) + b"\x08", flags=NO_REPLY)
        self.assertEqual(self.client.read(CONFIG, 0x3C, 1), b"\x08")

    def test_bad_connections_end_with_a_line(self) -> None:
        hello = struct.pack("<HH", 0, 0) + b"{}\0"

        def ends(frame: bytes, line: str) -> None:
            client = self.server.connect(self, 1)
            client.socket.sendall(frame)
            with self.assertRaises((EOFError, ConnectionError)):
                while True:
                    client.frame()
            end = time.monotonic() + 10
            while line not in self.server.text():
                self.assertLess(time.monotonic(), end, self.server.text())

        def head(number: int, size: int, flags: int = 0) -> bytes:
            return struct.pack("<HHIII", 1, number, size, flags, 0)

        ends(head(READ, 15), "a frame (REGION_READ) of 15 bytes: expected 16 to")
        ends(head(READ, 1 << 30), "of 1073741824 bytes")
        ends(head(READ, 16, 1), "a reply (REGION_READ) that nothing was asked for")
        ends(head(READ, 16, 0x100), "flags 0x100")
        for payload, line in ((struct.pack("<HH", 1, 0), "protocol version 1.0"), (b"\0\0", "VERSION with 2 bytes"),
                              (hello[:4] + b"{]\0", "not a JSON object"), (hello[:4] + b"{}", "no zero ends")):
            with self.assertRaises((EOFError, ConnectionError)):
                self.server.connect(self, 2, payload)
            end = time.monotonic() + 10
            while line not in self.server.text():
                self.assertLess(time.monotonic(), end, self.server.text())
        self.assertEqual(self.server.connect(self, 1).read(CONFIG, 0, 2), b"\xe0\x1a")

    def test_options_of_workers_are_rejected(self) -> None:
        for option in (("--token", "token"), ("--boards", "2"), ("--linger", "1"),
                       ("--tls-cert", "a.pem", "--tls-key", "b.pem")):
            done = subprocess.run([TPUBOARD, "serve", "--vfio-user", self.server.folder, *option],
                                  capture_output=True, text=True, check=False, timeout=60)
            self.assertNotEqual(done.returncode, 0, option)
            self.assertIn(option[0], done.stderr)
            self.assertIn("excludes", done.stderr)

    def test_a_server_without_descriptors_waits_without_work(self) -> None:
        server = Server(TPUBOARD, "--transport", "null")
        self.addCleanup(server.stop)
        process = server.process.pid
        files = sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())
        usual = resource.prlimit(process, resource.RLIMIT_NOFILE)
        resource.prlimit(process, resource.RLIMIT_NOFILE, (files, usual[1]))
        waiting = socket.socket(socket.AF_UNIX)
        self.addCleanup(waiting.close)
        waiting.connect(server.path())
        time.sleep(0.3)
        before = server.cpu_seconds()
        time.sleep(2)
        self.assertLess(server.cpu_seconds() - before, 0.1)
        resource.prlimit(process, resource.RLIMIT_NOFILE, usual)
        waiting.sendall(struct.pack("<HHIII", 1, 1, 16 + 7, 0, 0) + struct.pack("<HH", 0, 0) + b"{}\0")
        self.assertTrue(waiting.recv(16))

    def test_a_second_client_is_rejected(self) -> None:
        with self.assertRaises((EOFError, ConnectionError)):
            self.server.connect(self)
        self.assertIn("another program has it", self.server.text())
        self.assertEqual(self.client.read(CONFIG, 0, 2), b"\xe0\x1a")


class Board(unittest.TestCase):
    """The simulated board: boots, copies, interrupts."""

    def setUp(self) -> None:
        self.server = Server(TPUBOARD, "--pci-id", "1ae0:0056")
        self.addCleanup(lambda: self.assertEqual(self.server.stop(), 0))
        self.image = Path(FIRMWARE).read_bytes()

    def run_commands(self, client: Client, rings, vector: int, far: int) -> None:
        """FILL, COPY up and down: to memory with a descriptor, and to memory without one."""
        fill = struct.pack("<QQQI", 0, 0x200000, BYTES, 0x12345678)
        up, down = RING["COPY_H2D"], RING["COPY_D2H"]
        entries = [command(RING["OP_FILL"], 0, (0, 0, 0), 0, fill),
                   command(RING["OP_COPY"], 1, (0, 1, 0), 0, copy(up, DATA, 0x100000, BYTES)),
                   command(RING["OP_COPY"], 2, (0, 2, 0), 0, copy(down, 0x100000, far, BYTES)),
                   command(RING["OP_COPY"], 3, (0, 2, 1), 0, copy(down, 0x200000, DATA + BYTES, BYTES)),
                   command(RING["OP_COPY"], 4, (0, 2, 2), 0, copy(up, far + BYTES, 0x300000, BYTES)),
                   command(RING["OP_COPY"], 5, (0, 3, 2), 0, copy(down, 0x300000, DATA + 2 * BYTES, BYTES))]
        rings[:64 * len(entries)] = b"".join(entries)
        client.write32(BAR0, client.core(0, "CMD_TAIL"), len(entries))
        end = time.monotonic() + 60
        while True:
            client.read32(CONFIG, 0)  # while it waits for the reply, the client answers requests for its memory
            last = struct.unpack_from("<IHHIIQII", rings, 0x8000 + 32 * (len(entries) - 1))
            if last[2] & RING["CPL_FLAG_PHASE"]:
                break
            self.assertLess(time.monotonic(), end)
        self.assertGreater(wait_for(vector, 10), 0)
        client.await_idle()
        wait_for(vector, 0)  # what came behind the last one
        status = [struct.unpack_from("<IHHIIQII", rings, 0x8000 + 32 * i)[1] for i in range(len(entries))]
        self.assertEqual(status, [0] * len(entries))

    def test_a_driver_boots_copies_and_is_interrupted(self) -> None:
        client = self.server.connect(self, 2)
        self.assertEqual(client.read(CONFIG, 2, 2), b"\x56\0")
        client.enable()
        self.assertEqual(client.read32(BAR0, CHIP["CHIP_ID"]) & 0xFF, 2)
        events = client.vectors()
        rings = client.shared(RINGS, 0x10000)
        # Two files that lie one behind the other for the board.
        data, behind = client.shared(DATA, BYTES + 0x1000), client.shared(DATA + BYTES + 0x1000, 3 * BYTES)
        client.far[FAR] = bytearray(2 * BYTES)
        client.map(FAR, 2 * BYTES)
        client.boot(0, self.image, RINGS)
        sent = os.urandom(BYTES)
        data[:BYTES] = sent
        back = os.urandom(BYTES)
        client.far[FAR][BYTES:] = back
        self.run_commands(client, rings, events[0], FAR)
        self.assertEqual(bytes(client.far[FAR][:BYTES]), sent)
        self.assertEqual(data[BYTES:] + behind[:BYTES - 0x1000], struct.pack("<I", 0x12345678) * (BYTES // 4))
        self.assertEqual(behind[BYTES - 0x1000:2 * BYTES - 0x1000], back)
        self.assertGreater(client.far_reads, 0)
        self.assertGreater(client.far_writes, 0)

        # Nothing is in flight: the clock of the board stands.
        self.assertEqual(client.clock(), client.clock())
        # It goes on to the cycle that a client wants, by words too, and no further than 2^32 cycles at once.
        now = client.clock()[1]
        for until in (now + 12_345, now + 10_000_000):
            self.assertEqual(client.pass_time(until), until)
            self.assertEqual(client.clock(), (1, until))
        self.assertEqual(client.pass_time(0), until)
        client.write(CONFIG, 0x168, struct.pack("<I", until + 5000 & 0xFFFFFFFF))
        self.assertEqual(client.clock(), (1, until))
        client.write(CONFIG, 0x16C, struct.pack("<I", until + 5000 >> 32))
        self.assertEqual(client.await_idle(), until + 5000)
        self.assertEqual(client.pass_time(2**64 - 1), until + 5000 + 2**32)

        # Memory that is taken away is not there: the command ends with an error, the function notes it.
        errors = client.read32(BAR0, CHIP["ERR_COUNT"])
        client.unmap(FAR, 2 * BYTES)
        entry = command(RING["OP_COPY"], 6, (0, 3, 3), 0, copy(RING["COPY_D2H"], 0x100000, FAR, BYTES))
        rings[64 * 6:64 * 7] = entry
        client.write32(BAR0, client.core(0, "CMD_TAIL"), 7)
        while struct.unpack_from("<I", rings, 0x8000 + 32 * 6)[0] != 6:
            self.assertGreater(wait_for(events[0], 60), 0)
        self.assertEqual(struct.unpack_from("<IH", rings, 0x8000 + 32 * 6), (6, RING["STATUS_HOST_ADDR"]))
        self.assertGreater(client.read32(BAR0, CHIP["ERR_COUNT"]), errors)
        self.assertEqual(client.read(CONFIG, 7, 1)[0] >> 5 & 1, 1)  # received master abort

        # The chip works again after its client has gone, and without bus mastering it reaches nothing.
        client.close()
        other = self.server.connect(self, 2)
        other.enable()
        rings = other.shared(RINGS, 0x10000)
        events = other.vectors()
        other.shared(DATA, 3 * BYTES)
        other.far[FAR] = bytearray(2 * BYTES)
        other.map(FAR, 2 * BYTES)
        other.boot(0, self.image, RINGS, 4)  # as a guest's kernel does
        self.run_commands(other, rings, events[0], FAR)
        other.write(CONFIG, 4, b"\2")
        rings[64 * 6:64 * 7] = command(RING["OP_NOP"], 6, (0, 0, 0), 0, b"")
        other.write32(BAR0, other.core(0, "CMD_TAIL"), 7)
        self.assertEqual(wait_for(events[0], 1), 0)
        self.assertEqual(struct.unpack_from("<IH", rings, 0x8000 + 32 * 6), (0, 0))

    def test_memory_whose_file_is_cut_has_zeros(self) -> None:
        client = self.server.connect(self, 1)
        client.enable()
        rings = client.shared(RINGS, 0x10000)
        back = client.shared(DATA + BYTES, BYTES)
        fd = os.memfd_create("cut")
        os.pwrite(fd, b"\7" * BYTES, 0)
        client.map(DATA, BYTES, fd)
        client.boot(0, self.image, RINGS)
        os.ftruncate(fd, 0)
        os.close(fd)
        entries = [command(RING["OP_COPY"], 0, (0, 0, 0), 0, copy(RING["COPY_H2D"], DATA, 0, BYTES)),
                   command(RING["OP_COPY"], 1, (0, 1, 0), 0, copy(RING["COPY_D2H"], 0, DATA + BYTES, BYTES))]
        back[:] = b"\1" * BYTES
        rings[:128] = b"".join(entries)
        client.write32(BAR0, client.core(0, "CMD_TAIL"), 2)
        end = time.monotonic() + 60
        while back[:] != bytes(BYTES):
            self.assertLess(time.monotonic(), end, self.server.text())

    def test_memory_whose_file_is_cut_can_be_written(self) -> None:
        client = self.server.connect(self, 1)
        client.enable()
        rings = client.shared(RINGS, 0x10000)
        fd = os.memfd_create("cut")
        self.addCleanup(os.close, fd)
        os.ftruncate(fd, BYTES)
        client.map(DATA, BYTES, fd)
        client.boot(0, self.image, RINGS)
        fill = struct.pack("<QQQI", 0, 0, BYTES, 0x12345678)
        entries = [command(RING["OP_FILL"], 0, (0, 0, 0), 0, fill)]

        def write_at(address: int) -> None:
            number = len(entries)
            entries.append(command(RING["OP_COPY"], number, (0, 1, number - 1), 0,
                                   copy(RING["COPY_D2H"], 0, address, BYTES)))
            rings[:64 * len(entries)] = b"".join(entries)
            client.write32(BAR0, client.core(0, "CMD_TAIL"), len(entries))
            end = time.monotonic() + 60
            while struct.unpack_from("<I", rings, 0x8000 + 32 * number)[0] != number:
                self.assertLess(time.monotonic(), end, self.server.text())
                client.read32(CONFIG, 0)  # the server is there
            self.assertEqual(struct.unpack_from("<IH", rings, 0x8000 + 32 * number), (number, 0))

        os.ftruncate(fd, 0)
        write_at(DATA)
        self.assertEqual(os.fstat(fd).st_size, 0)
        os.ftruncate(fd, BYTES)
        client.map(DATA + BYTES, BYTES, fd)  # not by the mapping that is lost
        write_at(DATA + BYTES)
        self.assertEqual(os.pread(fd, BYTES, 0), struct.pack("<I", 0x12345678) * (BYTES // 4))

    def test_a_client_that_does_not_answer_is_not_waited_for(self) -> None:
        client = self.server.connect(self, 3)
        client.enable()
        rings = client.shared(RINGS, 0x10000)
        events = client.vectors()
        client.map(FAR, BYTES)
        client.boot(0, self.image, RINGS)
        rings[:64] = command(RING["OP_COPY"], 0, (0, 0, 0), 0, copy(RING["COPY_H2D"], FAR, 0, BYTES))
        begin = time.monotonic()
        client.write(BAR0, client.core(0, "CMD_TAIL"), b"\1\0\0\0", posted=True)
        while struct.unpack_from("<IHH", rings, 0x8000)[2] == 0:
            self.assertGreater(wait_for(events[0], 60), 0)
        self.assertGreater(time.monotonic() - begin, 9)
        self.assertEqual(struct.unpack_from("<IH", rings, 0x8000), (0, RING["STATUS_HOST_ADDR"]))
        self.assertIn("has no reply within 10000 ms", self.server.text())

    def test_memory_of_one_chip_is_not_that_of_another(self) -> None:
        clients = [self.server.connect(self, chip) for chip in (0, 1)]
        rings = []
        for number, client in enumerate(clients):
            client.enable()
            rings.append(client.shared(RINGS, 0x10000))
            client.shared(DATA, 0x1000)[:4] = bytes([number + 1] * 4)
            client.boot(0, self.image, RINGS)
        for number, client in enumerate(clients):
            memory = client.shared(DATA + 0x10000, 0x1000)
            entries = [command(RING["OP_COPY"], 0, (0, 0, 0), 0, copy(RING["COPY_H2D"], DATA, 0, 64)),
                       command(RING["OP_COPY"], 1, (0, 1, 0), 0, copy(RING["COPY_D2H"], 0, DATA + 0x10000, 64))]
            rings[number][:128] = b"".join(entries)
            client.write32(BAR0, client.core(0, "CMD_TAIL"), 2)
            end = time.monotonic() + 60
            while memory[:4] != bytes([number + 1] * 4):
                self.assertLess(time.monotonic(), end)


if __name__ == "__main__":
    unittest.main()
