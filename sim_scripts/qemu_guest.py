"""Boots Linux guests of QEMU that have the chips of a board as PCI functions, and runs programs in them (docs/vfio.md).

The guest has this host's files, which it can only read. Its kernel and a static busybox start it; then programs run
from where they are on this host, find the chips by Linux's VFIO, and must have the bits that they have here:
`tpuboard devices`, the tanh example, training of the perceptron for digits, and, with --python, a program of JAX.
Guests follow one another on one server: a first one runs everything; one is killed within a launch; one with little
memory runs the example, takes its functions from their driver and gives them back, runs it again, and once more after a
reset.
Exit code 77 says that something is not there that this needs: QEMU 10.1 with vfio-user-pci, a kernel, busybox.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import lzma
import math
import os
import platform
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = 77
MODULES = ("9p", "9pnet_virtio", "vfio_iommu_type1", "vfio_pci")
CHIPS = 4
TANH_SHAPES = ((32, 200), (200, 96), (96,))  # arguments of examples/tanh_layer
DIGITS, PIXELS, CLASSES = 2000, 784, 10
STEPS = 8
BOOTING_SECONDS = 0.5  # at least, of the server's CPU, for all rows: a board boots for each
LAUNCHING_SECONDS = 1.5  # of the server's CPU: a board has booted, and launches run
ROWS = ("devices", "tanh", "mlp", "jax")

# The first process of a guest: modules, functions to vfio-pci, this host's files, rows.
INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc p /proc; /bin/busybox mount -t sysfs s /sys; /bin/busybox mount -t devtmpfs d /dev
echo GUEST LINUX $(/bin/busybox uname -r) $(/bin/busybox cut -d' ' -f1 /proc/uptime) s
for module in /modules/*; do /bin/busybox insmod $module; done
give() {
  for device in /sys/bus/pci/devices/*; do
    if [ "$(/bin/busybox cat $device/vendor)" = 0x1ae0 ]; then
      echo GUEST FUNCTION ${device##*/} class $(/bin/busybox cat $device/class)
      echo vfio-pci > $device/driver_override
      echo ${device##*/} > /sys/bus/pci/drivers_probe
    fi
  done
}
take() {
  for device in /sys/bus/pci/drivers/vfio-pci/0*; do echo ${device##*/} > /sys/bus/pci/drivers/vfio-pci/unbind; done
  /bin/busybox rmmod vfio_pci && /bin/busybox insmod /modules/*-vfio_pci.ko
}
/bin/busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose host /host
for each in proc sys dev; do /bin/busybox mount -o bind /$each /host/$each; done
/bin/busybox mount -t tmpfs work /host@FOLDER@/work
ulimit -l unlimited
rows() { /bin/busybox chroot /host /bin/sh @FOLDER@/rows.sh vfio: @FOLDER@/work $*; }
give
@DO@
echo GUEST ENDS
/bin/busybox @END@ -f
"""

# The programs, as they run here and in guests. Arguments: what to connect to ("": a board of their own), a folder for
# results, and rows of the list above.
PROGRAMS = """connect=$1; out=$2; shift 2
[ -z "$connect" ] || { export TPUBOARD_CONNECT=$connect; connect="--connect $connect"; }
export HOME=$out TMPDIR=$out PYTHONDONTWRITEBYTECODE=1 LC_ALL=C
export TPU_LIBRARY_PATH=@BIN@/../lib/libtpuboard_pjrt.so JAX_PLATFORMS=tpu
cd $out
tanh() {
  @BIN@/tpuboard run @FOLDER@/tanh.tpuexe --in 0=@FOLDER@/0.npy --in 1=@FOLDER@/1.npy --in 2=@FOLDER@/2.npy \\
    --out-dir tanh_out $connect "$@"
}
for row in $*; do
  begin=$(cut -d' ' -f1 /proc/uptime)
  case $row in
    devices) @BIN@/tpuboard devices $connect > devices ;;
    tanh) tanh; cp tanh_out/0.npy tanh ;;
    mlp)
      @BIN@/tpuboard train @FOLDER@/train.toml --steps @STEPS@ --out mlp_out $connect
      cat mlp_out/checkpoint/*.safetensors > mlp; cut -d, -f1,3 mlp_out/metrics.csv >> mlp ;;
    jax) @PYTHON@ @FOLDER@/program.py > jax ;;
    forever) echo GUEST WORKS; tanh --launches 1000000 > forever ;;
  esac
  echo "SECONDS $row: $(cut -d' ' -f1 /proc/uptime) - $begin"
  echo "RESULT $row $(sha256sum < $row | cut -c1-64)"
done
"""

JAX_PROGRAM = """import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

def loss(w, x, y):
    return ((jnp.tanh(x @ w["a"]) @ w["b"] - y) ** 2).mean()

@jax.jit
def step(w, x, y):
    value, grad = jax.value_and_grad(loss)(w, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, grad), value

key = jax.random.key(0)
w = {"a": jax.random.normal(key, (16, 32)) / 4, "b": jax.random.normal(key, (32, 1)) / 6}
mesh = Mesh(jax.devices(), ("batch",))
x = jax.device_put(jax.random.normal(key, (64, 16)), NamedSharding(mesh, PartitionSpec("batch")))
for number in range(5):
    w, value = step(w, x, x[:, :1])
    print(number, float(value).hex())
print(jax.devices(), [leaf.tolist() for leaf in jax.tree.leaves(w)])
"""


class MissingError(Exception):
    """Something that guests need is not on this host."""


def find_qemu(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise MissingError(f"no {name}: install QEMU 10.1 or newer, or name it by --qemu or TPUBOARD_QEMU")
    devices = subprocess.run([path, "-device", "help"], capture_output=True, text=True, check=False).stdout
    if "vfio-user-pci" not in devices:
        version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.split("\n")[0]
        raise MissingError(f"{path} has no vfio-user-pci, which came with QEMU 10.1: {version}")
    return path


def unpacked(module: Path) -> bytes:
    data = module.read_bytes()
    if module.suffix == ".gz":
        return gzip.decompress(data)
    if module.suffix == ".xz":
        return lzma.decompress(data)
    if module.suffix != ".ko":
        raise MissingError(f"{module}: expected a module that is not packed, or by gzip or xz")
    return data


def find_modules(folder: Path) -> dict[str, bytes]:
    """What guests load, each behind those that it needs. Some kernels have some of them built in."""
    there = {path.name.split(".")[0].replace("-", "_"): path for path in folder.rglob("*.ko*")}
    found: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in found or name not in there:
            return
        data = unpacked(there[name])
        needs = re.search(rb"\0depends=([^\0]*)\0", data)
        for each in needs.group(1).decode().split(",") if needs else ():
            add(each.replace("-", "_"))
        found[name] = data

    for name in MODULES:
        add(name)
    if "vfio_pci" not in found:
        raise MissingError(f"{folder} has no vfio-pci.ko")
    return found


def find_kernel(kernel: str, modules: str) -> tuple[Path, dict[str, bytes]]:
    """The kernel, and its modules: beside it, as in its package."""
    image = Path(kernel or f"/boot/vmlinuz-{platform.release()}")
    release = image.name.removeprefix("vmlinuz-")
    beside = [image.parents[1] / name / release for name in ("usr/lib/modules", "lib/modules")] if kernel else []
    folders = [Path(modules)] if modules else [*beside, Path("/lib/modules") / release]
    folder = next((each for each in folders if each.is_dir()), None)
    if not image.is_file() or folder is None:
        raise MissingError(f"no kernel {image} with modules in {folders[-1]}: name it by --kernel or "
                           "TPUBOARD_GUEST_KERNEL")
    return image, find_modules(folder)


def find_busybox(name: str) -> Path:
    path = shutil.which(name)
    if path is None or "not a dynamic executable" not in subprocess.run(
            ["ldd", path], capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}).stderr:
        raise MissingError("no busybox without libraries (package busybox-static): name it by --busybox")
    return Path(path)


def archive(files: dict[str, tuple[int, bytes]]) -> bytes:
    """A cpio archive of the format newc; folders come before what is in them."""
    folders = {str(parent) for name in files for parent in Path(name).parents if str(parent) != "."}
    entries = {name: (0o040755, b"") for name in folders} | files
    out = b""
    for number, name in enumerate([*sorted(entries), "TRAILER!!!"], 1):
        mode, data = entries.get(name, (0, b""))
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        out += head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)
    return out


def random_bits(count: int, seed: int) -> Iterator[int]:
    """Numbers of 31 bits."""
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) % 2**31
        yield seed


def array_file(kind: str, shape: tuple[int, ...], values: Iterator[float]) -> bytes:
    """A NumPy file of f4 or i4."""
    head = repr({"descr": f"<{kind}", "fortran_order": False, "shape": shape}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    packed = struct.pack(f"<{math.prod(shape)}{kind[0]}", *values)
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + packed


def filled(text: str, **words: object) -> str:
    """With a value for each @NAME@."""
    for name, value in words.items():
        text = text.replace(f"@{name}@", str(value))
    return text


class Bench:
    """What guests run, in a folder: programs, data, the script of the rows. What it gives here is what is expected."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.folder, self.bin = folder, arguments.bin.resolve()
        self.rows = [row for row in ROWS if row != "jax" or arguments.python]
        for example, name in (("tanh_layer/tanh_layer", "tanh"), ("mnist_mlp/train_step", "train_step"),
                              ("mnist_mlp/eval_step", "eval_step")):
            subprocess.run([self.bin / "tpuc", ROOT / f"examples/{example}.mlirbc", "-o", folder / f"{name}.tpuexe"],
                           check=True)
        for number, shape in enumerate(TANH_SHAPES):
            values = (bits / 2**30 - 1 for bits in random_bits(math.prod(shape), number + 1))
            (folder / f"{number}.npy").write_bytes(array_file("f4", shape, values))
        pixels = (bits / 2**31 for bits in random_bits(DIGITS * PIXELS, 4))
        (folder / "images.npy").write_bytes(array_file("f4", (DIGITS, PIXELS), pixels))
        labels = ((bits >> 16) % CLASSES for bits in random_bits(DIGITS, 5))
        (folder / "labels.npy").write_bytes(array_file("i4", (DIGITS,), labels))
        config = (ROOT / "examples/mnist_mlp/train.toml.in").read_text()
        (folder / "train.toml").write_text(filled(config, OUT=folder, DATA=folder))
        (folder / "program.py").write_text(JAX_PROGRAM)
        (folder / "rows.sh").write_text(filled(PROGRAMS, FOLDER=folder, BIN=self.bin, STEPS=STEPS,
                                               PYTHON=arguments.python))
        (folder / "work").mkdir()

    def expected(self) -> dict[str, str]:
        out = self.folder / "here"
        out.mkdir()
        done = subprocess.run(["sh", self.folder / "rows.sh", "", out, *self.rows], capture_output=True, text=True,
                              check=False)
        print(done.stdout + done.stderr)
        return results(done.stdout)


def results(text: str) -> dict[str, str]:
    """Row -> hash."""
    return dict(re.findall(r"RESULT (\w+) (\w{64})", text))


class Guests:
    """Guests of one server, one after the other."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments, self.folder = arguments, folder
        self.qemu = find_qemu(arguments.qemu)
        self.kernel, self.modules = find_kernel(arguments.kernel, arguments.modules)
        self.busybox = find_busybox(arguments.busybox)

    def disk(self, do: str, end: str) -> Path:
        init = filled(INIT, FOLDER=self.folder, DO=do, END=end)
        files = {"init": (0o100755, init.encode()), "bin/busybox": (0o100755, self.busybox.read_bytes())}
        files |= {f"{name}/.keep": (0o100644, b"") for name in ("proc", "sys", "dev", "host")}
        for number, (name, data) in enumerate(self.modules.items()):
            files[f"modules/{number:02}-{name}.ko"] = (0o100644, data)
        path = self.folder / "guest.cpio.gz"
        path.write_bytes(gzip.compress(archive(files), 1))
        return path

    def words(self, disk: Path, memory: str, reset: bool) -> list[str]:
        words = [self.qemu, "-machine", "q35,kernel-irqchip=split", "-cpu", "max", "-accel", self.arguments.accel,
                 "-m", memory, "-object", f"memory-backend-memfd,id=ram,size={memory},share=on",
                 "-numa", "node,memdev=ram", "-device", "intel-iommu,intremap=on,caching-mode=on,aw-bits=48",
                 "-kernel", str(self.kernel), "-initrd", str(disk), "-append",
                 "console=ttyS0 intel_iommu=on no_timer_check quiet panic=-1", "-nographic", "-nic", "none",
                 "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
                 "-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]
        if not reset:
            words.append("-no-reboot")
        for chip in range(CHIPS):
            socket = f'"socket":{{"type":"unix","path":"{self.folder}/board/chip{chip}.sock"}}'
            words += ["-device", f'{{"driver":"vfio-user-pci","addr":"{16 + chip:#x}",{socket}}}']
        return words

    @contextlib.contextmanager
    def started(self, do: str, memory: str, end: str = "poweroff") -> Iterator[subprocess.Popen[str]]:
        """A guest that executes `do` and then powers off, or begins again."""
        print(f"== guest with {memory}: {do}", flush=True)
        words = self.words(self.disk(do, end), memory, end == "reboot")
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace") as process:
            late = threading.Event()

            def stop() -> None:
                late.set()
                process.kill()

            limit = threading.Timer(self.arguments.timeout, stop)
            limit.start()
            try:
                yield process
            finally:
                limit.cancel()
                process.kill()
                if late.is_set():
                    sys.exit(f"the guest did not end within {self.arguments.timeout:g} s; --timeout gives it more")

    def all(self, expected: dict[str, str]) -> None:
        with self.started(f"rows {' '.join(expected)}", self.arguments.memory) as process:
            text = console(process)
        check_end(text, 1)
        functions = text.count("GUEST FUNCTION")
        if functions != CHIPS:
            sys.exit(f"the guest has {functions} functions: expected {CHIPS}")
        compare(text, expected)

    def killed(self, server: subprocess.Popen[str]) -> None:
        with self.started("rows forever", self.arguments.memory) as process:
            if "GUEST WORKS" not in console(process, "GUEST WORKS"):
                sys.exit("the guest that is killed did not begin to work")
            begin = cpu_seconds(server.pid)
            while cpu_seconds(server.pid) < begin + LAUNCHING_SECONDS and process.poll() is None:
                time.sleep(0.1)
            process.kill()
            if process.wait() != -signal.SIGKILL or "GUEST ENDS" in process.stdout.read():
                sys.exit("the guest that is killed had ended")

    def again(self, expected: dict[str, str]) -> None:
        """Little memory; the functions go to no driver and back; a reset of the guest."""
        with self.started("rows tanh; take; give; rows tanh", self.arguments.little, "reboot") as process:
            text = console(process, "GUEST ENDS", 2)
        check_end(text, 2)
        for part in text.replace("RESULT", "\0RESULT").split("\0")[1:]:
            compare(part, {"tanh": expected["tanh"]})
        if text.count("RESULT") != 4:
            sys.exit(f"the guest that is reset has {text.count('RESULT')} results: expected 4")


def console(process: subprocess.Popen[str], until: str = "", times: int = 1) -> str:
    """What a guest writes, to its end or a line that is written so many times."""
    text = ""
    for line in process.stdout:
        print(line, end="", flush=True)
        text += line
        if until and text.count(until) >= times:
            break
    return text


def check_end(text: str, times: int) -> None:
    if text.count("GUEST ENDS") != times:
        sys.exit(f"the guest ended {text.count('GUEST ENDS')} times by itself: expected {times}; QEMU, its kernel or "
                 "the server ended it (see the lines in front of this one)")


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compare(text: str, expected: dict[str, str]) -> None:
    found = results(text)
    if found != expected:
        wrong = sorted(row for row in expected if found.get(row) != expected[row])
        sys.exit(f"the guest has not the results of this host: {', '.join(wrong)}")


def run(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        guests = Guests(arguments, folder)
        bench = Bench(arguments, folder)
        expected = bench.expected()
        if set(expected) != set(bench.rows):
            sys.exit("not all rows ran on this host")
        words = [bench.bin / "tpuboard", "serve", "--vfio-user", folder / "board"]
        with (folder / "errors").open("w") as errors:
            server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            if not server.stdout.readline():
                sys.exit("the server did not start (see its lines in front of this one)")
            begin = cpu_seconds(server.pid)
            guests.all(expected)
            if cpu_seconds(server.pid) < begin + BOOTING_SECONDS:
                sys.exit("the guest has not used the board of the server")
            guests.killed(server)
            guests.again(expected)
        finally:
            server.terminate()
            code = server.wait()
            lines = (folder / "errors").read_text()
            print(lines)
    if code != 0 or "rejected" in lines:
        sys.exit(f"the server has rejected something, or failed (exit code {code})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "build/release/bin", help="folder of tpuboard and tpuc")
    parser.add_argument("--qemu", default=os.environ.get("TPUBOARD_QEMU", "qemu-system-x86_64"))
    parser.add_argument("--kernel", default=os.environ.get("TPUBOARD_GUEST_KERNEL", ""),
                        help="vmlinuz-RELEASE of guests (default: this host's)")
    parser.add_argument("--modules", default="", help="folder of its modules (default: beside it, as in its package)")
    parser.add_argument("--busybox", default="busybox")
    parser.add_argument("--python", default="", help="a Python with JAX, for a program of JAX")
    parser.add_argument("--accel", default="tcg", help="tcg or kvm")
    parser.add_argument("--memory", default="2G", help="of guests")
    parser.add_argument("--little", default="640M", help="of the guest with little memory")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for a guest")
    try:
        run(parser.parse_args())
    except MissingError as missing:
        print(f"skipped: {missing}")
        sys.exit(SKIPPED)


if __name__ == "__main__":
    main()
